// The backward pass of roi_align. A block owns a tile of cells of an image and some channels: a warp a row of
// the tile, in registers, and a lane V channels. It walks the boxes that touch the tile in order, so no two
// threads add to one place. A bin's gradient is weighed for the row first, then for its cells.
#pragma once

#include "../roi/gather.cuh"
#include "../sum_parts.cuh"
#include "walk.cuh"

namespace detector::roi_align {

// The sums of a warp's cells.
template <typename T, int V>
struct Row {
  using A = Accumulate<T>;
  static constexpr int kNear = 4;  // bins, loaded together; most rows see no more
  A sums[kSide][V];
  int row;  // of the tile

  // Weights of zero make an infinite gradient NaN: kCareful omits them.
  template <bool kCareful>
  __device__ static void add_to(A (&sum)[V], A weight, const A (&value)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] += kCareful && weight == A(0) ? A(0) : weight * value[v];
    }
  }

  // Some bins further, of `size` bytes each, which takes one instruction.
  __device__ static const T* further(const T* from, unsigned bins, unsigned size) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + uint64_t(bins) * size);
  }

  // Of kNear bins, of which `number` exist, those that do are loaded together.
  __device__ static void load(const T* from, unsigned size, int number, A (&near)[kNear][V]) {
    Pack<T, V> packs[kNear] = {};
#pragma unroll
    for (int i = 0; i < kNear; ++i, from = further(from, 1, size)) {
      if (i < number) {
        packs[i] = load_once<V>(from);
      }
    }
#pragma unroll
    for (int i = 0; i < kNear * V; ++i) {
      near[i / V][i % V] = A(packs[i / V].values[i % V]);
    }
  }

  // grad: of the lane's channels; a bin takes `size` bytes.
  template <bool kCareful>
  __device__ void add(const BoxWeights<A>& box, const T* grad, unsigned size, int pooled_width) {
    const Bins y = box.y.bins[row], x = box.x.bins[0];
    if (y.begin == y.end) {
      return;
    }
#pragma unroll 1
    for (int first = x.begin; first < x.end; first += kNear) {
      const T* from = further(grad + box.first, y.begin * pooled_width + first, size);
      A row_grad[kNear][V];
      load(from, size, x.end - first, row_grad);
      const A weight = box.y.of[y.begin][row].values[0];
#pragma unroll
      for (int i = 0; i < kNear * V; ++i) {
        row_grad[i / V][i % V] *= weight;  // not zero, the first bin weighs
      }
#pragma unroll 1
      for (int bin = y.begin + 1; bin < y.end; ++bin) {
        from = further(from, pooled_width, size);
        A below[kNear][V];
        load(from, size, x.end - first, below);
#pragma unroll
        for (int i = 0; i < kNear; ++i) {
          add_to<kCareful>(row_grad[i], box.y.of[bin][row].values[0], below[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kNear; ++i) {
        if (first + i < x.end) {
          const Pack<A, kSide> weights = box.x.of[first + i][0];
#pragma unroll
          for (int c = 0; c < kSide; ++c) {
            add_to<kCareful>(sums[c], weights.values[c], row_grad[i]);
          }
        }
      }
    }
  }

  __device__ bool is_finite() const {
    A total = 0;  // of zeros, or NaN
#pragma unroll
    for (int i = 0; i < kSide * V; ++i) {
      total += A(0) * sums[i / V][i % V];
    }
    return total == A(0);
  }

  // to: of the first cell and the lane's first channel.
  __device__ void store(A* to, int number, int64_t cell_stride, int64_t channel_stride) const {
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (c < number) {
          to[c * cell_stride + v * channel_stride] = sums[c][v];
        }
      }
    }
  }

  // The same where cells lie side by side, 16 bytes at a time.
  __device__ void store_packs(A* to, int number, int64_t channel_stride) const {
    constexpr int size = kPackSize<A>;
#pragma unroll
    for (int c = 0; c < kSide; c += size) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (c < number) {
          Pack<A, size> pack;
#pragma unroll
          for (int i = 0; i < size; ++i) {
            pack.values[i] = sums[c + i][v];
          }
          store_pack(to + c + v * channel_stride, pack);
        }
      }
    }
  }
};

// parts: (chunks, N, C, H, W), or (chunks, N, H, W, C) with channels_last.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kBlocks)
    roi_align_backward_kernel(const T* grad, BoxesByImage<Accumulate<T>> boxes,
                              Sampling<Accumulate<T>> sampling, Sizes sizes, int groups, int chunks,
                              bool channels_last, Accumulate<T>* parts) {
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
                     sampling,
                     sizes,
                     {first_row, first_column},
                     start + int(count * chunk / chunks),
                     start + int(count * (chunk + 1) / chunks),
                     shared};
  const int64_t channel = (int64_t(group) * kWarp + lane_of_thread()) * V;
  const bool exists = channel < sizes.channels;
  grad += exists ? channel : 0;
  Row<T, V> row{{}, warp_of_thread()};
  const unsigned size = sizes.channels * sizeof(T);
  const int pooled_width = sizes.pooled_width;
  walk([&](const BoxWeights<A>& box) { row.template add<false>(box, grad, size, pooled_width); });
  if (__syncthreads_or(!row.is_finite())) {
    row = {{}, row.row};
    walk([&](const BoxWeights<A>& box) { row.template add<true>(box, grad, size, pooled_width); });
  }
  const int y = first_row + row.row;
  if (exists && y < sizes.height) {
    const int64_t image_offset = (int64_t(chunk) * sizes.images + image) * sizes.channels * sizes.cells();
    const int64_t cell_stride = channels_last ? sizes.channels : 1;
    const int64_t channel_stride = channels_last ? 1 : sizes.cells();
    A* to = parts + image_offset + channel * channel_stride + (y * sizes.width + first_column) * cell_stride;
    const int number = min(int64_t(kSide), sizes.width - first_column);
    if (!channels_last && sizes.width % kPackSize<A> == 0) {
      row.store_packs(to, number, channel_stride);
    } else {
      row.store(to, number, cell_stride, channel_stride);
    }
  }
}

