// Any kernel, stride and dilation in channels_last. A thread has a vector of channels and walks down a column
// of pixels; what its neighbors read as well comes from the L1 cache, and the weights from shared memory. So
// it reads each element once for every tap, which is little where a stride leaves few outputs.
#pragma once

#include <array>

#include "grad_weight.cuh"

namespace detector::depthwise_conv2d::channels_last {

constexpr int kThreads = 256;
constexpr int kStencilBlocks = 4, kStencilGradWeightBlocks = 2;  // on a multiprocessor

// What a pixel reads. Forward, row y of the output reads row y * stride + i * dilation - pad of the input.
// The gradient of the input is the transpose: its row h gets row (h + pad - i * dilation) / stride of the
// gradient of the output, where that is whole. For which i it is follows from the phase h % stride, and with
// h = y * stride + phase the row is y plus something.
struct Tap {
  int row, column, offset;  // from the pixel that stands for the thread's own; offset is in elements
  int number;               // of its weight
};

// Of all phases, made on the host: phase f has the taps begins[f] ... begins[f + 1] - 1.
struct Stencil {
  int source_stride_h, source_stride_w;
  int phases_h, phases_w;
  int height, width;  // of the image that is written
  int count;
  int begins[kMostStride * kMostStride + 1];
  Tap taps[kMostTaps];
};

// Quotient rounded down, and the rest.
inline std::array<int, 2> divide(int a, int b) {
  const int rest = (a % b + b) % b;
  return {(a - rest) / b, rest};
}

inline Stencil make_stencil(const Problem& p, const Walk& walk, bool transposed) {
  Stencil s{};
  const int stride_h = int(p.stride_h), stride_w = int(p.stride_w);
  s.source_stride_h = transposed ? 1 : stride_h, s.source_stride_w = transposed ? 1 : stride_w;
  s.phases_h = transposed ? stride_h : 1, s.phases_w = transposed ? stride_w : 1;
  s.height = walk.height, s.width = walk.width;
  for (int phase = 0; phase < s.phases_h * s.phases_w; ++phase) {
    s.begins[phase] = s.count;
    for (int t = 0; t < p.taps(); ++t) {
      int row = t / int(p.kernel_w) * int(p.dilation_h) - int(p.pad_h);
      int column = t % int(p.kernel_w) * int(p.dilation_w) - int(p.pad_w);
      const auto [y, rest_h] = divide(row, s.phases_h);
      const auto [x, rest_w] = divide(column, s.phases_w);
      if (transposed) {
        row = -y, column = -x;
      }
      if (!transposed || rest_h * s.phases_w + rest_w == phase) {
        s.taps[s.count++] = {row, column, (row * walk.source_width + column) * walk.channels, t};
      }
    }
  }
  s.begins[s.phases_h * s.phases_w] = s.count;
  return s;
}

// By all threads of a block, which have yet to meet.
__device__ inline void copy_taps(const Stencil& stencil, int first, int count, Tap* to) {
  for (int t = threadIdx.y * blockDim.x + threadIdx.x; t < count; t += blockDim.x * blockDim.y) {
    to[t] = stencil.taps[first + t];
  }
}

// Threads x are vectors of channels, threads y columns. `walk` is of the output or, transposed, of the pixels
// of one phase.
template <typename T>
__global__ void __launch_bounds__(kThreads, kStencilBlocks)
    depthwise_stencil_kernel(Walk walk, const __grid_constant__ Stencil stencil, const T* __restrict__ source,
                             const T* __restrict__ weight, const T* __restrict__ bias,
                             T* __restrict__ target) {
  constexpr int V = 16 / sizeof(T), kBatch = 4;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const weights = reinterpret_cast<T*>(shared);  // (taps, channels of the block)
  __shared__ Tap taps[kMostTaps];
  const int block_channels = blockDim.x * V;
  const Place place = place_of_block(walk, block_channels, blockDim.y);
  copy_taps(stencil, 0, stencil.count, taps);
  for (int c = threadIdx.x; c < min(block_channels, walk.channels - place.channel); c += blockDim.x) {
    for (int t = threadIdx.y; t < stencil.count; t += blockDim.y) {
      weights[t * block_channels + c] =
          weight[int64_t(place.channel + c) * stencil.count + stencil.taps[t].number];
    }
  }
  __syncthreads();

  const int channel = place.channel + threadIdx.x * V, column = place.column + threadIdx.y;
  if (channel >= walk.channels || column >= walk.width) {
    return;
  }
  const T* const image =
      source + place.sample * walk.source_height * walk.source_width * walk.channels + channel;
  T* const result = target + place.sample * stencil.height * stencil.width * walk.channels + channel;
  const T* const own_weights = weights + threadIdx.x * V;
  const int source_column = column * stencil.source_stride_w;
  const int last = min(place.row + walk.rows, walk.height);

  const auto sum_taps = [&](int begin, int end, int source_row, float (&sums)[V]) {
    const T* const own = image + (int64_t(source_row) * walk.source_width + source_column) * walk.channels;
    for (int t = begin; t < end; t += kBatch) {
      Pack<T, V> packs[kBatch];
      bool inside[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const Tap tap = taps[min(t + b, end - 1)];
        inside[b] = t + b < end && unsigned(source_row + tap.row) < unsigned(walk.source_height) &&
                    unsigned(source_column + tap.column) < unsigned(walk.source_width);
        if (inside[b]) {
          packs[b] = load_pack<V>(own + tap.offset);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (inside[b]) {
          float factors[V];
          load(own_weights + (t + b) * block_channels, factors);
#pragma unroll
          for (int v = 0; v < V; ++v) {
            sums[v] += float(packs[b].values[v]) * factors[v];
          }
        }
      }
    }
  };
  for (int row = place.row; row < last; ++row) {
    int phase = 0;
    for (int i = 0; i < stencil.phases_h; ++i) {
      for (int j = 0; j < stencil.phases_w; ++j, ++phase) {
        const int h = row * stencil.phases_h + i, w = column * stencil.phases_w + j;
        if (h < stencil.height && w < stencil.width) {
          float sums[V] = {};
          if (bias != nullptr) {
            load(bias + channel, sums);
          }
          sum_taps(stencil.begins[phase], stencil.begins[phase + 1], row * stencil.source_stride_h, sums);
          store(sums, result + (int64_t(h) * stencil.width + w) * walk.channels);
        }
      }
    }
  }
}

constexpr int kGradWeightTaps = 9;  // of a block

// Gradient of the weight: block (place, g) sums the taps 9 g ... 9 g + 8. `partial` is (places, taps,
// channels).
template <typename T>
__global__ void __launch_bounds__(kThreads, kStencilGradWeightBlocks)
    depthwise_stencil_grad_weight_kernel(Walk walk, const __grid_constant__ Stencil stencil,
                                         const T* __restrict__ input, const T* __restrict__ grad,
                                         float* __restrict__ partial) {
  constexpr int V = 16 / sizeof(T), kTaps = kGradWeightTaps;
  __shared__ Tap taps[kTaps];
  __shared__ __align__(16) float thread_sums[kThreads * V];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, block_channels = blockDim.x * V;
  const int first_tap = blockIdx.y * kTaps, count = min(kTaps, stencil.count - first_tap);
  const Place place = place_of_block(walk, block_channels, blockDim.y);
  copy_taps(stencil, first_tap, count, taps);
  __syncthreads();

  float sums[kTaps][V] = {};
  const int channel = place.channel + threadIdx.x * V, column = place.column + threadIdx.y;
  if (channel < walk.channels && column < walk.width) {
    const T* const image =
        input + place.sample * walk.source_height * walk.source_width * walk.channels + channel;
    const T* const grads = grad + place.sample * walk.height * walk.width * walk.channels + channel;
    const int source_column = column * stencil.source_stride_w;
    const int last = min(place.row + walk.rows, walk.height);
    for (int row = place.row; row < last; ++row) {
      const int source_row = row * stencil.source_stride_h;
      const T* const own = image + (int64_t(source_row) * walk.source_width + source_column) * walk.channels;
      float arriving[V];
      load(grads + (int64_t(row) * walk.width + column) * walk.channels, arriving);
      Pack<T, V> packs[kTaps];
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const Tap tap = taps[min(t, count - 1)];
        const bool inside = t < count && unsigned(source_row + tap.row) < unsigned(walk.source_height) &&
                            unsigned(source_column + tap.column) < unsigned(walk.source_width);
        packs[t] = inside ? load_pack<V>(own + tap.offset) : Pack<T, V>{};
      }
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sums[t][v] += float(packs[t].values[v]) * arriving[v];
        }
      }
    }
  }

  float* const block_partial =
      partial + int64_t(blockIdx.x / walk.channel_blocks) * stencil.count * walk.channels;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    store(sums[t], thread_sums + thread * V);
    __syncthreads();
    for (int i = thread; i < block_channels; i += blockDim.x * blockDim.y) {
      float sum = 0;
      for (int y = 0; y < blockDim.y; ++y) {
        sum += thread_sums[y * block_channels + i];
      }
      if (t < count && place.channel + i < walk.channels) {
        block_partial[int64_t(first_tap + t) * walk.channels + place.channel + i] = sum;
      }
    }
    __syncthreads();
  }
}

