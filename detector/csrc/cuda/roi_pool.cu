// RoI pooling on a GPU, without float atomics or host synchronisation.
#include <torch/csrc/stable/library.h>

#include "../roi_pool.h"
#include "roi/gather.cuh"
#include "roi/parts.cuh"

namespace detector::roi_pool {
namespace {

using roi::BoxesByImage;
using roi::Sizes;

template <typename A>
struct Maximum {
  A scale;

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const Sizes& sizes,
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

// The backward pass: a warp owns one channel of an image, or a band of its cells, in shared memory and walks
// the pooled values of the image's boxes in order, 32 at a time, so the order of a sum is always the same.
constexpr int kSteps = 16;  // times 32 values are loaded ahead

// Where the values of a channel lie.
struct Values {
  int64_t box_stride, channel_stride, bin_stride;
};

// Adds value to sums[cell] for each lane with a cell of at least 0. Lanes of one cell first sum up among
// themselves, neighbours by neighbours: small boxes have many.
template <typename A>
__device__ void add_in_order(A* sums, int cell, A value) {
  constexpr unsigned all = 0xffffffffu;
  const unsigned lower = (1u << lane_of_thread()) - 1;
  unsigned same = __match_any_sync(all, cell);
  int turn = __popc(same & lower);
  const bool adds = cell >= 0 && turn == 0;
  same &= ~lower & ~(1u << lane_of_thread());  // those after this lane
  while (__any_sync(all, cell >= 0 && same != 0)) {
    const int next = __ffs(same);
    const A other = __shfl_sync(all, value, next > 0 ? next - 1 : 0);
    value += next > 0 ? other : A(0);
    same &= ~__ballot_sync(all, turn & 1);  // they are in the sum of the one before
    turn >>= 1;
  }
  if (adds) {
    sums[cell] += value;
  }
  __syncwarp();
}

template <typename T>
__global__ void backward_kernel(const T* grad, const int32_t* argmax, Values values,
                                BoxesByImage<Accumulate<T>> boxes, Sizes sizes, int groups, int chunks,
                                roi::Pieces bands, Accumulate<T>* parts) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  const int warps = blockDim.x / kWarp, lane = lane_of_thread(), bins = sizes.bins();
  int rest = blockIdx.x / groups;
  const int64_t channel = int64_t(blockIdx.x % groups) * warps + warp_of_thread();
  const int band = rest % bands.number * bands.size;
  rest /= bands.number;
  const int chunk = rest % chunks, image = rest / chunks;
  if (channel >= sizes.channels) {
    return;
  }
  const int cells = min(int64_t(bands.size), sizes.cells() - band);
  A* sums = reinterpret_cast<A*>(shared) + int64_t(warp_of_thread()) * bands.size;
  for (int i = lane; i < cells; i += kWarp) {
    sums[i] = 0;
  }
  __syncwarp();
  const int start = boxes.starts[image], count = boxes.starts[image + 1] - start;
  const int end = start + int64_t(count) * (chunk + 1) / chunks;
  int position = start + int64_t(count) * chunk / chunks + lane / bins, bin = lane % bins;
  const int step = kWarp / bins, bin_step = kWarp % bins;
  int next_cells[kSteps];
  T next_values[kSteps];
  const auto load = [&] {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      next_cells[k] = -1;
      if (position < end) {
        const int64_t at = boxes.order[position] * values.box_stride + channel * values.channel_stride +
                           bin * values.bin_stride;
        next_cells[k] = argmax[at];
        next_values[k] = grad[at];
      }
      position += step;
      bin += bin_step;
      if (bin >= bins) {
        bin -= bins;
        ++position;
      }
    }
  };
  const int64_t total = (int64_t(end) - (start + int64_t(count) * chunk / chunks)) * bins;
  load();
  for (int64_t done = 0; done < total; done += kSteps * kWarp) {
    int cell[kSteps];
    A value[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const bool inside = next_cells[k] >= band && next_cells[k] < band + cells;
      cell[k] = inside ? next_cells[k] - band : -1;
      value[k] = inside ? A(next_values[k]) : A(0);
    }
    load();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      add_in_order(sums, cell[k], value[k]);
    }
  }
  A* to = parts + ((int64_t(chunk) * sizes.images + image) * sizes.channels + channel) * sizes.cells() + band;
  for (int i = lane; i < cells; i += kWarp) {
    to[i] = sums[i];
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, const Sizes& sizes,
                     bool channels_last, const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(grad);
  const roi::OrderedBoxes<A> ordered(boxes, sizes);
  const Tensor dense = torch::stable::contiguous(grad), where = torch::stable::contiguous(argmax);
  const int64_t channels = sizes.channels, cells = sizes.cells();
  const int64_t of_box = sizes.bins() * channels;
  const Values values = channels_last ? Values{of_box, 1, channels} : Values{of_box, sizes.bins(), 1};
  const int64_t most = roi::device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const roi::Pieces bands(cells, most / int64_t(sizeof(A)));
  const int64_t of_warp = bands.size * sizeof(A);
  // Neighbouring channels share the sectors of a channels-last tensor, so their warps go together.
  const int warps = channels_last ? std::min<int64_t>({most / of_warp, 8, channels}) : 1;
  const int64_t groups = ceil_div(channels, warps);
  const int64_t shared = warps * of_warp;
  const int64_t slots = roi::device_attribute(cudaDevAttrMultiProcessorCount) *
                        std::min<int64_t>(32, std::max<int64_t>(1, most / (shared + 1024)));
  const int chunks = roi::chunks_for(groups * bands.number * sizes.images, slots);
  const bool direct = chunks == 1 && !channels_last && std::is_same_v<T, A>;
  const Tensor parts = direct ? output
                              : torch::stable::new_empty(grad, {chunks, sizes.images, channels, cells},
                                                         accumulate_type(grad.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());
  STD_CUDA_CHECK(
      cudaFuncSetAttribute(backward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  backward_kernel<T><<<groups * bands.number * chunks * sizes.images, warps * kWarp, shared, stream>>>(
      static_cast<const T*>(dense.const_data_ptr()), static_cast<const int32_t*>(where.const_data_ptr()),
      values, ordered.view(), sizes, int(groups), chunks, bands, sums);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  auto* to = static_cast<T*>(output.mutable_data_ptr());
  const int64_t of_image = channels * cells;
  if (channels_last) {
    roi::transpose(
        roi::Strided<A>{sums, sizes.images * of_image, of_image, cells, 1, chunks, channels, cells},
        sizes.images, to, stream);
  } else if (!direct) {
    roi::sum_parts(sums, chunks, sizes.images * of_image, to, stream);
  }
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& boxes, int64_t pooled_height,
                                   int64_t pooled_width, double spatial_scale, bool channels_last) {
  constexpr const char* op = "roi_pool";
  const Sizes sizes = roi::check_forward(op, input, boxes, pooled_height, pooled_width, spatial_scale);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(input);
  const Tensor output =
      roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width, channels_last);
  const Tensor argmax = roi::new_output(input, sizes.boxes, sizes.channels, pooled_height, pooled_width,
                                        channels_last, ScalarType::Int);
  if (sizes.boxes > 0 && sizes.channels > 0) {
    dispatch_floating(op, "input", input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using A = Accumulate<T>;
      roi::gather<T>(input, boxes, sizes, Maximum<A>{A(spatial_scale)},
                     {static_cast<T*>(output.mutable_data_ptr()),
                      static_cast<int32_t*>(argmax.mutable_data_ptr()), channels_last});
    });
  }
  return {output, argmax};
}

Tensor backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, int64_t images, int64_t height,
                int64_t width, bool channels_last) {
  constexpr const char* op = "roi_pool_backward";
  const Sizes sizes = roi::check_backward(op, grad, boxes, images, height, width, channels_last);
  check_argmax(op, argmax, grad);
  if (validate_values()) {
    roi::check_values(op, on_host(boxes), sizes);
  }
  const auto guard = device_guard(grad);
  const Tensor output = roi::new_output(grad, images, sizes.channels, height, width, channels_last);
  if (images > 0 && sizes.channels > 0) {
    dispatch_floating(op, "grad", grad.scalar_type(), [&](auto zero) {
      launch_backward<decltype(zero)>(grad, argmax, boxes, sizes, channels_last, output);
    });
  }
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_pool_forward", TORCH_BOX(&forward));
  m.impl("roi_pool_backward", TORCH_BOX(&backward));
}

}  // namespace detector::roi_pool
