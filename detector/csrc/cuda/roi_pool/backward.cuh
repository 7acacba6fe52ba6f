// The backward pass of roi_pool. A block owns one channel of an image, or a band of its cells, in shared
// memory, and its threads add the gradients of all bins there in any order: the sums are of integers, so that
// the order leaves no trace.
#pragma once

#include "../roi/gather.cuh"
#include "../sum_parts.cuh"
#include "exact_sums.cuh"

namespace detector::roi_pool {

using roi::Sizes;

constexpr int kItems = 8;  // that a thread has on their way

// The same bin of the same channel of some boxes, as it comes from memory.
template <typename T>
struct Items {
  T grad[kItems];
  int32_t argmax[kItems];
};

// Of each step-th box from `position` to `end`, in `order` if kOrdered; past the end, of the last.
template <typename T, bool kOrdered>
struct Walk {
  const T* grad;  // (R,), box_stride apart
  const int32_t* argmax;
  const int* order;
  int64_t box_stride;
  int position, end, step;

  __device__ Items<T> next() {
    int64_t at[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int number = min(position, end - 1);
      at[k] = (kOrdered ? order[number] : number) * box_stride;
      position += step;
    }
    Items<T> items;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      items.grad[k] = grad[at[k]];
      items.argmax[k] = argmax[at[k]];
    }
    return items;
  }
};

// grad, argmax: (R, C, bins). Boxes of one image need no order: those of no image have no maxima. Of `parts`
// and `output` the one that is not null is written.
template <typename T, bool kOrdered>
__global__ void __launch_bounds__(1024)
    roi_pool_backward_kernel(const T* grad, const int32_t* argmax, roi::BoxesByImage<Accumulate<T>> boxes,
                             Sizes sizes, int chunks, Bands bands, Accumulate<T>* parts, T* output) {
  using A = Accumulate<T>;
  const int band = blockIdx.x % bands.number, first_cell = band * bands.size;
  int rest = blockIdx.x / bands.number;
  const int64_t channel = rest % sizes.channels;
  rest /= sizes.channels;
  const int chunk = rest % chunks, image = rest / chunks;
  const int cells = min(int64_t(bands.size), sizes.cells() - first_cell), bins = sizes.bins();
  const int start = kOrdered ? boxes.starts[image] : 0;
  const int count = kOrdered ? boxes.starts[image + 1] - start : int(sizes.boxes);
  const int first = start + int64_t(count) * chunk / chunks,
            end = start + int64_t(count) * (chunk + 1) / chunks;
  ExactSums<A> sums(cells, (end - first) * int64_t(bins));
  const int at_once = max(int(blockDim.x) / bins, 1);  // boxes
  for (int first_bin = 0; first_bin < bins && first < end; first_bin += blockDim.x) {
    const int bin = first_bin + threadIdx.x % bins, thread_box = threadIdx.x / bins;
    const bool works = bin < bins && thread_box < at_once;
    const int64_t at = channel * bins + min(bin, bins - 1);
    Walk<T, kOrdered> walk{grad + at,          argmax + at, boxes.order, sizes.channels * bins,
                           first + thread_box, end,         at_once};
    Items<T> items = walk.next();
    for (int box = first; box < end; box += at_once * kItems) {
      const Items<T> next = walk.next();  // on their way while others are added
      A value[kItems];
      int cell[kItems];
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const bool exists = works && box + thread_box + k * at_once < end;
        cell[k] = items.argmax[k] - first_cell;
        cell[k] = exists && unsigned(cell[k]) < unsigned(cells) ? cell[k] : sums.nowhere();
        value[k] = exists ? A(items.grad[k]) : A(0);
      }
      sums.add(cell, value);
      items = next;
    }
  }
  __syncthreads();
  const int64_t at =
      ((int64_t(chunk) * sizes.images + image) * sizes.channels + channel) * sizes.cells() + first_cell;
  for (int i = threadIdx.x; i < cells; i += blockDim.x) {
    if (output != nullptr) {
      output[at + i] = T(sums[i]);
    } else {
      parts[at + i] = sums[i];
    }
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, const Sizes& sizes,
                     const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(grad);
  std::optional<roi::OrderedBoxes<A>> ordered;
  if (sizes.images > 1) {
    ordered.emplace("roi_pool", boxes, sizes);
  }
  const Tensor values = as_contiguous(grad), where = as_contiguous(argmax);
  const int64_t cells = sizes.cells();
  const Request request{sizes, sizeof(T), false, current_gpu()};
  plan("roi_pool", kBackwardTable, request);
  const Bands bands = bands_of(request);
  const int chunks = bands.chunks;
  const bool direct = chunks == 1;
  const Tensor parts = direct ? output
                              : allocate(grad, {chunks, sizes.images, sizes.channels, cells},
                                         accumulate_type(grad.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());  // unused where direct
  auto* to = output.mutable_data_ptr<T>();
  launch_kernel(ordered ? roi_pool_backward_kernel<T, true> : roi_pool_backward_kernel<T, false>,
                bands.launch, stream, values.const_data_ptr<T>(), where.const_data_ptr<int32_t>(),
                ordered ? ordered->view() : roi::BoxesByImage<A>{}, sizes, chunks, bands,
                direct ? nullptr : sums, direct ? to : nullptr);
  if (!direct) {
    sum_parts(sums, chunks, sizes.images * sizes.channels * cells, to, stream);
  }
}

}  // namespace detector::roi_pool
