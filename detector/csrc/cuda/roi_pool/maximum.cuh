// One bin of roi_pool, cell after cell: for images that fit no shared memory.
#pragma once

#include "../../roi_pool.h"

namespace detector::roi_pool {

template <typename A>
struct Maximum {
  A scale;

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const roi::Sizes& sizes,
                       A (&best)[V], int32_t (&where)[V]) const {
    const PooledBox<A> box(values, scale, sizes.pooled_height, sizes.pooled_width);
    const Span rows = box.rows(ph, sizes.height), columns = box.columns(pw, sizes.width);
    if (rows.empty() || columns.empty()) {
      return;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = A(kLowest);
    }
    for (int y = rows.begin; y < rows.end; ++y) {
      for (int x = columns.begin; x < columns.end; ++x) {
        A cell[V];
        reader.load(y, x, cell);
        const int32_t index = y * int(sizes.width) + x;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          where[v] = cell[v] > best[v] ? index : where[v];
          best[v] = cell[v] > best[v] ? cell[v] : best[v];
        }
      }
    }
  }
};

}  // namespace detector::roi_pool
