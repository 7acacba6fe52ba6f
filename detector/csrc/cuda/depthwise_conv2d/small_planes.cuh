// Planes too small for strips, as 7 x 7 or 14 x 14, or of odd width: a block copies several whole planes,
// which are one stretch of memory, to shared memory; a thread goes down one column of outputs with the K x K
// inputs that it sees in registers. Stores go back by way of shared memory, so that they are whole vectors
// too.
#pragma once

#include "contiguous_grad_weight.cuh"
#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kSmallThreads = 256;
constexpr int kMostSmallWidth = 32;

struct SmallPlanes {
  int height, width, out_height, out_width, pad_h, pad_w;
  int channels, batch, planes;  // planes of a block

  __host__ __device__ int of_input() const { return height * width; }
  __host__ __device__ int of_output() const { return out_height * out_width; }
};

// A multiple of 8 planes begins at a multiple of 16 bytes, whatever their size.
inline SmallPlanes small_planes(const Problem& p) {
  const int planes = std::max(kSmallThreads / int(p.out_width) / 8, 1) * 8;
  return {int(p.height),    int(p.width), int(p.out_height),
          int(p.out_width), int(p.pad_h), int(p.pad_w),
          int(p.channels),  int(p.batch), planes};
}

template <typename T>
int small_planes_bytes(const SmallPlanes& s) {
  return s.planes * (s.of_input() + s.of_output()) * int(sizeof(T));
}

template <typename T>
bool small_planes_fit(const Problem& p, const T* a, const T* b) {
  const auto whole = [](const T* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return p.multiplier == 1 && p.out_width <= kMostSmallWidth && p.width <= kMostSmallWidth &&
         p.height <= kMostSmallWidth && p.out_height <= kMostSmallWidth &&
         (p.out_width % kColumns != 0 || p.out_width < 16) && whole(a) && whole(b) &&
         small_planes_bytes<T>(small_planes(p)) <= 100 * 1024;
}

// Both begin at a multiple of 16 bytes.
template <typename T>
__device__ void copy_stretch(const T* __restrict__ from, int count, T* __restrict__ to) {
  constexpr int lanes = 16 / sizeof(T);
#pragma unroll 4
  for (int v = threadIdx.x; v < count / lanes; v += kSmallThreads) {
    reinterpret_cast<uint4*>(to)[v] = reinterpret_cast<const uint4*>(from)[v];
  }
  for (int i = count / lanes * lanes + threadIdx.x; i < count; i += kSmallThreads) {
    to[i] = from[i];
  }
}

// The K x K inputs of an output, which move down by S rows at a time.
template <typename T, int K, int S>
struct Window {
  using A = Accumulate<T>;
  A values[K][K] = {};
  const T* column;  // of output column x: row 0, input column x S - pad
  int row, height, width;
  bool inside[K];

  __device__ Window(const SmallPlanes& s, const T* plane, int x)
      : column(plane + x * S - s.pad_w), row(-s.pad_h), height(s.height), width(s.width) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      inside[j] = unsigned(x * S - s.pad_w + j) < unsigned(width);
    }
#pragma unroll
    for (int i = S; i < K; ++i) {  // the first move brings them to their place
      read_row(values[i]);
    }
  }

  __device__ void read_row(A (&into)[K]) {
    const bool row_inside = unsigned(row) < unsigned(height);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      into[j] = row_inside && inside[j] ? A(column[row * width + j]) : A(0);
    }
    ++row;
  }

  __device__ void move() {
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (i + S < K) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
          values[i][j] = values[i + S][j];
        }
      } else {
        read_row(values[i]);
      }
    }
  }
};

template <typename T, int K, int S>
__global__ void __launch_bounds__(kSmallThreads)
    small_planes_forward_kernel(SmallPlanes s, bool turned, int64_t all_planes, const T* __restrict__ input,
                                const T* __restrict__ weight, const T* __restrict__ bias,
                                T* __restrict__ output) {
  using A = Accumulate<T>;
  extern __shared__ uint4 shared[];
  T* in = reinterpret_cast<T*>(shared);
  T* out = in + s.planes * s.of_input();
  const int64_t first = int64_t(blockIdx.x) * s.planes;
  const int planes = int(min(int64_t(s.planes), all_planes - first));
  copy_stretch(input + first * s.of_input(), planes * s.of_input(), in);
  __syncthreads();
  for (int t = threadIdx.x; t < planes * s.out_width; t += kSmallThreads) {
    const int plane = t / s.out_width, x = t - plane * s.out_width,
              channel = int((first + plane) % s.channels);
    A taps[K][K];
#pragma unroll
    for (int i = 0; i < K * K; ++i) {
      taps[i / K][i % K] = A(weight[channel * (K * K) + (turned ? K * K - 1 - i : i)]);
    }
    const A start = bias != nullptr ? A(bias[channel]) : A(0);
    Window<T, K, S> window(s, in + plane * s.of_input(), x);
    for (int y = 0; y < s.out_height; ++y) {
      window.move();
      A sum = start;
#pragma unroll
      for (int i = 0; i < K * K; ++i) {
        sum += taps[i / K][i % K] * window.values[i / K][i % K];
      }
      out[plane * s.of_output() + y * s.out_width + x] = T(sum);
    }
  }
  __syncthreads();
  copy_stretch(out, planes * s.of_output(), output + first * s.of_output());
}

