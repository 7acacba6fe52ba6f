// RoI pooling on the CPU. Forward: a thread takes boxes, and compares the channels of a cell side by side.
// Backward: a thread takes channels and walks all boxes in order, so the bits never depend on the number of
// threads.
#include "../roi_pool.h"

#include <torch/csrc/stable/library.h>

#include <cstring>
#include <vector>

#include "multiversion.h"
#include "roi_layout.h"

namespace detector::roi_pool {
namespace {

using roi::Sizes;

// The cells of a bin, by the first channel of the image.
template <typename A>
struct Bin {
  const A* cells;
  int64_t row_stride, column_stride, width;
  Span rows, columns;
};

// The maxima of neighboring channels, and where each was found first: `Vectors` times 16 bytes, which every
// processor has; the compiler does not turn the plain loop into vectors, and longer ones into no vectors.
template <int Vectors, typename A>
inline __attribute__((always_inline)) void pool_vectors(const Bin<A>& bin, A* best, int32_t* where) {
  using Index = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
  constexpr int W = 16 / sizeof(A);
  typedef A Values __attribute__((vector_size(16)));
  typedef Index Indices __attribute__((vector_size(16)));
  Values most[Vectors];
  Indices at[Vectors];
  for (int v = 0; v < Vectors; ++v) {
    most[v] = Values{} + (bin.rows.empty() || bin.columns.empty() ? A(0) : A(kLowest));
    at[v] = Indices{} - 1;
  }
  for (int64_t y = bin.rows.begin; y < bin.rows.end; ++y) {
    const A* cell = bin.cells + y * bin.row_stride + bin.columns.begin * bin.column_stride;
    for (int64_t x = bin.columns.begin; x < bin.columns.end; ++x, cell += bin.column_stride) {
      const Indices index = Indices{} + Index(y * bin.width + x);
      for (int v = 0; v < Vectors; ++v) {
        Values value;
        std::memcpy(&value, cell + v * W, sizeof(value));
        const Indices more = value > most[v];
        most[v] = more ? value : most[v];
        at[v] = more ? index : at[v];
      }
    }
  }
  for (int c = 0; c < Vectors * W; ++c) {
    best[c] = most[c / W][c % W];
    where[c] = int32_t(at[c / W][c % W]);
  }
}

template <typename A>
void pool_channel(const Bin<A>& bin, A* best, int32_t* where) {
  A most = bin.rows.empty() || bin.columns.empty() ? A(0) : A(kLowest);
  int32_t at = -1;
  for (int64_t y = bin.rows.begin; y < bin.rows.end; ++y) {
    for (int64_t x = bin.columns.begin; x < bin.columns.end; ++x) {
      const A value = bin.cells[y * bin.row_stride + x * bin.column_stride];
      at = value > most ? int32_t(y * bin.width + x) : at;
      most = value > most ? value : most;
    }
  }
  *best = most;
  *where = at;
}

template <typename A>
DETECTOR_MULTIVERSION void pool_bin(Bin<A> bin, int64_t count, A* best, int32_t* where) {
  constexpr int W = 16 / sizeof(A);
  const A* cells = bin.cells;
  int64_t c = 0;
  for (; c + 4 * W <= count; c += 4 * W) {
    bin.cells = cells + c;
    pool_vectors<4>(bin, best + c, where + c);
  }
  for (; c + W <= count; c += W) {
    bin.cells = cells + c;
    pool_vectors<1>(bin, best + c, where + c);
  }
  for (; c < count; ++c) {
    bin.cells = cells + c;
    pool_channel(bin, best + c, where + c);
  }
}

template <typename T, typename A>
void pool_boxes(const roi::Cells<A>& cells, const A* boxes, A scale, const Sizes& sizes, int64_t first_box,
                int64_t end_box, T* output, int32_t* argmax) {
  const int64_t bins = sizes.bins(), channels = sizes.channels;
  std::vector<A> best(roi::stretch_values(sizes));
  std::vector<int32_t> where(roi::stretch_values(sizes));
  for (int64_t r = first_box; r < end_box; ++r) {
    const PooledBox<A> box(boxes + 5 * r, scale, sizes.pooled_height, sizes.pooled_width);
    const A* image = cells.image(int64_t(boxes[5 * r]));
    roi::for_each_stretch(sizes, [&](roi::Stretch some_bins, roi::Stretch some_channels) {
      const int64_t count = some_channels.size();
      for (int64_t bin = some_bins.begin; bin < some_bins.end; ++bin) {
        const Span rows = box.rows(bin / sizes.pooled_width, sizes.height);
        const Span columns = box.columns(bin % sizes.pooled_width, sizes.width);
        const int64_t at = (bin - some_bins.begin) * count;
        pool_bin(Bin<A>{image + some_channels.begin, cells.row_stride, cells.column_stride, sizes.width, rows,
                        columns},
                 count, best.data() + at, where.data() + at);
      }
      roi::store_channels(best.data(), some_bins, bins, some_channels, channels, false,
                          output + r * bins * channels);
      roi::store_channels(where.data(), some_bins, bins, some_channels, channels, false,
                          argmax + r * bins * channels);
    });
  }
}

// Adds the gradients of channels first..end to their cells, in order of boxes and bins.
template <typename T, typename A>
void add_channels(const T* grad, const int32_t* argmax, const A* boxes, const Sizes& sizes, int64_t first,
                  int64_t end, A* output) {
  const int64_t bins = sizes.bins(), channels = sizes.channels;
  const uint32_t cells = uint32_t(sizes.cells());
  for (int64_t r = 0; r < sizes.boxes; ++r, grad += bins * channels, argmax += bins * channels) {
    A* image = output + int64_t(boxes[5 * r]) * cells * channels;
    for (int64_t c = first; c < end; ++c) {
      for (int64_t i = c * bins; i < (c + 1) * bins; ++i) {
        if (uint32_t(argmax[i]) < cells) {  // -1 is none
          image[c * cells + argmax[i]] += A(grad[i]);
        }
      }
    }
  }
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                                   int64_t pooled_width, double spatial_scale) {
  constexpr const char* op = "roi_pool";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  const Tensor rows = as_contiguous(boxes);
  const Tensor output = allocate(input, {sizes.boxes, sizes.channels, pooled_height, pooled_width});
  const Tensor argmax =
      allocate(input, {sizes.boxes, sizes.channels, pooled_height, pooled_width}, ScalarType::Int);
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    const auto cells = roi::cells_of<T>(input, sizes);
    parallel_for(sizes.boxes, 1, [&](int64_t first, int64_t last) {
      pool_boxes(cells, rows.const_data_ptr<A>(), A(spatial_scale), sizes, first, last,
                 output.mutable_data_ptr<T>(), argmax.mutable_data_ptr<int32_t>());
    });
  });
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, spatial_scale, false);
  check_argument(op, "argmax", argmax, grad.sizes(), ScalarType::Int, "grad", grad);
  const Tensor rows = as_contiguous(boxes), where = as_contiguous(argmax), dense = as_contiguous(grad);
  const int64_t channels = sizes.channels;
  Tensor sums = allocate(grad, {images, channels, height, width}, accumulate_type(grad.scalar_type()));
  torch::stable::zero_(sums);
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    const auto* value = dense.const_data_ptr<T>();
    const auto* cell = where.const_data_ptr<int32_t>();
    const auto* box = rows.const_data_ptr<A>();
    auto* output = sums.mutable_data_ptr<A>();
    parallel_for(channels, 16, [&](int64_t first, int64_t last) {  // 16 channels make a cache line
      add_channels(value, cell, box, sizes, first, last, output);
    });
  });
  return as_type(sums, grad.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("roi_pool_forward", TORCH_BOX(&forward));
  m.impl("roi_pool_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_pool
