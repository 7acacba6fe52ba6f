// Kernels for few channels. Threads that walk rows would read and write a little of the same lines of memory
// over and over.
#pragma once

#include "many_channels.cuh"  // kThreads

namespace detector::trilinear_interpolate {

// All that the points of a block have of feats, F channels: read side by side, then each thread has a point.
template <typename T, int F>
struct Corners {
  static constexpr int kWords = kCorners * F / kPackSize<T>;  // of sixteen bytes, of a point
  uint4 words[kThreads * kWords];

  // Where the words that neighbors read at once lie in different banks.
  static __device__ int place(int point, int word) {
    constexpr bool kTurned = (kWords & (kWords - 1)) == 0;
    return point * kWords + (kTurned ? word ^ point * kWords / 8 % kWords : word);
  }

  __device__ void load(const T* feats, int64_t first_point, int64_t num_points) {
    const int64_t count = (num_points - first_point) * kWords;
    const auto* from = reinterpret_cast<const uint4*>(feats) + first_point * kWords;
    uint4 loaded[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int at = i * kThreads + int(threadIdx.x);
      if (at < count) {
        loaded[i] = __ldg(from + at);
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int at = i * kThreads + int(threadIdx.x);
      words[place(at / kWords, at % kWords)] = loaded[i];
    }
    __syncthreads();
  }

  // Calls body(corner, channel, value) for the thread's point.
  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      Pack<T, kPackSize<T>> pack;
      memcpy(&pack, &words[place(threadIdx.x, w)], sizeof(pack));
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        const int element = w * kPackSize<T> + i;
        body(element / F, element % F, Accumulate<T>(pack.values[i]));
      }
    }
  }
};

template <int F, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_points_few_kernel(Matrix<T> grad, const T* feats, Matrix<A> points, int64_t num_points,
                               A* grad_points) {
  __shared__ Corners<T, F> corners;
  const int64_t first = int64_t(blockIdx.x) * kThreads, n = first + threadIdx.x;
  corners.load(feats, first, num_points);
  if (n >= num_points) {
    return;
  }
  A arriving[F];
#pragma unroll
  for (int f = 0; f < F; ++f) {
    arriving[f] = A(grad(n, f));
  }
  A sums[kCorners] = {}, along[3];
  corners.for_each([&](int c, int f, A value) { sums[c] += arriving[f] * value; });
  Point<A>(points, n).gradient(sums, along);
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    grad_points[n * 3 + k] = along[k];
  }
}

// A thread has sixteen bytes of a point's eight corners, whichever those are, by V channels of a corner:
// threads x have a point, threads y several.
template <int V, typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads)
    backward_feats_few_kernel(Matrix<T> grad, Matrix<A> points, int64_t num_points, int num_channels,
                              float inverse_of_channels, T* grad_feats) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (n >= num_points) {
    return;
  }
  const int first = threadIdx.x * kPackSize<T>;
  int c = (first + 0.5f) * inverse_of_channels, f = first - c * num_channels;  // c: first / num_channels
  const Point<A> point(points, n);
  Pack<T, kPackSize<T>> result;
#pragma unroll
  for (int at = 0; at < kPackSize<T>; at += V) {
    const auto arriving = load_once<V>(&grad(n, f));
    const A weight = point.weight(c);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[at + i] = T(weight * A(arriving.values[i]));
    }
    f += V;
    if (f == num_channels) {
      f = 0, ++c;
    }
  }
  store_once(grad_feats + n * kCorners * num_channels + first, result);
}

}  // namespace detector::trilinear_interpolate
