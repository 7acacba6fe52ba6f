// Many boxes by image, or by image and class: cub's radix sort. It is stable, so that the boxes of a group
// keep the order of the call.
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/thread/thread_search.cuh>

#include "boxes.cuh"

namespace detector::roi {
namespace {

// starts: (groups + 2,)
__global__ void __launch_bounds__(kOrderThreads)
    roi_starts_kernel(const int* sorted_groups, int num_boxes, int groups, int* starts) {
  const int group = blockIdx.x * kOrderThreads + threadIdx.x;
  if (group < groups + 2) {
    starts[group] = cub::LowerBound(sorted_groups, num_boxes, group);
  }
}

}  // namespace

void sort_boxes(const Sorting& sorting, int num_boxes, int groups, int* order, int* starts,
                const Tensor& like, cudaStream_t stream) {
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    STD_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, sorting.groups, sorting.sorted_groups,
                                                   sorting.numbers, order, num_boxes, 0,
                                                   std::bit_width(unsigned(groups)), stream));
  };
  sort(nullptr);  // tells the bytes
  const Tensor scratch = allocate(like, {int64_t(bytes)}, ScalarType::Byte);
  sort(scratch.mutable_data_ptr());
  launch_kernel(roi_starts_kernel, blocks_for(groups + 2, kOrderThreads), kOrderThreads, 0, stream,
                sorting.sorted_groups, num_boxes, groups, starts);
}

}  // namespace detector::roi
