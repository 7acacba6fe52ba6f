// The boxes of a call by image, so that a block which holds a piece of one image finds its boxes.
#pragma once

#include "../../roi_plan.h"
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

// The image of a box, N if it has none.
template <typename A>
struct ImageOf {
  const A* rows;
  int images;
  __device__ int operator()(int r) const {
    const A* box = rows + 5 * int64_t(r);
    return is_valid(box, images) ? int(box[0]) : images;
  }
};

// Orders boxes by group_of(r), from 0 to `groups`. Block n writes those of group n; a thread takes a stretch.
template <typename GroupOf>
__global__ void __launch_bounds__(kOrderThreads)
    roi_order_kernel(GroupOf group_of, int num_boxes, int groups, int* order, int* starts) {
  const int group = blockIdx.x;
  const int stretch = (num_boxes + kOrderThreads - 1) / kOrderThreads;
  const int first = min(int(threadIdx.x) * stretch, num_boxes), end = min(first + stretch, num_boxes);
  int earlier = 0, count = 0;
  for (int r = first; r < end; ++r) {
    const int box_group = group_of(r);
    earlier += box_group < group;
    count += box_group == group;
  }
  const int start = block_reduce(earlier, Sum{});
  int position = start + block_scan(count).before;
  for (int r = first; r < end; ++r) {
    if (group_of(r) == group) {
      order[position++] = r;
    }
  }
  if (threadIdx.x == 0) {
    starts[group] = start;
    if (group == groups) {
      starts[group + 1] = num_boxes;
    }
  }
}

// What many boxes are sorted in, (R,) each.
struct Sorting {
  int *groups, *sorted_groups;
  int* numbers;  // 0, 1, ...
};

template <typename GroupOf>
__global__ void __launch_bounds__(kOrderThreads)
    roi_groups_kernel(GroupOf group_of, int num_boxes, Sorting sorting) {
  const int r = blockIdx.x * kOrderThreads + threadIdx.x;
  if (r < num_boxes) {
    sorting.groups[r] = group_of(r);
    sorting.numbers[r] = r;
  }
}

// In order.cu.
void sort_boxes(const Sorting& sorting, int num_boxes, int groups, int* order, int* starts,
                const Tensor& like, cudaStream_t stream);

// order: (R,), starts: (groups + 2,); both ways give the same.
template <typename GroupOf>
void order_boxes(const char* op, const GroupOf& group_of, int64_t num_boxes, int64_t groups, int* order,
                 int* starts, const Tensor& like) {
  const cudaStream_t stream = current_stream(like);
  if (Order(plan(op, kOrderTable, num_boxes)) == Order::kCount) {
    launch_kernel(roi_order_kernel<GroupOf>, groups + 1, kOrderThreads, 0, stream, group_of, int(num_boxes),
                  int(groups), order, starts);
    return;
  }
  const Tensor scratch = allocate(like, {3, num_boxes}, ScalarType::Int);
  int* const first = scratch.mutable_data_ptr<int>();
  const Sorting sorting{first, first + num_boxes, first + 2 * num_boxes};
  launch_kernel(roi_groups_kernel<GroupOf>, blocks_for(num_boxes, kOrderThreads), kOrderThreads, 0, stream,
                group_of, int(num_boxes), sorting);
  sort_boxes(sorting, int(num_boxes), int(groups), order, starts, like, stream);
}

// Holds the tensors that BoxesByImage points into.
template <typename A>
class OrderedBoxes {
 public:
  OrderedBoxes(const char* op, const Tensor& boxes, const Sizes& sizes)
      : rows_(as_contiguous(boxes)),
        order_(allocate(boxes, {sizes.boxes}, ScalarType::Int)),
        starts_(allocate(boxes, {sizes.images + 2}, ScalarType::Int)) {
    const ImageOf<A> image_of{rows_.const_data_ptr<A>(), int(sizes.images)};
    order_boxes(op, image_of, sizes.boxes, sizes.images, order_.mutable_data_ptr<int>(),
                starts_.mutable_data_ptr<int>(), boxes);
  }

  BoxesByImage<A> view() const {
    return {rows_.const_data_ptr<A>(), order_.const_data_ptr<int>(), starts_.const_data_ptr<int>()};
  }

 private:
  Tensor rows_, order_, starts_;
};

}  // namespace detector::roi
