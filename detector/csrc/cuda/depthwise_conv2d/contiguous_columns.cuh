// The forward pass of the large kernels on contiguous planes, and grad_input of stride 1 with the kernel
// turned. A thread walks down four columns of a plane. It meets each row of the input once: the row adds to
// every output row that it touches, and those wait in registers. The rows come through a ring in shared
// memory, filled some steps ahead by asynchronous copies, so that no register waits for global memory and no
// tap is read twice. Strips (contiguous_forward.cuh) have a third of their instructions beside the products.
#pragma once

#include "channels_last/walk.cuh"
#include "strips.cuh"

namespace detector::depthwise_conv2d {

constexpr int kColumnThreads = 128;  // of a block at most

// Four elements from global to shared memory, which the thread waits for later.
template <typename Vector>
__device__ void copy_vector(Vector* to, const void* from) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "n"(int(sizeof(Vector)))
               : "memory");
#endif
}

struct ColumnSizes {
  int height, width, out_height, pad_h;
  int across;              // threads of a row
  int planes, num_planes;  // of a block, of all
  int out_channels, multiplier;
  int rows, segments;  // rows that a block walks; of a plane
  bool turned;         // read the kernel from its last tap to its first
};

// kSlots rows in the ring; a barrier every kGroup rows.
template <typename T, int K, int kSlots, int kGroup, int kBlocks>
__global__ void __launch_bounds__(kColumnThreads, kBlocks)
    contiguous_columns_kernel(ColumnSizes p, const T* __restrict__ input, const T* __restrict__ weight,
                              const T* __restrict__ bias, T* __restrict__ output) {
  using Vector = Pack<T, kColumns>;
  extern __shared__ uint4 shared[];
  Vector* const ring = reinterpret_cast<Vector*>(shared);  // a row: a zero, a plane, a zero, a plane ... zero
  const int pitch = p.planes * (p.across + 1) + 1;
  const int own = threadIdx.x / p.across, group = threadIdx.x - own * p.across;
  const int plane = int(blockIdx.x) / p.segments * p.planes + own;
  const int first_out = int(blockIdx.x) % p.segments * p.rows, first_row = first_out - p.pad_h;
  const bool exists = own < p.planes && plane < p.num_planes;
  const int place = exists ? own * (p.across + 1) + group + 1 : 1;
  const int rows = min(p.rows, p.out_height - first_out), steps = rows + K - 1;
  for (int i = threadIdx.x; i < kSlots * (p.planes + 1); i += blockDim.x) {
    ring[i / (p.planes + 1) * pitch + i % (p.planes + 1) * (p.across + 1)] = Vector{};
  }
  const T* source =
      input + (int64_t(plane / p.multiplier) * p.height + first_row) * p.width + group * kColumns;
  int fetched = 0, fetch_slot = 0;
  const auto fetch = [&] {
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      if (exists && fetched < steps && unsigned(first_row + fetched) < unsigned(p.height)) {
        copy_vector(ring + fetch_slot * pitch + place, source);
      }
      source += p.width;
      fetched += 1;
      fetch_slot = fetch_slot + 1 == kSlots ? 0 : fetch_slot + 1;
    }
    channels_last::commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kSlots - kGroup; i += kGroup) {
    fetch();
  }

  const int channel = exists ? plane % p.out_channels : 0;
  float taps[K * K];
#pragma unroll
  for (int t = 0; t < K * K; ++t) {
    taps[t] = float(weight[channel * (K * K) + (p.turned ? K * K - 1 - t : t)]);
  }
  const float start = bias != nullptr ? float(bias[channel]) : 0.f;
  float sums[K][kColumns] = {};
  T* out = output + (int64_t(plane) * p.out_height + first_out) * p.width + group * kColumns;
  int slot = 0;
  for (int first = 0; first < steps; first += K) {
    channels_last::unrolled_while<K>([&](auto constant) {  // output row o is in sums[o % K]
      constexpr int kPhase = decltype(constant)::value;
      const int step = first + kPhase;
      if (step >= steps) {
        return false;
      }
      if (step % kGroup == 0) {
        channels_last::wait_for_copies<kSlots / kGroup - 2>();
        __syncthreads();
        fetch();
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        sums[kPhase][c] = start;
      }
      if (unsigned(first_row + step) < unsigned(p.height)) {
        const Vector* const at = ring + slot * pitch + place;
        float window[3 * kColumns];
#pragma unroll
        for (int v = 0; v < 3; ++v) {
          const Vector vector = at[v - 1];
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            window[v * kColumns + c] = float(vector.values[c]);
          }
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
#pragma unroll
          for (int j = 0; j < K; ++j) {
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
              sums[(kPhase - i + K) % K][c] += taps[i * K + j] * window[kColumns + c + j - K / 2];
            }
          }
        }
      }
      slot = slot + 1 == kSlots ? 0 : slot + 1;
      if (step >= K - 1) {
        if (exists) {
          store_row<true>(out, 0, kColumns, sums[(kPhase + 1) % K]);
        }
        out += p.width;
      }
      return true;
    });
  }
}

inline int columns_across(const Problem& p) { return int(p.width / kColumns); }

template <typename T>
bool columns_fit(const Problem& p, const T* input, const T* output) {
  return p.pad_w == p.kernel_w / 2 && p.width == p.out_width && p.width % kColumns == 0 &&
         columns_across(p) <= kColumnThreads && aligned(input) && aligned(output) &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) >= 8;
}

// Rows that a block walks: the fewer, the more rows are read by two blocks; the more, the fewer blocks there
// are. Microseconds on an H200 for float32, 32 x 256 x 56 x 56, by 56, 28, 19 and 14 rows: 5 x 5 66, 61, 61
// and 59, where memory limits; 7 x 7 70, 79, 90 and 97, where products do.
template <int K>
int rows_to_walk(const Problem& p, int64_t groups) {
  constexpr int64_t kEnoughBlocks = 512;
  int64_t rows = K == 5 ? 28 : 64;
  while (groups * ceil_div(p.out_height, rows) < kEnoughBlocks && rows > 2 * K) {
    rows /= 2;
  }
  return int(ceil_div(p.out_height, ceil_div(p.out_height, rows)));
}

template <int K, typename T>
void launch_contiguous_columns(const Problem& p, bool turned, const T* input, const T* weight, const T* bias,
                               T* output, cudaStream_t stream) {
  constexpr int kSlots = 8, kGroup = 2, kBlocks = K == 5 ? 7 : 4;
  const int across = columns_across(p), planes = kColumnThreads / across;
  const int64_t num_planes = p.batch * p.out_channels(), groups = ceil_div(num_planes, planes);
  const int rows = rows_to_walk<K>(p, groups), segments = int(ceil_div(p.out_height, rows));
  const ColumnSizes sizes{int(p.height), int(p.width),    int(p.out_height),     int(p.pad_h),      across,
                          planes,        int(num_planes), int(p.out_channels()), int(p.multiplier), rows,
                          segments,      turned};
  const int threads = int(ceil_div(planes * across, kWarp)) * kWarp;
  const size_t bytes = size_t(kSlots) * (planes * (across + 1) + 1) * sizeof(Pack<T, kColumns>);
  contiguous_columns_kernel<T, K, kSlots, kGroup, kBlocks>
      <<<unsigned(groups * segments), threads, bytes, stream>>>(sizes, input, weight, bias, output);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace detector::depthwise_conv2d
