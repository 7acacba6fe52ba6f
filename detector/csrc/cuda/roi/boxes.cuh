// The boxes of a call by image, so that a block which holds a piece of one image finds its boxes.
#pragma once

#include "../../roi.h"
#include "../launch.cuh"
#include "../reduce.cuh"

namespace detector::roi {

// In the order of the call within an image. Impossible boxes come last, as those of image N.
template <typename A>
struct BoxesByImage {
  const A* rows;      // (R, 5)
  const int* order;   // (R,)
  const int* starts;  // (N + 2,) into order

  __device__ const A* row(int position) const { return rows + 5 * int64_t(order[position]); }
};

constexpr int kOrderThreads = kWarp * kWarp;

// Block n writes the boxes of image n; a thread takes a stretch of boxes.
template <typename A>
__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const A* rows, int num_boxes, int num_images, int* order, int* starts) {
  const int image = blockIdx.x;
  const int stretch = (num_boxes + kOrderThreads - 1) / kOrderThreads;
  const int first = min(int(threadIdx.x) * stretch, num_boxes), end = min(first + stretch, num_boxes);
  const auto image_of = [&](int r) {
    const A* box = rows + 5 * int64_t(r);
    return is_valid(box, num_images) ? int(box[0]) : num_images;
  };
  int earlier = 0, mine = 0;
  for (int r = first; r < end; ++r) {
    const int of_box = image_of(r);
    earlier += of_box < image;
    mine += of_box == image;
  }
  const int start = block_reduce(earlier, Sum{});
  int before = mine;  // of this thread and those before it
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int lower = __shfl_up_sync(0xffffffffu, before, offset);
    before += lane_of_thread() >= offset ? lower : 0;
  }
  __shared__ int of_warp[kWarp];
  if (lane_of_thread() == kWarp - 1) {
    of_warp[warp_of_thread()] = before;
  }
  __syncthreads();
  int position = start + before - mine;
  for (int warp = 0; warp < warp_of_thread(); ++warp) {
    position += of_warp[warp];
  }
  for (int r = first; r < end; ++r) {
    if (image_of(r) == image) {
      order[position++] = r;
    }
  }
  if (threadIdx.x == 0) {
    starts[image] = start;
    if (image == num_images) {
      starts[image + 1] = num_boxes;
    }
  }
}

// Holds the tensors that BoxesByImage points into.
template <typename A>
class OrderedBoxes {
 public:
  OrderedBoxes(const Tensor& boxes, const Sizes& sizes)
      : rows_(torch::stable::contiguous(boxes)),
        order_(torch::stable::new_empty(boxes, {sizes.boxes}, ScalarType::Int)),
        starts_(torch::stable::new_empty(boxes, {sizes.images + 2}, ScalarType::Int)) {
    order_kernel<<<sizes.images + 1, kOrderThreads, 0, current_stream(boxes)>>>(
        static_cast<const A*>(rows_.const_data_ptr()), int(sizes.boxes), int(sizes.images),
        static_cast<int*>(order_.mutable_data_ptr()), static_cast<int*>(starts_.mutable_data_ptr()));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }

  BoxesByImage<A> view() const {
    return {static_cast<const A*>(rows_.const_data_ptr()), static_cast<const int*>(order_.const_data_ptr()),
            static_cast<const int*>(starts_.const_data_ptr())};
  }

 private:
  Tensor rows_, order_, starts_;
};

}  // namespace detector::roi
