// grad_weight on contiguous planes. A block goes through strips of one channel with the K x K sums in
// registers and adds those of its threads; a second kernel adds the blocks of a channel. All in a fixed
// order.
#pragma once

#include "../reduce.cuh"
#include "../sum_parts.cuh"
#include "staging.cuh"

namespace detector::depthwise_conv2d {

constexpr int kGradWeightRows = 8;
constexpr int kGradWeightThreads = 128;
constexpr int kGradWeightWarps = kGradWeightThreads / kWarp;
constexpr int64_t kStagedBlocks = 1024;  // enough to fill it: each more adds its threads up once more

struct GradWeightSizes {
  Strips strips;
  unsigned num_strips, strips_of_block;  // of all images of one channel; or staged, images
  int planes;                            // that a block stages, or 0
  unsigned channels, multiplier;
  int height, width, out_height, out_width, pad_h, pad_w;
};

// The products of one strip of grad with the input it meets.
template <int K, int S, bool kVector, typename T, typename A>
__device__ void add_strip(const GradWeightSizes& p, const Plane<T>& input, const Plane<T>& grad, int row,
                          int column, A (&sums)[K * K]) {
  constexpr int kWindow = (kColumns - 1) * S + K;
  A grads[kGradWeightRows][kColumns];
#pragma unroll
  for (int y = 0; y < kGradWeightRows; ++y) {
    grad.template load<kVector, kVector ? kColumns : 1, 0>(row + y, column, grads[y]);
  }
#pragma unroll
  for (int r = 0; r < (kGradWeightRows - 1) * S + K; ++r) {
    A window[kWindow];
    const int input_row = row * S + r - p.pad_h;
    if constexpr (kVector) {
      input.template load<true, kColumns, K / 2>(input_row, column * S, window);
    } else {
      input.template load<false, 1, 0>(input_row, column * S - p.pad_w, window);
    }
#pragma unroll
    for (int y = 0; y < kGradWeightRows; ++y) {
      const int i = r - y * S;
      if (0 <= i && i < K) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            sums[i * K + j] += grads[y][c] * window[c * S + j];
          }
        }
      }
    }
  }
}

// totals[i] = the sum of all threads' sums[i]; warp_sums is (warps, N) of shared memory that nobody reads any
// more.
template <int N, typename A>
__device__ void add_threads(const A (&sums)[N], A* warp_sums, A* totals) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const A sum = warp_reduce(sums[i], Sum{});
    if (lane_of_thread() == 0) {
      warp_sums[warp_of_thread() * N + i] = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < N; i += blockDim.x) {
    A sum = 0;
    for (int warp = 0; warp < blockDim.x / kWarp; ++warp) {
      sum += warp_sums[warp * N + i];
    }
    totals[i] = sum;
  }
}

// totals[plane * K * K + t] = the sum of sums[t] over the threads of each plane, `strips` of them;
// thread_sums is (K * K, threads) of shared memory that nobody reads any more.
template <int N, typename A>
__device__ void add_threads_of_planes(const A (&sums)[N], int planes, int strips, A* thread_sums, A* totals) {
#pragma unroll
  for (int t = 0; t < N; ++t) {
    thread_sums[t * blockDim.x + threadIdx.x] = sums[t];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < planes * N; i += blockDim.x) {
    const A* plane_sums = thread_sums + i % N * blockDim.x + i / N * strips;
    A sum = 0;
    for (int strip = 0; strip < strips; ++strip) {
      sum += plane_sums[strip];
    }
    totals[i] = sum;
  }
}

// Block (k, s) takes stretch s of the strips of output channel k or, staged, of the images of `planes`
// channels; partial is (blocks of a channel, C m, K, K).
template <typename T, typename A, int K, int S, bool kVector>
__global__ void __launch_bounds__(kGradWeightThreads)
    depthwise_strips_grad_weight_kernel(GradWeightSizes p, const T* __restrict__ input,
                                        const T* __restrict__ grad, A* __restrict__ partial) {
  extern __shared__ uint4 shared[];
  const bool staged = !kVector && p.planes > 0;
  const unsigned out_channels = p.channels * p.multiplier, strips_per_plane = p.strips.strips_per_plane();
  const unsigned first = blockIdx.x * (staged ? p.planes : 1), in_first = first / p.multiplier;
  const unsigned planes = staged ? min(unsigned(p.planes), out_channels - first) : 1;
  const unsigned in_planes = (first + planes - 1) / p.multiplier - in_first + 1;
  const unsigned own = staged ? threadIdx.x / strips_per_plane : 0, k = first + own;  // channel of the thread
  const int input_plane_size = p.height * p.width, grad_plane_size = p.out_height * p.out_width;
  const unsigned begin = blockIdx.y * p.strips_of_block, end = min(begin + p.strips_of_block, p.num_strips);
  A sums[K * K] = {};
  for (unsigned i = begin + (staged ? 0 : threadIdx.x); i < end; i += staged ? 1 : kGradWeightThreads) {
    const auto at = p.strips.place(staged ? i * strips_per_plane + threadIdx.x % strips_per_plane
                                          : i);  // the plane is the image
    const T* in_plane = input + (int64_t(at.plane) * p.channels + k / p.multiplier) * input_plane_size;
    const T* out_plane = grad + (int64_t(at.plane) * out_channels + k) * grad_plane_size;
    if (staged) {
      const T* const from = input + (int64_t(i) * p.channels + in_first) * input_plane_size;
      const T* const grads_from = grad + (int64_t(i) * out_channels + first) * grad_plane_size;
      T* const copy = reinterpret_cast<T*>(shared) + misalignment(from);
      T* const behind =
          reinterpret_cast<T*>(shared + (p.planes * input_plane_size * int(sizeof(T)) + 31) / 16);
      T* const grads_copy = behind + misalignment(grads_from);
      __syncthreads();  // the image before has been read
      copy_stretch(from, in_planes * input_plane_size, copy);
      copy_stretch(grads_from, planes * grad_plane_size, grads_copy);
      __syncthreads();
      in_plane = copy + (k / p.multiplier - in_first) * input_plane_size;
      out_plane = grads_copy + own * grad_plane_size;
    }
    if (own < planes) {
      add_strip<K, S, kVector>(p, Plane<T>{in_plane, p.height, p.width},
                               Plane<T>{out_plane, p.out_height, p.out_width}, at.row, at.column, sums);
    }
  }
  A* const totals = partial + (int64_t(blockIdx.y) * out_channels + first) * (K * K);
  if (staged) {
    __syncthreads();
    add_threads_of_planes<K * K>(sums, planes, strips_per_plane, reinterpret_cast<A*>(shared), totals);
  } else {
    add_threads<K * K>(sums, reinterpret_cast<A*>(shared), totals);
  }
}

