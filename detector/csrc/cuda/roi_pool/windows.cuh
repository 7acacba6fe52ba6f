// Maxima of windows of cells, in shared memory.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"

namespace detector::roi_pool {

// A bin as four windows cover it: the first cell, and how far right and down, in cells of the image, the
// windows begin that end with the bin.
struct alignas(8) Bin {
  uint16_t cell, right, down, exists;
};

// Maxima of windows of 2^y x 2^x cells, cut off at the border of the image, and the cells where they were
// found first. Without a value above the lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  using A = Accumulate<T>;

  __device__ Windows(char* shared, int height, int width)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)),
        cells_(reinterpret_cast<Pack<uint16_t, V>*>(values_ + height * width)),
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
      grow(width_ << y_, [](int) { return true; });
    }
    for (; x_ < x; ++x_) {
      const int side = 1 << x_, last = width_ - side;
      grow(side, [&](int i) { return i % width_ < last; });
    }
  }

  // The maximum of a bin of at least the size of a window; without one the lowest float, of cell -1.
  __device__ void pool(const Bin& bin, A (&best)[V], int32_t (&where)[V]) const {
    const int height = width_ << y_, width = 1 << x_;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = none();
      where[v] = kNowhere;
    }
    for (int y = 0; y < bin.down + height; y += 2 * height) {
      for (int x = 0; x < bin.right + width; x += 2 * width) {
        const int top = bin.cell + min(y, bin.down), bottom = bin.cell + min(y + height, bin.down);
        const int left = min(x, bin.right), right = min(x + width, bin.right);
        pool_four({top + left, top + right, bottom + left, bottom + right}, best, where);
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      where[v] = best[v] == none() ? -1 : where[v];
      best[v] = best[v] == none() ? A(kLowest) : best[v];
    }
  }

 private:
  static constexpr int kAtOnce = 4;  // cells of a thread, whose loads do not wait for each other
  static constexpr int32_t kNowhere = 0x10000;

  struct Four {
    int cell[4];
  };

  __device__ static A none() { return A(T(kLowest)); }

  template <typename Reader>
  __device__ void load(const Reader& reader) {
    for (int base = threadIdx.x; base < size_; base += kAtOnce * blockDim.x) {
      A value[kAtOnce][V];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), size_ - 1);
        reader.load(i / width_, i % width_, value[k]);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = min(base + k * int(blockDim.x), size_ - 1);
        Pack<T, V> pack;
        Pack<uint16_t, V> cell;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          pack.values[v] = T(value[k][v] > A(kLowest) ? value[k][v] : A(kLowest));
          cell.values[v] = i;
        }
        values_[i] = pack;
        cells_[i] = cell;
      }
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `step` cells later, in place: cells ascend, and those of a
  // round are read before any of them is written.
  template <typename HasOther>
  __device__ void grow(int step, const HasOther& has_other) {
    for (int base = threadIdx.x; base - int(threadIdx.x) < size_; base += kAtOnce * blockDim.x) {
      bool joins[kAtOnce];
      Pack<T, V> pack[kAtOnce];
      Pack<uint16_t, V> cell[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = base + k * blockDim.x;
        joins[k] = i + step < size_ && has_other(i);
        if (joins[k]) {
          const Pack<T, V> other = values_[i + step];
          const Pack<uint16_t, V> other_cell = cells_[i + step];
          pack[k] = values_[i];
          cell[k] = cells_[i];
#pragma unroll
          for (int v = 0; v < V; ++v) {
            const A a = A(pack[k].values[v]), b = A(other.values[v]);
            const bool takes = b > a || (b == a && other_cell.values[v] < cell[k].values[v]);
            pack[k].values[v] = takes ? other.values[v] : pack[k].values[v];
            cell[k].values[v] = takes ? other_cell.values[v] : cell[k].values[v];
          }
        }
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (joins[k]) {
          values_[base + k * blockDim.x] = pack[k];
          cells_[base + k * blockDim.x] = cell[k];
        }
      }
    }
    __syncthreads();
  }

  __device__ void pool_four(const Four& four, A (&best)[V], int32_t (&where)[V]) const {
    A value[4][V];
    Pack<uint16_t, V> cell[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Pack<T, V> pack = values_[four.cell[k]];
      cell[k] = cells_[four.cell[k]];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        value[k][v] = A(pack.values[v]);
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const A before = best[v];
      best[v] = max(max(max(value[0][v], value[1][v]), max(value[2][v], value[3][v])), before);
      where[v] = before == best[v] ? where[v] : kNowhere;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        where[v] = value[k][v] == best[v] ? min(where[v], int32_t(cell[k].values[v])) : where[v];
      }
    }
  }

  Pack<T, V>* values_;
  Pack<uint16_t, V>* cells_;
  int size_, width_, y_ = -1, x_ = 0;
};

}  // namespace detector::roi_pool
