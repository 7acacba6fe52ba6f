// Maxima of windows of cells, in shared memory.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"
#include "keys.cuh"

namespace detector::roi_pool {

// How many windows cover a bin: those at its corners, or more for a bin over twice as long as they.
enum Cover : uint16_t { kNone, kFour, kMore };

// A bin as windows cover it: the first cell, and how far right and down, in cells of the image, the windows
// begin that end with the bin.
struct alignas(8) Bin {
  uint16_t cell, right, down;
  Cover cover;
};

// Maxima of windows of 2^y x 2^x cells and the cells where they were found first. Without a value above the
// lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  using A = Accumulate<T>;

  __device__ Windows(char* shared, int height, int width)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)),
        ties_(reinterpret_cast<Pack<uint16_t, V>*>(values_ + height * width)),
        size_(height * width),
        width_(width) {}

  template <typename Reader>
  __device__ void resize(const Reader& reader, int y, int x) {
    __syncthreads();
    if (y != y_ || x < x_) {
      load(reader);
      y_ = x_ = 0;
    }
    for (; y_ < y; ++y_) {
      grow(width_ << y_);
    }
    for (; x_ < x; ++x_) {
      grow(1 << x_);
    }
  }

  // The maximum of a bin that is not empty; without one the lowest float, of cell -1.
  __device__ void pool(const Bin& bin, A (&best)[V], int32_t (&where)[V]) const {
    Key<A> key[V];
    load(bin.cell, key);
    if (bin.cover == kFour) {
      join(bin.cell + bin.right, key);
      join(bin.cell + bin.down, key);
      join(bin.cell + bin.down + bin.right, key);
    } else {
      const int height = width_ << y_, width = 1 << x_;
      for (int y = 0; y < bin.down + height; y += height) {
        for (int x = 0; x < bin.right + width; x += width) {
          join(bin.cell + min(y, bin.down) + min(x, bin.right), key);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool none = key[v].value() == A(T(kLowest));
      best[v] = none ? A(kLowest) : key[v].value();
      where[v] = none ? -1 : key[v].cell();
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // cells of a thread, whose loads do not wait for each other

  __device__ void load(int i, Key<A> (&key)[V]) const {
    const Pack<T, V> values = values_[i];
    const Pack<uint16_t, V> ties = ties_[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      key[v] = {A(values.values[v]), ties.values[v]};
    }
  }

  __device__ void join(int i, Key<A> (&key)[V]) const {
    Key<A> other[V];
    load(i, other);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      key[v] = greater(other[v], key[v]);
    }
  }

  __device__ void store(int i, const Key<A> (&key)[V]) {
    Pack<T, V> values;
    Pack<uint16_t, V> ties;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values.values[v] = T(key[v].value());
      ties.values[v] = key[v].tie();
    }
    values_[i] = values;
    ties_[i] = ties;
  }

  template <typename Reader>
  __device__ void load(const Reader& reader) {
    for (int base = threadIdx.x; base < size_; base += kAtOnce * blockDim.x) {
      A value[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), size_ - 1);
        reader.load(i, value[k]);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), size_ - 1);
        Key<A> key[V];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          // Minus zero is zero.
          const A at_least = A(T(value[k][v] > A(kLowest) ? value[k][v] + A(0) : A(kLowest)));
          key[v] = Key<A>::of(at_least, i);
        }
        store(i, key);
      }
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `step` cells later, in place: cells ascend, and those of a
  // round are read before any of them is written. Windows past the border mean nothing: no bin has them.
  __device__ void grow(int step) {
    for (int base = threadIdx.x; base - int(threadIdx.x) < size_; base += kAtOnce * blockDim.x) {
      Key<A> key[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), size_ - 1);
        load(i, key[k]);
        join(min(i + step, size_ - 1), key[k]);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (base + k * int(blockDim.x) < size_) {
          store(base + k * blockDim.x, key[k]);
        }
      }
    }
    __syncthreads();
  }

  Pack<T, V>* values_;
  Pack<uint16_t, V>* ties_;
  int size_, width_, y_ = -1, x_ = 0;
};

}  // namespace detector::roi_pool
