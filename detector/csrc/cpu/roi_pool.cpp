// RoI pooling on the CPU. Forward: a thread takes boxes, and compares the channels of a cell side by side.
// Backward: a thread takes channels and walks all boxes in order, so the bits never depend on the number of
// threads.
#include "../roi_pool.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "multiversion.h"
#include "roi_layout.h"

namespace detector::roi_pool {
namespace {

using roi::kChannels;
using roi::Sizes;

// The maxima of `count` channels over rows and columns, and where each was found first.
template <typename A>
DETECTOR_MULTIVERSION void pool_bin(const A* cells, int64_t row_stride, int64_t column_stride, Span rows,
                                    Span columns, int64_t width, int64_t count, A* __restrict best,
                                    int32_t* __restrict where) {
  const A start = rows.empty() || columns.empty() ? A(0) : A(kLowest);
  for (int64_t c = 0; c < count; ++c) {
    best[c] = start;
    where[c] = -1;
  }
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    for (int64_t x = columns.begin; x < columns.end; ++x) {
      const A* __restrict cell = cells + y * row_stride + x * column_stride;
      const int32_t index = int32_t(y * width + x);
      for (int64_t c = 0; c < count; ++c) {
        const bool more = cell[c] > best[c];
        best[c] = more ? cell[c] : best[c];
        where[c] = more ? index : where[c];
      }
    }
  }
}

template <typename T, typename A>
void pool_boxes(const roi::Cells<A>& cells, const A* boxes, A scale, const Sizes& sizes, bool channels_last,
                int64_t first_box, int64_t end_box, T* output, int32_t* argmax) {
  const int64_t bins = sizes.bins(), channels = sizes.channels;
  std::vector<A> best(bins * kChannels);
  for (int64_t r = first_box; r < end_box; ++r) {
    const PooledBox<A> box(boxes + 5 * r, scale, sizes.pooled_height, sizes.pooled_width);
    const A* image = cells.image(int64_t(boxes[5 * r]));
    for (int64_t first = 0; first < channels; first += kChannels) {
      const int64_t end = std::min(first + kChannels, channels), count = end - first;
      for (int64_t bin = 0; bin < bins; ++bin) {
        const Span rows = box.rows(bin / sizes.pooled_width, sizes.height);
        const Span columns = box.columns(bin % sizes.pooled_width, sizes.width);
        pool_bin(image + first, cells.row_stride, cells.column_stride, rows, columns, sizes.width, count,
                 best.data() + bin * count, argmax + (r * bins + bin) * channels + first);
      }
      roi::store_channels(best.data(), bins, first, end, channels, channels_last,
                          output + r * bins * channels);
    }
  }
}

// Adds the gradients of channels first..end to their cells; the channels are a stride apart in both.
template <typename T, typename A>
void add_channels(const roi::Gradient<T>& grad, const int32_t* argmax, const A* boxes, const Sizes& sizes,
                  int64_t first, int64_t end, int64_t image_stride, int64_t cell_stride,
                  int64_t channel_stride, A* output) {
  const int64_t bins = sizes.bins(), cells = sizes.cells(), channels = sizes.channels, count = end - first;
  std::vector<A> values(bins * count);
  for (int64_t r = 0; r < sizes.boxes; ++r) {
    grad.load(r, sizes, first, end, values.data());
    A* image = output + int64_t(boxes[5 * r]) * image_stride;
    for (int64_t bin = 0; bin < bins; ++bin) {
      const int32_t* where = argmax + (r * bins + bin) * channels + first;
      for (int64_t c = 0; c < count; ++c) {
        if (where[c] >= 0 && where[c] < cells) {
          image[where[c] * cell_stride + (first + c) * channel_stride] += values[bin * count + c];
        }
      }
    }
  }
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                                   int64_t pooled_width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  roi::check_values(op, boxes, sizes);
  const Tensor rows = torch::stable::contiguous(boxes);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  const Tensor argmax = torch::stable::new_empty(
      input, {sizes.boxes, pooled_height, pooled_width, sizes.channels}, ScalarType::Int);
  dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    const auto cells = roi::cells_of<T>(input, sizes);
    parallel_for(sizes.boxes, 1, [&](int64_t first, int64_t last) {
      pool_boxes(cells, static_cast<const A*>(rows.const_data_ptr()), A(spatial_scale), sizes, channels_last,
                 first, last, static_cast<T*>(output.mutable_data_ptr()),
                 static_cast<int32_t*>(argmax.mutable_data_ptr()));
    });
  });
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, spatial_scale);
  check_argmax(op, argmax, grad);
  roi::check_values(op, boxes, sizes);
  const Tensor rows = torch::stable::contiguous(boxes), where = torch::stable::contiguous(argmax);
  const int64_t channels = sizes.channels;
  const auto shape = channels_last ? std::vector<int64_t>{images, height, width, channels}
                                   : std::vector<int64_t>{images, channels, height, width};
  const Tensor sums = torch::stable::new_zeros(grad, shape, accumulate_type(grad.scalar_type()));
  dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulate<T>;
    const roi::Gradient<T> gradient(grad);
    const int64_t cell_stride = channels_last ? channels : 1;
    const int64_t channel_stride = channels_last ? 1 : sizes.cells();
    constexpr int64_t part = 16;  // channels of a cache line
    parallel_for((channels + part - 1) / part, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        add_channels(gradient, static_cast<const int32_t*>(where.const_data_ptr()),
                     static_cast<const A*>(rows.const_data_ptr()), sizes, i * part,
                     std::min((i + 1) * part, channels), channels * sizes.cells(), cell_stride,
                     channel_stride, static_cast<A*>(sums.mutable_data_ptr()));
      }
    });
  });
  return torch::stable::to(sums, grad.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("roi_pool_forward", TORCH_BOX(&forward));
  m.impl("roi_pool_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_pool
