// RoI align of rotated boxes on a GPU, after a kernel that works out what all samples of a box share.
// Forward: a thread computes one pooled value. Backward: a warp owns a cell and some channels, and gathers
// what each box adds to it, in order: no atomics, so the gradient is reproducible.
#include <torch/csrc/stable/library.h>

#include <utility>

#include "../roi_align_rotated.h"
#include "launch.cuh"
#include "reduce.cuh"

namespace detector::roi_align_rotated {
namespace {

constexpr int kThreads = 256;
constexpr int kChannels = 8;  // of a lane in the backward pass
constexpr int64_t kNoImage = -1;

// Boxes as both passes read them: sine, cosine and bins once for each. A bad one is of no image.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    roi_align_rotated_boxes_kernel(const A* values, A scale, int ratio, Sizes sizes, Box<A>* boxes) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t r = int64_t(blockIdx.x) * kThreads + threadIdx.x; r < sizes.boxes; r += step) {
    Box<A> box(values + 6 * r, scale, sizes, ratio);
    box.image = is_valid(values + 6 * r, sizes.images) ? box.image : kNoImage;
    boxes[r] = box;
  }
}

// boxes: (R,), input: (N, H, W, C), output: (R, PH, PW, C), of `count` elements.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    roi_align_rotated_forward_kernel(const A* input, const Box<A>* boxes, Sizes sizes, int64_t count,
                                     A* output) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t channel = i % sizes.channels, bin = i / sizes.channels;
    const int pw = int(bin % sizes.pooled_width), ph = int(bin / sizes.pooled_width % sizes.pooled_height);
    const Box<A> box = boxes[bin / sizes.pooled_width / sizes.pooled_height];
    A sum = 0;
    if (box.image != kNoImage) {
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

// How much of a bin a cell is.
template <typename A>
__device__ A weight_in_bin(const Box<A>& box, int ph, int pw, int row, int column, const Sizes& sizes) {
  A weight = 0;
  box.samples(ph, pw, A(column), A(row), A(1), A(1), sizes, [&](const Sample<A>& y, const Sample<A>& x) {
    weight += weight_of(y, row) * weight_of(x, column);
  });
  return weight / box.count();
}

// grad: (R, PH, PW, C), boxes: (R,), output: (N, H, W, C). The lanes of a warp find the boxes near its cell,
// then the weights of the bins of one of them that are near, and then add up, each for some channels.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    roi_align_rotated_backward_kernel(const A* grad, const Box<A>* boxes, Sizes sizes, int64_t warps,
                                      A* output) {
  constexpr unsigned all_lanes = 0xffffffffu;
  constexpr A reach = 1.5;  // more than the diagonal of a cell
  const int64_t groups = (sizes.channels + kWarp * kChannels - 1) / (kWarp * kChannels);
  const int64_t step = int64_t(gridDim.x) * (kThreads / kWarp);
  const int lane = lane_of_thread();
  for (int64_t i = int64_t(blockIdx.x) * (kThreads / kWarp) + warp_of_thread(); i < warps; i += step) {
    const int64_t cell = i / groups, first = i % groups * kWarp * kChannels + lane;
    const int column = int(cell % sizes.width), row = int(cell / sizes.width % sizes.height);
    const int64_t image = cell / sizes.width / sizes.height;
    A sums[kChannels] = {};
    for (int64_t base = 0; base < sizes.boxes; base += kWarp) {
      bool is_near = false;
      if (base + lane < sizes.boxes && boxes[base + lane].image == image) {
        const RotatedBox<A> box = boxes[base + lane].box;
        const Point<A> at = box.in_box(column, row);
        is_near = std::abs(at.x) <= box.width / 2 + A(2) && std::abs(at.y) <= box.height / 2 + A(2);
      }
      for (unsigned hits = __ballot_sync(all_lanes, is_near); hits != 0; hits &= hits - 1) {
        const int64_t hit = base + __ffs(hits) - 1;
        const Box<A> box = boxes[hit];
        const Point<A> at = box.box.in_box(column, row);
        const int first_y = box.y.first_bin(at.y, reach), first_x = box.x.first_bin(at.x, reach);
        const int rows = max(box.y.end_bin(at.y, reach) - first_y, 0);
        const int columns = max(box.x.end_bin(at.x, reach) - first_x, 0);
        for (int number = 0; number < rows * columns; number += kWarp) {
          const int own = number + lane, ph = first_y + own / columns, pw = first_x + own % columns;
          const int bin = ph * sizes.pooled_width + pw;
          const A weight = own < rows * columns ? weight_in_bin(box, ph, pw, row, column, sizes) : A(0);
          for (unsigned bins = __ballot_sync(all_lanes, weight != A(0)); bins != 0; bins &= bins - 1) {
            const int of_lane = __ffs(bins) - 1;
            const A shared_weight = __shfl_sync(all_lanes, weight, of_lane);
            const int64_t from_bin =
                hit * sizes.pooled_height * sizes.pooled_width + __shfl_sync(all_lanes, bin, of_lane);
            const A* from = grad + from_bin * sizes.channels + first;
#pragma unroll
            for (int c = 0; c < kChannels; ++c) {
              if (first + c * kWarp < sizes.channels) {
                sums[c] += shared_weight * from[c * kWarp];
              }
            }
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      if (first + c * kWarp < sizes.channels) {
        output[cell * sizes.channels + first + c * kWarp] = sums[c];
      }
    }
  }
}

// The boxes as both passes read them; their memory is in the tensor.
template <typename A>
std::pair<Tensor, const Box<A>*> prepared_boxes(const Tensor& boxes, double scale, int ratio,
                                                const Sizes& sizes, cudaStream_t stream) {
  const Tensor memory = allocate(boxes, {sizes.boxes, int64_t(sizeof(Box<A>))}, ScalarType::Byte);
  auto* prepared = static_cast<Box<A>*>(memory.mutable_data_ptr());
  if (sizes.boxes > 0) {
    launch_kernel(roi_align_rotated_boxes_kernel<A>, blocks_for(sizes.boxes, kThreads), kThreads, 0, stream,
                  boxes.const_data_ptr<A>(), A(scale), ratio, sizes, prepared);
  }
  return {memory, prepared};
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
      const cudaStream_t stream = current_stream(input);
      const auto [memory, prepared] = prepared_boxes<A>(boxes, spatial_scale, ratio, sizes, stream);
      launch_kernel(roi_align_rotated_forward_kernel<A>, blocks_for(output.numel(), kThreads), kThreads, 0,
                    stream, input.const_data_ptr<A>(), prepared, sizes, output.numel(),
                    output.mutable_data_ptr<A>());
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
      const cudaStream_t stream = current_stream(grad);
      const auto [memory, prepared] = prepared_boxes<A>(boxes, spatial_scale, ratio, sizes, stream);
      launch_kernel(roi_align_rotated_backward_kernel<A>, blocks_for(warps * kWarp, kThreads), kThreads, 0,
                    stream, grad.const_data_ptr<A>(), prepared, sizes, warps, output.mutable_data_ptr<A>());
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