// How many blocks share the strips of a channel: each thread takes `rounds` strips, and adding the threads up
// takes as long as half a strip. What counts is how often all multiprocessors fill, and for how long.
template <typename Kernel>
int64_t best_stretches(Kernel kernel, int bytes, int64_t num_strips, int64_t channels) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount);
  int resident = 0;
  STD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kGradWeightThreads, bytes));
  constexpr int64_t most_stretches = 65535, most_rounds = 64;
  const int64_t fewest_rounds = ceil_div(num_strips, most_stretches * kGradWeightThreads);
  int64_t best = 1, best_cost = INT64_MAX;
  for (int64_t rounds = std::max<int64_t>(fewest_rounds, 1); rounds < fewest_rounds + most_rounds; ++rounds) {
    const int64_t stretches = ceil_div(num_strips, rounds * kGradWeightThreads);
    const int64_t waves = ceil_div(channels * stretches, processors * std::max(resident, 1));
    const int64_t cost = waves * (2 * rounds + 1);
    if (cost < best_cost) {
      best_cost = cost;
      best = stretches;
    }
  }
  return best;
}

template <int K, int S, typename T, typename Allocate>
void launch_contiguous_grad_weight(const Problem& p, const T* input, const T* grad, T* result,
                                   const Allocate& allocate, cudaStream_t stream) {
  using A = Accumulate<T>;
  const Strips strips(p.out_height, p.out_width, kGradWeightRows);
  const bool vector = p.pad_w == K / 2 && p.width % kColumns == 0 && p.out_width % kColumns == 0 &&
                      is_aligned(input, sizeof(Pack<T, kColumns>)) &&
                      is_aligned(grad, sizeof(Pack<T, kColumns>));
  const int64_t elements = p.height * p.width + p.out_height * p.out_width;
  const int planes = vector ? 0 : staged_planes(strips, kGradWeightThreads, elements, sizeof(T));
  const int64_t groups = ceil_div(p.out_channels(), std::max(planes, 1));  // of channels
  const int64_t num_strips = planes > 0 ? p.batch : p.batch * strips.strips_per_plane();
  const int64_t weights = p.out_channels() * K * K;
  const auto kernel = vector ? depthwise_strips_grad_weight_kernel<T, A, K, S, true>
                             : depthwise_strips_grad_weight_kernel<T, A, K, S, false>;
  const int sums_bytes = (planes > 0 ? kGradWeightThreads : kGradWeightWarps) * K * K * int(sizeof(A));
  const int bytes = std::max(staged_bytes(planes, elements, sizeof(T)), sums_bytes);
  const int64_t most = std::min(ceil_div(num_strips, 2), int64_t(65535));  // two images a block at least
  const int64_t stretches = planes > 0 ? std::clamp(kStagedBlocks / groups, int64_t(1), most)
                                       : best_stretches(kernel, bytes, num_strips, groups);
  const int64_t strips_of_block = ceil_div(num_strips, stretches);
  const GradWeightSizes sizes{strips,           unsigned(num_strips), unsigned(strips_of_block),
                              planes,           unsigned(p.channels), unsigned(p.multiplier),
                              int(p.height),    int(p.width),         int(p.out_height),
                              int(p.out_width), int(p.pad_h),         int(p.pad_w)};
  A* partial = allocate(stretches * weights);
  launch_kernel(kernel, dim3(groups, stretches), kGradWeightThreads, bytes, stream, sizes, input, grad,
                partial);
  sum_parts(partial, int(stretches), weights, result, stream);
}

}  // namespace detector::depthwise_conv2d
