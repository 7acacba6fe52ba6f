// The forward pass and grad_input on contiguous planes: a thread computes a strip of the target from the
// plane of the source that it reads.
#pragma once

#include "staging.cuh"

namespace detector::depthwise_conv2d {

constexpr int kStripRows = 8;
constexpr int kStripThreads = 128;

struct ImageSizes {
  Staging staging;
  unsigned channels;  // of the target
  int source_height, source_width, target_height, target_width, pad_h, pad_w;
  bool turned;  // read the kernel from its last tap to its first
};

template <typename A>
struct StripSums {
  A of[kStripRows][kColumns];
};

// The forward pass and, with the kernel turned by 180 degrees, grad_input of stride 1.
template <int K, int S>
struct Convolution {
  static constexpr int kKernel = K;
  static constexpr int kAlign = kColumns;  // of the columns of the source, where packs are read

  template <bool kVector, typename T, typename A>
  __device__ static void add(const ImageSizes& p, const Strips::Place& at, const Plane<T>& source,
                             const A (&taps)[K * K], StripSums<A>& sums) {
    constexpr int kWindow = (kColumns - 1) * S + K;
#pragma unroll
    for (int r = 0; r < (kStripRows - 1) * S + K; ++r) {
      A window[kWindow];
      const int row = at.row * S + r - p.pad_h;
      if constexpr (kVector) {
        source.template load<true, kAlign, K / 2>(row, at.column * S, window);
      } else {
        source.template load<false, 1, 0>(row, at.column * S - p.pad_w, window);
      }
#pragma unroll
      for (int y = 0; y < kStripRows; ++y) {
        const int i = r - y * S;
        if (0 <= i && i < K) {
#pragma unroll
          for (int j = 0; j < K; ++j) {
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
              sums.of[y][c] += taps[i * K + j] * window[c * S + j];
            }
          }
        }
      }
    }
  }
};

// grad_input of stride 2 and padding K / 2. Row h of it meets row y of grad at tap i = h + pad - 2 y: which
// taps those are follows from the parity of h, so a strip that starts at an even row and column knows them at
// compile time, and no product is with a zero between the pixels.
template <int K>
struct HalvedTranspose {
  static constexpr int kKernel = K;
  static constexpr int kAlign = kColumns / 2;

  template <bool kVector, typename T, typename A>
  __device__ static void add(const ImageSizes&, const Strips::Place& at, const Plane<T>& source,
                             const A (&taps)[K * K], StripSums<A>& sums) {
    constexpr int kPad = K / 2;
    constexpr int kBefore = (K - 1 - kPad) / 2;                       // rows of grad above the strip's half
    constexpr int kWindow = (kColumns - 1 + kPad) / 2 + kBefore + 1;  // columns of grad that it meets
    constexpr int kWindowRows = (kStripRows - 1 + kPad) / 2 + kBefore + 1;
#pragma unroll
    for (int b = 0; b < kWindowRows; ++b) {
      A window[kWindow];
      source.template load<kVector, kAlign, kBefore>(at.row / 2 + b - kBefore, at.column / 2, window);
#pragma unroll
      for (int h = 0; h < kStripRows; ++h) {
        const int i = h + kPad - 2 * (b - kBefore);
        if (0 <= i && i < K) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int d = 0; d < kWindow; ++d) {
              const int j = c + kPad - 2 * (d - kBefore);
              if (0 <= j && j < K) {
                sums.of[h][c] += taps[i * K + j] * window[d];
              }
            }
          }
        }
      }
    }
  }
};

// kVector: pad_w is K / 2, and rows are aligned; else any.
template <typename Pass, bool kVector, typename T>
__global__ void __launch_bounds__(kStripThreads)
    depthwise_strips_kernel(ImageSizes p, const T* __restrict__ source, const T* __restrict__ weight,
                            const T* __restrict__ bias, T* __restrict__ target) {
  with_strip<!kVector>(p.staging, source, target, [&](const Strips::Place& at, const T* from, T* to) {
    using A = Accumulate<T>;
    constexpr int kTaps = Pass::kKernel * Pass::kKernel;
    const unsigned channel = at.plane % p.channels;
    A taps[kTaps];
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      taps[t] = A(weight[channel * kTaps + (p.turned ? kTaps - 1 - t : t)]);
    }
    const A start = bias != nullptr ? A(bias[channel]) : A(0);
    StripSums<A> sums;
#pragma unroll
    for (int i = 0; i < kStripRows * kColumns; ++i) {
      sums.of[i / kColumns][i % kColumns] = start;
    }
    Pass::template add<kVector>(p, at, Plane<T>{from, p.source_height, p.source_width}, taps, sums);
#pragma unroll
    for (int y = 0; y < kStripRows; ++y) {
      if (at.row + y < p.target_height) {
        store_row<kVector>(to + (at.row + y) * p.target_width, at.column, p.target_width, sums.of[y]);
      }
    }
  });
}

// From the input of p to its output.
template <typename Pass, typename T>
void launch_contiguous_images(const Problem& p, bool turned, const T* source, const T* weight, const T* bias,
                              T* target, cudaStream_t stream) {
  const Strips strips(p.out_height, p.out_width, kStripRows);
  const unsigned num_strips = unsigned(p.batch * p.out_channels()) * strips.strips_per_plane();
  const int source_plane_size = int(p.height * p.width), target_plane_size = int(p.out_height * p.out_width);
  const bool vector = p.pad_w == Pass::kKernel / 2 && p.width % Pass::kAlign == 0 &&
                      p.out_width % kColumns == 0 && is_aligned(source, sizeof(Pack<T, kColumns>)) &&
                      is_aligned(target, sizeof(Pack<T, kColumns>));
  const int elements = source_plane_size + target_plane_size;
  const int planes = vector ? 0 : staged_planes(strips, kStripThreads, elements, sizeof(T));
  const ImageSizes sizes{
      {strips, num_strips, unsigned(p.multiplier), source_plane_size, target_plane_size, planes},
      unsigned(p.out_channels()),
      int(p.height),
      int(p.width),
      int(p.out_height),
      int(p.out_width),
      int(p.pad_h),
      int(p.pad_w),
      turned};
  const auto kernel =
      vector ? depthwise_strips_kernel<Pass, true, T> : depthwise_strips_kernel<Pass, false, T>;
  const int64_t strips_of_block = planes > 0 ? planes * strips.strips_per_plane() : kStripThreads;
  launch_kernel(kernel, blocks_for(num_strips, strips_of_block), kStripThreads,
                staged_bytes(planes, elements, sizeof(T)), stream, sizes, source, weight, bias, target);
}

}  // namespace detector::depthwise_conv2d
