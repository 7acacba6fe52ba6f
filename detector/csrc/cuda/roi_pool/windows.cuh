// Maxima of windows of cells, in shared memory, as keys: a value and the cell it is of in one number.
#pragma once

#include "../../roi_pool.h"
#include "../../roi_pool_plan.h"
#include "../roi/gather.cuh"

namespace detector::roi_pool {

// The greater of two keys is of the greater value or, of equal values, of the earlier cell, which a tie tells
// in its upper 16 bits; the lower ones mean nothing: keys that are equal but there are of the same cell.
// Cells count from 1, and 0 is no cell. A float and its tie are the halves of a double, which a GPU compares
// in one instruction: in the upper half neither floats nor infinity look like a double's NaN. Negative
// doubles are the smaller for a greater lower half.
struct Key {
  double bits;

  __device__ Key() {}
  __device__ Key(float value, uint32_t tie) { bits = __hiloint2double(__float_as_int(value), tie); }

  // Not of minus zero.
  __device__ static Key of(float value, int cell) {
    const uint32_t negative = __float_as_int(value) >> 31;  // in all bits
    return {value, uint32_t(cell) << 16 ^ (~negative & 0xffff0000u)};
  }
  __device__ uint32_t tie() const { return __double2loint(bits); }
  __device__ float value() const { return __int_as_float(__double2hiint(bits)); }
  __device__ int cell() const {
    const int negative = __double2hiint(bits) >> 31;
    uint32_t equal;  // bits of tie and sign, in the one instruction that the compiler makes two of
    asm("lop3.b32 %0, %1, %2, 0, 0xc3;" : "=r"(equal) : "r"(tie()), "r"(negative));
    return equal >> 16;
  }
  __device__ bool operator>(const Key& other) const { return bits > other.bits; }
};

__device__ inline Key greater(const Key& a, const Key& b) { return a > b ? a : b; }

// The keys of V channels in each of some places in shared memory: values, and ties of which a word holds two.
template <typename T, int V>
class StoredKeys {
 public:
  using Ties = Pack<std::conditional_t<V == 1, uint16_t, uint32_t>, (V + 1) / 2>;
  static constexpr int64_t kBytes = sizeof(Pack<T, V>) + sizeof(Ties);  // of a place

  __device__ StoredKeys(char* shared, int places)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)), ties_(reinterpret_cast<Ties*>(values_ + places)) {}

  __device__ void load(int i, Key (&key)[V]) const {
    const Pack<T, V> values = values_[i];
    const Ties ties = ties_[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const uint32_t word = ties.values[v / 2];
      key[v] = {float(values.values[v]), v % 2 == 0 ? word << 16 : word};
    }
  }

  __device__ void store(int i, const Key (&key)[V]) {
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

 private:
  Pack<T, V>* values_;
  Ties* ties_;
};

// Where the windows lie that cover a bin: those at its corners. Of windows that would be one twice it has
// nothing(), which all threads read at once. A bin over twice as long as its windows has the last of them
// first, how far right and down that is, and the first of them in both().
struct alignas(8) Bin {
  uint32_t first_right, down_both;

  Bin() = default;
  __device__ Bin(int first, int right, int down, int both)
      : first_right(first | right << 16), down_both(down | both << 16) {}
  __device__ int first() const { return first_right & 0xffff; }
  __device__ int right() const { return first_right >> 16; }
  __device__ int down() const { return down_both & 0xffff; }
  __device__ int both() const { return down_both >> 16; }
  __device__ bool is_long() const { return both() < first(); }
};

// Maxima of windows of 2^y x 2^x cells, or as many as there are up to the border, and the cells where they
// were found first. Without a value above the lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  static_assert(StoredKeys<T, V>::kBytes == window_bytes(V, sizeof(T)));

  __device__ Windows(char* shared, const Grid& grid) : keys_(shared, grid.size()), grid_(grid) {
    if (threadIdx.x < 2) {
      Key key[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        key[v] = Key::of(threadIdx.x == 0 ? float(T(kLowest)) : 0.f, 0);
      }
      keys_.store(threadIdx.x == 0 ? grid_.nothing() : grid_.zero(), key);
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
      grow(1 << y_, 0);
    }
    for (; x_ < x; ++x_) {
      grow(0, 1 << x_);
    }
  }

  // The maxima of two bins, whose loads do not wait for each other.
  __device__ void pool(const Bin (&bin)[2], Key (&key)[2][V]) const {
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
      keys_.load(bin[k].first(), key[k]);
      for (int y = 0; y < bin[k].down() + height; y += height) {
        for (int x = 0; x < bin[k].right() + width; x += width) {
          join(bin[k].both() + min(y, bin[k].down()) + min(x, bin[k].right()), key[k]);
        }
      }
    }
  }

 private:
  static constexpr int kAtOnce = 5;  // cells of a thread, whose loads do not wait for each other

  __device__ void pool_corners(const Bin& bin, Key (&key)[V]) const {
    keys_.load(bin.first(), key);
    join(bin.right(), key);
    join(bin.down(), key);
    join(bin.both(), key);
  }

  __device__ void join(int i, Key (&key)[V]) const {
    Key other[V];
    keys_.load(i, other);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      key[v] = greater(other[v], key[v]);
    }
  }

  template <typename Reader>
  __device__ void load(const Reader& reader) {
    const int cells = grid_.height * grid_.width, gap = grid_.stride() - grid_.width;
    const unsigned reciprocal = 0xffffffffu / grid_.width + 1;  // i * reciprocal >> 32 is the row of cell i
    const auto row_of = [&](int i) { return grid_.width == 1 ? i : int(__umulhi(i, reciprocal)); };
    const T* channel_data[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {  // the last channel again in place of those there are not
      channel_data[v] = reader.data + min(v, reader.channels - 1) * reader.channel_stride;
    }
    for (int base = threadIdx.x; base < cells; base += kAtOnce * blockDim.x) {
      float value[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), cells - 1), y = row_of(i), x = i - y * grid_.width;
        const int64_t at = y * reader.row_stride + x * reader.column_stride;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          value[k][v] = float(channel_data[v][at]);
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), cells - 1);
        Key key[V];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float real = max(value[k][v] + 0.f, kLowest);  // minus zero is zero, NaN the lowest
          key[v] = Key::of(float(T(real)), real > kLowest ? i + 1 : 0);
        }
        keys_.store(i + row_of(i) * gap, key);
      }
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `down` rows or `right` cells later, if there is one: past the
  // border are no cells. In place: they ascend, and those of a round are read before any of them is written.
  __device__ void grow(int down, int right) {
    const int windows = grid_.nothing(), stride = grid_.stride(), step = down * stride + right;
    const unsigned reciprocal = 0xffffffffu / stride + 1;
    for (int base = threadIdx.x; base - int(threadIdx.x) < windows; base += kAtOnce * blockDim.x) {
      Key key[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), windows - 1);
        const int y = __umulhi(i, reciprocal), x = i - y * stride;
        keys_.load(i, key[k]);
        join(y + down < grid_.height && x + right < grid_.width ? i + step : i, key[k]);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (base + k * int(blockDim.x) < windows) {
          keys_.store(base + k * blockDim.x, key[k]);
        }
      }
    }
    __syncthreads();
  }

  StoredKeys<T, V> keys_;
  Grid grid_;
  int y_ = -1, x_ = 0;
};

}  // namespace detector::roi_pool
