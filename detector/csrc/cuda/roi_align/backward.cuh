// The backward pass of roi_align. A block owns a tile of cells of an image and some channels: a warp a part
// of the tile, in registers, and a lane V channels. It walks the boxes that touch the tile in order, so no
// two threads add to one place. A bin's gradient is spread over rows first, then over columns.
#pragma once

#include "../roi/gather.cuh"
#include "../roi/parts.cuh"
#include "walk.cuh"

namespace detector::roi_align {

// The sums of a warp's cells.
template <typename T, int V>
struct Part {
  using A = Accumulate<T>;
  A sums[kRows][kColumns][V];
  int row, column;  // which part

  // Weights of zero make an infinite gradient NaN: kCareful omits them.
  template <bool kCareful>
  __device__ static void add_to(A (&sum)[V], A weight, const A (&value)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] += kCareful && weight == A(0) ? A(0) : weight * value[v];
    }
  }

  template <bool kCareful>
  __device__ static void spread(const Pack<T, V>& pack, const Pack<A, kRows> weights, A (&rows)[kRows][V]) {
    A value[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      value[v] = A(pack.values[v]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add_to<kCareful>(rows[r], weights.values[r], value);
    }
  }

  // grad: of the lane's channels; a bin is `channels`, a row of bins `bin_row` apart.
  template <bool kCareful>
  __device__ void add(const BoxWeights<A>& box, const T* grad, int64_t channels, int64_t bin_row) {
    const int first_y = box.y.begin[row], end_y = box.y.end[row], end_x = box.x.end[column];
    if (first_y == end_y) {
      return;
    }
    const bool second_y = first_y + 1 < end_y;
    grad += (box.first_bin * channels) + first_y * bin_row + box.x.begin[column] * channels;
    const auto load = [](const T* at) { return *reinterpret_cast<const Pack<T, V>*>(at); };
#pragma unroll 1
    for (int first_x = box.x.begin[column]; first_x < end_x; first_x += 2, grad += 2 * channels) {
      const T* next = first_x + 1 < end_x ? grad + channels : grad;
      const int64_t down = second_y ? bin_row : 0;
      // Loaded together; most parts see no other bins.
      const Pack<T, V> near[2][2] = {{load(grad), load(grad + down)}, {load(next), load(next + down)}};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int x = first_x + i;
        if (x < end_x) {
          A rows[kRows][V] = {};
          spread<kCareful>(near[i][0], box.y.of[first_y][row], rows);
          if (second_y) {
            spread<kCareful>(near[i][1], box.y.of[first_y + 1][row], rows);
          }
#pragma unroll 1
          for (int y = first_y + 2; y < end_y; ++y) {
            spread<kCareful>(load((i == 0 ? grad : next) + (y - first_y) * bin_row), box.y.of[y][row], rows);
          }
          const Pack<A, kColumns> weights = box.x.of[x][column];
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              add_to<kCareful>(sums[r][c], weights.values[c], rows[r]);
            }
          }
        }
      }
    }
  }

  __device__ bool is_finite() const {
    A total = 0;  // of zeros, or NaN
#pragma unroll
    for (int i = 0; i < kRows * kColumns * V; ++i) {
      total += A(0) * sums[i / V / kColumns][i / V % kColumns][i % V];
    }
    return total == A(0);
  }
};

