// RoI align of rotated boxes on a GPU. Forward: a thread computes one pooled value. Backward: a warp owns a
// cell and some channels, and gathers what each box adds to it, in order: no atomics, so the gradient is
// reproducible.
#include <torch/csrc/stable/library.h>

#include "../roi_align_rotated.h"
#include "launch.cuh"
#include "reduce.cuh"

namespace detector::roi_align_rotated {
namespace {

constexpr int kThreads = 256;
constexpr int kChannels = 4;  // of a lane in the backward pass

template <typename A>
__global__ void __launch_bounds__(kThreads) forward_kernel(const A* input, const A* boxes, A scale, int ratio,
                                                           Sizes sizes, int64_t count, A* output) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t channel = i % sizes.channels, bin = i / sizes.channels;
    const int pw = int(bin % sizes.pooled_width), ph = int(bin / sizes.pooled_width % sizes.pooled_height);
    const A* values = boxes + bin / sizes.pooled_width / sizes.pooled_height * 6;
    A sum = 0;
    if (is_valid(values, sizes.images)) {
      const Box<A> box(values, scale, sizes, ratio);
      const A* image = input + box.image * sizes.height * sizes.width * sizes.channels + channel;
      box.samples(ph, pw, sizes, [&](const Sample<A>& y, const Sample<A>& x) {
        const A* low = image + y.low * sizes.width * sizes.channels;
        const A* high = image + y.high * sizes.width * sizes.channels;
        const int64_t left = x.low * sizes.channels, right = x.high * sizes.channels;
        sum += y.low_weight * (x.low_weight * low[left] + x.high_weight * low[right]) +
               y.high_weight * (x.low_weight * high[left] + x.high_weight * high[right]);
      });
      sum /= box.count();
    }
    output[i] = sum;
  }
}

// The weight of a cell in a sample of one axis; at the end of an axis both neighbors are the same cell.
template <typename A>
__device__ A weight_of(const Sample<A>& sample, int cell) {
  return (sample.low == cell ? sample.low_weight : A(0)) + (sample.high == cell ? sample.high_weight : A(0));
}

template <typename A>
__global__ void __launch_bounds__(kThreads) backward_kernel(const A* grad, const A* boxes, A scale, int ratio,
                                                            Sizes sizes, int64_t warps, A* output) {
  const int64_t groups = (sizes.channels + kWarp * kChannels - 1) / (kWarp * kChannels);
  const int64_t step = int64_t(gridDim.x) * (kThreads / kWarp);
  for (int64_t i = int64_t(blockIdx.x) * (kThreads / kWarp) + warp_of_thread(); i < warps; i += step) {
    const int64_t cell = i / groups, first = i % groups * kWarp * kChannels + lane_of_thread();
    const int column = int(cell % sizes.width), row = int(cell / sizes.width % sizes.height);
    const int64_t image = cell / sizes.width / sizes.height;
    A sums[kChannels] = {};
    for (int64_t base = 0; base < sizes.boxes; base += kWarp) {
      const int64_t r = min(base + lane_of_thread(), sizes.boxes - 1);
      bool near = false;
      if (is_valid(boxes + 6 * r, sizes.images) && int64_t(boxes[6 * r]) == image) {
        const Box<A> box(boxes + 6 * r, scale, sizes, ratio);
        const Point<A> at = box.box.in_box(column, row);
        near = std::abs(at.x) <= box.box.width / 2 + A(2) && std::abs(at.y) <= box.box.height / 2 + A(2);
      }
      unsigned hits = __ballot_sync(0xffffffffu, near && base + lane_of_thread() < sizes.boxes);
      for (; hits != 0; hits &= hits - 1) {
        const int64_t hit = base + __ffs(hits) - 1;
        const Box<A> box(boxes + 6 * hit, scale, sizes, ratio);
        const Point<A> at = box.box.in_box(column, row);
        constexpr A reach = 1.5;  // more than the diagonal of a cell
        const int end_y = box.y.end_bin(at.y, reach), end_x = box.x.end_bin(at.x, reach);
        for (int ph = box.y.first_bin(at.y, reach); ph < end_y; ++ph) {
          for (int pw = box.x.first_bin(at.x, reach); pw < end_x; ++pw) {
            A weight = 0;
            box.samples(ph, pw, A(column), A(row), A(1), A(1), sizes,
                        [&](const Sample<A>& y, const Sample<A>& x) {
                          weight += weight_of(y, row) * weight_of(x, column);
                        });
            const int64_t bin = (hit * sizes.pooled_height + ph) * sizes.pooled_width + pw;
            const A* from = grad + bin * sizes.channels + first;
            for (int c = 0; c < kChannels && weight != A(0); ++c) {
              if (first + c * kWarp < sizes.channels) {
                sums[c] += weight / box.count() * from[c * kWarp];
              }
            }
          }
        }
      }
    }
    for (int c = 0; c < kChannels; ++c) {
      if (first + c * kWarp < sizes.channels) {
        output[cell * sizes.channels + first + c * kWarp] = sums[c];
      }
    }
  }
}