// Block (stretch of channels, z) takes every gridDim.y-th image; partial is (gridDim.y, C, K, K).
template <typename T, typename A, int K, int S>
__global__ void __launch_bounds__(kSmallThreads)
    small_planes_grad_weight_kernel(SmallPlanes s, const T* __restrict__ input, const T* __restrict__ grad,
                                    A* __restrict__ partial) {
  extern __shared__ uint4 shared[];
  T* in = reinterpret_cast<T*>(shared);
  T* out = in + s.planes * s.of_input();
  const int first = blockIdx.x * s.planes, planes = min(s.planes, s.channels - first);
  const int plane = threadIdx.x / s.out_width, x = threadIdx.x - plane * s.out_width;
  A sums[K][K] = {};
  for (int n = blockIdx.y; n < s.batch; n += gridDim.y) {
    const int64_t start = int64_t(n) * s.channels + first;
    copy_stretch(input + start * s.of_input(), planes * s.of_input(), in);
    copy_stretch(grad + start * s.of_output(), planes * s.of_output(), out);
    __syncthreads();
    if (plane < planes) {
      Window<T, K, S> window(s, in + plane * s.of_input(), x);
      for (int y = 0; y < s.out_height; ++y) {
        window.move();
        const A value = A(out[plane * s.of_output() + y * s.out_width + x]);
#pragma unroll
        for (int i = 0; i < K * K; ++i) {
          sums[i / K][i % K] += value * window.values[i / K][i % K];
        }
      }
    }
    __syncthreads();  // the planes are free again
  }
  A* of_column = reinterpret_cast<A*>(shared);  // (K * K, planes * out_width)
  const int columns = s.planes * s.out_width;
  if (plane < planes) {
#pragma unroll
    for (int i = 0; i < K * K; ++i) {
      of_column[i * columns + threadIdx.x] = sums[i / K][i % K];
    }
  }
  __syncthreads();
  for (int t = threadIdx.x; t < planes * K * K; t += kSmallThreads) {
    A sum = 0;
    for (int c = 0; c < s.out_width; ++c) {
      sum += of_column[t % (K * K) * columns + t / (K * K) * s.out_width + c];
    }
    partial[(int64_t(blockIdx.y) * s.channels + first) * (K * K) + t] = sum;
  }
}

template <int K, int S, typename T>
bool launch_small_planes_forward(const Problem& p, bool turned, const T* input, const T* weight,
                                 const T* bias, T* output, cudaStream_t stream) {
  if (!small_planes_fit(p, input, output)) {
    return false;
  }
  const SmallPlanes s = small_planes(p);
  const int64_t all_planes = p.batch * p.channels;
  const int bytes = small_planes_bytes<T>(s);
  const auto kernel = small_planes_forward_kernel<T, K, S>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<unsigned(ceil_div(all_planes, s.planes)), kSmallThreads, bytes, stream>>>(
      s, turned, all_planes, input, weight, bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

template <int K, int S, typename T, typename Allocate>
bool launch_small_planes_grad_weight(const Problem& p, const T* input, const T* grad, T* result,
                                     const Allocate& allocate, cudaStream_t stream) {
  using A = Accumulate<T>;
  const SmallPlanes s = small_planes(p);
  // A thread keeps one column, and whole stretches of channels begin at 16 bytes.
  if (!small_planes_fit(p, input, grad) || s.planes * s.out_width > kSmallThreads || p.channels % 8 != 0) {
    return false;
  }
  const int bytes = std::max(small_planes_bytes<T>(s), s.planes * s.out_width * K * K * int(sizeof(A)));
  const auto kernel = small_planes_grad_weight_kernel<T, A, K, S>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t stretches = ceil_div(p.channels, s.planes), weights = p.channels * K * K;
  const int64_t groups =
      std::clamp<int64_t>(kGradWeightBlocks / stretches, 1, std::min<int64_t>(p.batch, 256));
  A* partial = allocate(groups * weights);
  kernel<<<dim3(unsigned(stretches), unsigned(groups)), kSmallThreads, bytes, stream>>>(s, input, grad,
                                                                                        partial);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  add_partial_sums(partial, weights, groups, result, stream);
  return true;
}

}  // namespace detector::depthwise_conv2d