// parts: (chunks, N, C, H, W), or (chunks, N, H, W, C) with channels_last.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, 3)
    backward_kernel(const T* grad, BoxesByImage<Accumulate<T>> boxes, Mean<Accumulate<T>> mean, Sizes sizes,
                    int groups, int chunks, bool channels_last, Accumulate<T>* parts) {
  using A = Accumulate<T>;
  const int tiles_x = (sizes.width + kSide - 1) / kSide, tiles_y = (sizes.height + kSide - 1) / kSide;
  const int group = blockIdx.x % groups;
  int64_t rest = blockIdx.x / groups;
  const int first_column = rest % tiles_x * kSide;
  rest /= tiles_x;
  const int first_row = rest % tiles_y * kSide;
  rest /= tiles_y;
  const int chunk = rest % chunks, image = rest / chunks;
  const int start = boxes.starts[image];
  const int64_t count = boxes.starts[image + 1] - start;
  __shared__ Shared<A> shared;
  const Walk<A> walk{boxes,
                     mean,
                     sizes,
                     first_row,
                     first_column,
                     start + int(count * chunk / chunks),
                     start + int(count * (chunk + 1) / chunks),
                     shared};
  const int64_t channel = (int64_t(group) * kWarp + lane_of_thread()) * V;
  const bool exists = channel < sizes.channels;
  grad += exists ? channel : 0;
  const int64_t bin_row = sizes.pooled_width * sizes.channels;
  constexpr int across = kSide / kColumns;
  Part<T, V> part{{}, warp_of_thread() / across, warp_of_thread() % across};
  walk([&](const BoxWeights<A>& box) { part.template add<false>(box, grad, sizes.channels, bin_row); });
  if (__syncthreads_or(!part.is_finite())) {
    part = {{}, part.row, part.column};
    walk([&](const BoxWeights<A>& box) { part.template add<true>(box, grad, sizes.channels, bin_row); });
  }
  const int64_t of_image = (int64_t(chunk) * sizes.images + image) * sizes.channels * sizes.cells();
  const int64_t cell_stride = channels_last ? sizes.channels : 1;
  const int64_t channel_stride = channels_last ? 1 : sizes.cells();
  const int top = first_row + part.row * kRows, left = first_column + part.column * kColumns;
#pragma unroll
  for (int i = 0; i < kRows * kColumns; ++i) {
    const int y = top + i / kColumns, x = left + i % kColumns;
    if (exists && y < sizes.height && x < sizes.width) {
      A* to = parts + of_image + channel * channel_stride + (int64_t(y) * sizes.width + x) * cell_stride;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        to[v * channel_stride] = part.sums[i / kColumns][i % kColumns][v];
      }
    }
  }
}

// grad: (R, PH, PW, C), contiguous.
template <typename T, int V>
void launch_backward(const T* grad, const BoxesByImage<Accumulate<T>>& boxes, const Mean<Accumulate<T>>& mean,
                     const Sizes& sizes, bool channels_last, const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(output);
  const int64_t groups = ceil_div(sizes.channels, kWarp * V);
  const int64_t blocks = sizes.images * ceil_div(sizes.height, kSide) * ceil_div(sizes.width, kSide) * groups;
  // Most boxes meet in the middle of an image: several waves even that out.
  const int64_t slots = roi::device_attribute(cudaDevAttrMultiProcessorCount) * 3;
  const int chunks = int(std::clamp<int64_t>(ceil_div(3 * slots, blocks), 1, 8));
  const bool direct = chunks == 1 && std::is_same_v<T, A>;
  const int64_t size = sizes.images * sizes.channels * sizes.cells();
  const Tensor parts =
      direct ? output
             : torch::stable::new_empty(output, {chunks, size}, accumulate_type(output.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());
  backward_kernel<T, V><<<blocks * chunks, kThreads, 0, stream>>>(grad, boxes, mean, sizes, int(groups),
                                                                  chunks, channels_last, sums);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  if (!direct) {
    roi::sum_parts(sums, chunks, size, static_cast<T*>(output.mutable_data_ptr()), stream);
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                     const Mean<Accumulate<T>>& mean, bool channels_last, const Tensor& output) {
  const roi::OrderedBoxes<Accumulate<T>> ordered(boxes, sizes);
  Tensor last = torch::stable::contiguous(grad);
  if (!channels_last) {
    const Tensor dense = last;
    last = torch::stable::new_empty(grad, {sizes.boxes, sizes.bins(), sizes.channels});
    roi::channels_to_last(static_cast<const T*>(dense.const_data_ptr()), sizes.boxes, sizes.channels,
                          sizes.bins(), static_cast<T*>(last.mutable_data_ptr()), current_stream(grad));
  }
  const auto* values = static_cast<const T*>(last.const_data_ptr());
  constexpr int V = 16 / sizeof(Accumulate<T>);
  if (sizes.channels % V == 0 && reinterpret_cast<uintptr_t>(values) % (V * sizeof(T)) == 0) {
    launch_backward<T, V>(values, ordered.view(), mean, sizes, channels_last, output);
  } else {
    launch_backward<T, 1>(values, ordered.view(), mean, sizes, channels_last, output);
  }
}

}  // namespace detector::roi_align