template <typename A>
void check_on_request(const char* op, const Tensor& boxes, const Sizes& sizes) {
  if (validates_values(boxes)) {
    const Tensor host = on_host(boxes);
    check_values(op, host.const_data_ptr<A>(), sizes);
  }
}

Tensor forward(const Tensor& any_input, const Tensor& any_boxes, int64_t pooled_height, int64_t pooled_width,
               double spatial_scale, int64_t sampling_ratio) {
  constexpr const char* op = "roi_align_rotated";
  const Sizes sizes = forward_sizes(any_input, any_boxes, pooled_height, pooled_width, spatial_scale);
  const int ratio = roi_align::checked_ratio(op, sampling_ratio);
  const auto guard = device_guard(any_input);
  const Tensor input = as_contiguous(any_input), boxes = as_contiguous(any_boxes);
  const Tensor output = allocate(input, {sizes.boxes, pooled_height, pooled_width, sizes.channels});
  dispatch_float_or_double(op, "input", input.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    check_on_request<A>(op, boxes, sizes);
    if (output.numel() > 0) {
      launch_kernel(forward_kernel<A>, blocks_for(output.numel(), kThreads), kThreads, 0,
                    current_stream(input), input.const_data_ptr<A>(), boxes.const_data_ptr<A>(),
                    A(spatial_scale), ratio, sizes, output.numel(), output.mutable_data_ptr<A>());
    }
  });
  return output;
}

Tensor backward(const Tensor& any_grad, const Tensor& any_boxes, int64_t images, int64_t height,
                int64_t width, double spatial_scale, int64_t sampling_ratio) {
  constexpr const char* op = "roi_align_rotated_backward";
  const Sizes sizes = backward_sizes(any_grad, any_boxes, images, height, width, spatial_scale);
  const int ratio = roi_align::checked_ratio(op, sampling_ratio);
  const auto guard = device_guard(any_grad);
  const Tensor grad = as_contiguous(any_grad), boxes = as_contiguous(any_boxes);
  const Tensor output = allocate(grad, {images, height, width, sizes.channels});
  dispatch_float_or_double(op, "grad", grad.scalar_type(), [&](auto zero) {
    using A = decltype(zero);
    check_on_request<A>(op, boxes, sizes);
    if (output.numel() > 0) {
      const int64_t warps = images * height * width * ceil_div(sizes.channels, kWarp * kChannels);
      launch_kernel(backward_kernel<A>, blocks_for(warps * kWarp, kThreads), kThreads, 0,
                    current_stream(grad), grad.const_data_ptr<A>(), boxes.const_data_ptr<A>(),
                    A(spatial_scale), ratio, sizes, warps, output.mutable_data_ptr<A>());
    }
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_align_rotated_forward", TORCH_BOX(&forward));
  m.impl("roi_align_rotated_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_align_rotated