// ---- pooled values with the channels last, as roi_align_backward_kernel reads them ----

constexpr int kTile = 64;
constexpr int kTileThreads = 256;

// (B, M, N) to (B, N, M). A block takes a tile of kTile x kTile: it reads along columns, writes along rows.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    roi_align_transpose_kernel(const T* from, int64_t num_rows, int64_t num_columns, int tiles_of_rows,
                               int tiles_of_columns, T* to) {
  __shared__ T tile[kTile][kTile + 1];  // columns x rows
  const int64_t batch = blockIdx.x / tiles_of_rows / tiles_of_columns;
  const int64_t row = int64_t(blockIdx.x / tiles_of_columns % tiles_of_rows) * kTile;
  const int64_t column = int64_t(blockIdx.x % tiles_of_columns) * kTile;
  const int rows = min(int64_t(kTile), num_rows - row), columns = min(int64_t(kTile), num_columns - column);
  const T* data = from + (batch * num_rows + row) * num_columns + column;
#pragma unroll 8
  for (int i = threadIdx.x; i < rows * kTile; i += kTileThreads) {
    if (i % kTile < columns) {
      tile[i % kTile][i / kTile] = data[i / kTile * num_columns + i % kTile];
    }
  }
  __syncthreads();
  T* output = to + (batch * num_columns + column) * num_rows + row;
#pragma unroll 4
  for (int i = threadIdx.x; i < columns * kTile; i += kTileThreads) {
    if (i % kTile < rows) {
      output[i / kTile * num_rows + i % kTile] = tile[i / kTile][i % kTile];
    }
  }
}

// Pooled values (R, C, bins), contiguous, to (R, bins, C).
template <typename T>
void channels_to_last(const T* from, int64_t boxes, int64_t channels, int64_t bins, T* to,
                      cudaStream_t stream) {
  const int64_t groups = ceil_div(channels, kTile), tiles_of_bins = ceil_div(bins, kTile);
  if (boxes * groups > 0) {
    launch_kernel(roi_align_transpose_kernel<T>, boxes * groups * tiles_of_bins, kTileThreads, 0, stream,
                  from, channels, bins, int(groups), int(tiles_of_bins), to);
  }
}

// grad: (R, PH, PW, C), contiguous.
template <typename T, int V>
void launch_backward(const T* grad, const BoxesByImage<Accumulate<T>>& boxes,
                     const Sampling<Accumulate<T>>& sampling, const Request& request, bool channels_last,
                     const Tensor& output) {
  using A = Accumulate<T>;
  const Sizes& sizes = request.sizes;
  const cudaStream_t stream = current_stream(output);
  const auto [groups, chunks, launch] = tile_blocks(request, V);
  const bool direct = chunks == 1 && std::is_same_v<T, A>;
  const int64_t size = sizes.images * sizes.channels * sizes.cells();
  const Tensor parts =
      direct ? output : allocate(output, {chunks, size}, accumulate_type(output.scalar_type()));
  auto* sums = parts.mutable_data_ptr<A>();
  launch_kernel(roi_align_backward_kernel<T, V>, launch, stream, grad, boxes, sampling, sizes, groups, chunks,
                channels_last, sums);
  if (!direct) {
    sum_parts(sums, chunks, size, output.mutable_data_ptr<T>(), stream);
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                     const Sampling<Accumulate<T>>& sampling, bool channels_last, const Tensor& output) {
  const roi::OrderedBoxes<Accumulate<T>> ordered("roi_align", boxes, sizes);
  Tensor last = as_contiguous(grad);
  if (!channels_last) {
    const Tensor dense = last;
    last = allocate(grad, {sizes.boxes, sizes.bins(), sizes.channels});
    channels_to_last(dense.const_data_ptr<T>(), sizes.boxes, sizes.channels, sizes.bins(),
                     last.mutable_data_ptr<T>(), current_stream(grad));
  }
  const auto* values = last.const_data_ptr<T>();
  const bool aligned = is_aligned(values, vector_of(sizeof(T)) * sizeof(T));
  const Request request{sizes, sizeof(T), aligned, current_gpu()};
  const auto launch = backward_kernel(request) == Backward::kVectors
                          ? launch_backward<T, vector_of(sizeof(T))>
                          : launch_backward<T, 1>;
  launch(values, ordered.view(), sampling, request, channels_last, output);
}

}  // namespace detector::roi_align