// Threads of a block: its vectors of channels and its columns.
inline dim3 cut_channels(Walk& walk, int vector) {
  const int packs = walk.channels / vector;
  walk.channel_blocks = ceil_div(packs, kWarp);
  const int block_packs = ceil_div(packs, walk.channel_blocks);
  const int columns = kThreads / block_packs;
  walk.column_blocks = ceil_div(walk.width, columns);
  return dim3(block_packs, columns);
}

// The forward pass, or the gradient of the input.
template <typename T>
void launch_stencil(const Problem& p, bool transposed, const T* source, const T* weight, const T* bias,
                    T* target, cudaStream_t stream) {
  Walk walk = transposed ? walk_input(p) : walk_output(p);
  const Stencil stencil = make_stencil(p, walk, transposed);
  walk.height = ceil_div(walk.height, stencil.phases_h);
  walk.width = ceil_div(walk.width, stencil.phases_w);
  const dim3 block = cut_channels(walk, 16 / sizeof(T));
  const size_t bytes = 16 * block.x * stencil.count;
  const auto kernel = depthwise_stencil_kernel<T>;
  const Launch launch = cut_rows(kernel, p.batch, kThreads / kWarp, bytes, 1, 1, walk);
  launch_kernel(kernel, launch.grid, block, launch.shared, stream, walk, stencil, source, weight, bias,
                target);
}

template <typename T, typename Allocate>
void launch_stencil_grad_weight(const Problem& p, const T* input, const T* grad, T* grad_weight,
                                const Allocate& allocate, cudaStream_t stream) {
  Walk walk = walk_output(p);
  const Stencil stencil = make_stencil(p, walk, false);
  const dim3 block = cut_channels(walk, 16 / sizeof(T));
  const auto kernel = depthwise_stencil_grad_weight_kernel<T>;
  const Launch launch = cut_rows(kernel, p.batch, kThreads / kWarp, 0, 1, 1, walk);
  const int64_t places = launch.grid / walk.channel_blocks;
  float* partial = allocate(places * stencil.count * walk.channels);
  const dim3 grid(launch.grid, ceil_div(stencil.count, kGradWeightTaps));
  launch_kernel(kernel, grid, block, 0, stream, walk, stencil, input, grad, partial);
  add_partials(partial, places, stencil.count, walk.channels, grad_weight, stream);
}

}  // namespace detector::depthwise_conv2d::channels_last
