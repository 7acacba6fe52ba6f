// Maxima of windows of cells, in shared memory.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"

namespace detector::roi_pool {

// Maxima of windows of 2^y x 2^x cells, cut off at the border of the image, and where they were found first,
// counted in cells from the window's first. Without a value above the lowest float it is that.
template <typename T, int V>
class Windows {
 public:
  using A = Accumulate<T>;

  __device__ Windows(char* shared, int height, int width)
      : values_(reinterpret_cast<Pack<T, V>*>(shared)),
        offsets_(reinterpret_cast<Pack<uint16_t, V>*>(values_ + height * width)),
        height_(height),
        width_(width) {}

  template <typename Reader>
  __device__ void resize(const Reader& reader, int y, int x) {
    __syncthreads();
    if (y != y_ || x < x_) {
      reader.stage(values_, height_);
      clear();
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

  // The maximum of a bin of at least the size of a window.
  __device__ void pool(const Span& rows, const Span& columns, A (&best)[V], int32_t (&where)[V]) const {
    const int height = 1 << y_, width = 1 << x_;
    for (int y = rows.begin; y < rows.end; y += 2 * height) {
      for (int x = columns.begin; x < columns.end; x += 2 * width) {
        pool_four(min(y, rows.end - height), min(y + height, rows.end - height), min(x, columns.end - width),
                  min(x + width, columns.end - width), best, where);
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      where[v] = best[v] == none() ? -1 : where[v];
      best[v] = best[v] == none() ? A(kLowest) : best[v];
    }
  }

  __device__ static A none() { return A(T(kLowest)); }

 private:
  __device__ void clear() {
    for (int i = threadIdx.x; i < height_ * width_; i += blockDim.x) {
      Pack<T, V> pack = values_[i];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        pack.values[v] = A(pack.values[v]) > A(kLowest) ? pack.values[v] : T(kLowest);
      }
      values_[i] = pack;
      offsets_[i] = {};
    }
    __syncthreads();
  }

  // Joins each window with the one that begins `step` cells later, in place: cells ascend, and those of a
  // round are read before any of them is written.
  template <typename HasOther>
  __device__ void grow(int step, const HasOther& has_other) {
    const int cells = height_ * width_;
    for (int base = 0; base < cells; base += blockDim.x) {
      const int i = base + threadIdx.x;
      const bool joins = i + step < cells && has_other(i);
      Pack<T, V> pack, other;
      Pack<uint16_t, V> offset, other_offset;
      if (joins) {
        pack = values_[i];
        other = values_[i + step];
        offset = offsets_[i];
        other_offset = offsets_[i + step];
      }
      __syncthreads();
      if (joins) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const A a = A(pack.values[v]), b = A(other.values[v]);
          const int at = other_offset.values[v] + step;
          const bool takes = b > a || (b == a && at < offset.values[v]);
          pack.values[v] = takes ? other.values[v] : pack.values[v];
          offset.values[v] = takes ? uint16_t(at) : offset.values[v];
        }
        values_[i] = pack;
        offsets_[i] = offset;
      }
    }
    __syncthreads();
  }

  __device__ void pool_four(int top, int bottom, int left, int right, A (&best)[V],
                            int32_t (&where)[V]) const {
    const int cell[4] = {top * width_ + left, top * width_ + right, bottom * width_ + left,
                         bottom * width_ + right};
    A value[4][V], most[V];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Pack<T, V> pack = values_[cell[k]];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        value[k][v] = A(pack.values[v]);
      }
    }
    int32_t at[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      most[v] = max(max(value[0][v], value[1][v]), max(value[2][v], value[3][v]));
      at[v] = std::numeric_limits<int32_t>::max();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Pack<uint16_t, V> offset = offsets_[cell[k]];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        at[v] = value[k][v] == most[v] ? min(at[v], cell[k] + offset.values[v]) : at[v];
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool takes = most[v] > best[v] || (most[v] == best[v] && at[v] < where[v]);
      best[v] = takes ? most[v] : best[v];
      where[v] = takes ? at[v] : where[v];
    }
  }

  Pack<T, V>* values_;
  Pack<uint16_t, V>* offsets_;
  int height_, width_, y_ = -1, x_ = 0;
};

}  // namespace detector::roi_pool
