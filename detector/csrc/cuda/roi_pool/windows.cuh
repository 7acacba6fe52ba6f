// Maxima of windows of cells, in shared memory.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"
#include "keys.cuh"

namespace detector::roi_pool {

// Where the windows lie that cover a bin: those at its corners. Of windows that would be one twice it has
// nothing(), which all threads read at once. A bin over twice as long as its windows has the last of them
// first, how far right and down that is, and the first of them in `both`.
struct alignas(8) Bin {
  uint16_t first, right, down, both;
  __device__ bool is_long() const { return both < first; }
};

// How windows lie: a row of an odd number, so that bins below each other are in different banks, then a
// window without a cell and a window that is 0, which an empty bin has.
struct Grid {
  int height, width;
  C10_HOST_DEVICE int stride() const { return width | 1; }
  C10_HOST_DEVICE int nothing() const { return height * stride(); }
  C10_HOST_DEVICE int zero() const { return nothing() + 1; }
  C10_HOST_DEVICE int size() const { return nothing() + 2; }
};

// Maxima of windows of 2^y x 2^x cells and the cells where they were found first. Without a value above the
// lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  using A = Accumulate<T>;
  using K = Key<A>;
  using Ties = Pack<std::conditional_t<V == 1, uint16_t, uint32_t>, (V + 1) / 2>;  // two in a word
  static constexpr int64_t kBytes = sizeof(Pack<T, V>) + sizeof(Ties);             // of a window

  __device__ Windows(char* shared, const Grid& grid)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)),
        ties_(reinterpret_cast<Ties*>(values_ + grid.size())),
        grid_(grid) {
    if (threadIdx.x < 2) {
      K key[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        key[v] = K::of(threadIdx.x == 0 ? A(T(kLowest)) : A(0), 0);
      }
      store(threadIdx.x == 0 ? grid_.nothing() : grid_.zero(), key);
    }
  }

  template <typename Reader>
  __device__ void resize(const Reader& reader, int y, int x) {
    __syncthreads();
    if (y != y_ || x < x_) {
      load(reader);
      y_ = x_ = 0;
    }
    for (; y_ < y; ++y_) {
      grow(grid_.stride() << y_);
    }
    for (; x_ < x; ++x_) {
      grow(1 << x_);
    }
  }

  // The maxima of two bins, whose loads do not wait for each other.
  __device__ void pool(const Bin (&bin)[2], K (&key)[2][V]) const {
    if (!bin[0].is_long() && !bin[1].is_long()) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        pool_corners(bin[k], key[k]);
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (!bin[k].is_long()) {
        pool_corners(bin[k], key[k]);
        continue;
      }
      const int height = grid_.stride() << y_, width = 1 << x_;
      load(bin[k].first, key[k]);
      for (int y = 0; y < bin[k].down + height; y += height) {
        for (int x = 0; x < bin[k].right + width; x += width) {
          join(bin[k].both + min(y, bin[k].down) + min(x, bin[k].right), key[k]);
        }
      }
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // cells of a thread, whose loads do not wait for each other

  __device__ void pool_corners(const Bin& bin, K (&key)[V]) const {
    load(bin.first, key);
    join(bin.right, key);
    join(bin.down, key);
    join(bin.both, key);
  }

  __device__ void load(int i, K (&key)[V]) const {
    const Pack<T, V> values = values_[i];
    const Ties ties = ties_[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const uint32_t word = ties.values[v / 2];
      key[v] = {A(values.values[v]), v % 2 == 0 ? word << 16 : word};
    }
  }

  __device__ void join(int i, K (&key)[V]) const {
    K other[V];
    load(i, other);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      key[v] = greater(other[v], key[v]);
    }
  }

  __device__ void store(int i, const K (&key)[V]) {
    Pack<T, V> values;
    Ties ties;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values.values[v] = T(key[v].value());
      const uint32_t tie = key[v].tie();
      ties.values[v / 2] = v % 2 == 0 ? tie >> 16 : __byte_perm(ties.values[v / 2], tie, 0x7610);
    }
    values_[i] = values;
    ties_[i] = ties;
  }

  template <typename Reader>
  __device__ void load(const Reader& reader) {
    const int cells = grid_.height * grid_.width, gap = grid_.stride() - grid_.width;
    const unsigned reciprocal = 0xffffffffu / grid_.width + 1;  // i * reciprocal >> 32 is the row of cell i
    for (int base = threadIdx.x; base < cells; base += kAtOnce * blockDim.x) {
      A value[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        reader.load(min(base + k * int(blockDim.x), cells - 1), value[k]);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), cells - 1);
        K key[V];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          // Minus zero is zero.
          const bool exists = value[k][v] > A(kLowest);
          key[v] = K::of(A(T(exists ? value[k][v] + A(0) : A(kLowest))), exists ? i + 1 : 0);
        }
        store(i + (gap == 0 ? 0 : int(__umulhi(i, reciprocal))), key);
      }
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `step` later, in place: they ascend, and those of a round are
  // read before any of them is written. Windows past the border mean nothing: no bin has them.
  __device__ void grow(int step) {
    const int last = grid_.nothing() - 1;
    for (int base = threadIdx.x; base - int(threadIdx.x) <= last; base += kAtOnce * blockDim.x) {
      K key[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), last);
        load(i, key[k]);
        join(min(i + step, last), key[k]);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (base + k * int(blockDim.x) <= last) {
          store(base + k * blockDim.x, key[k]);
        }
      }
    }
    __syncthreads();
  }

  Pack<T, V>* values_;
  Ties* ties_;
  Grid grid_;
  int y_ = -1, x_ = 0;
};

}  // namespace detector::roi_pool
