// Forward of the large kernels for float16 and bfloat16 in channels_last, on the matrix units. For one
// channel and one kernel row, eight output columns are a product of sixteen input columns with a Toeplitz
// matrix,
//
//   output[h, x0 + n] += sum over k < 16 of input[h + kh, x0 + k] toeplitz[k, n]
//   toeplitz[k, n] = w[kh, k - n]
//
// where 7 of 16 factors are not zero: still several times faster than 7 fused multiply-adds, which would keep
// the kernel from the speed of memory. Products are exact and sums float32, as everywhere.
#pragma once

#include "../tensor_cores.cuh"
#include "planes.cuh"

namespace detector::depthwise_conv2d::channels_last {

// Two chunks stay in the planes; the outputs take the place of the older one until they leave.
struct Toeplitz {
  using Planes = channels_last::Planes<2 * Chunk::rows>;
  static constexpr int warps = Chunk::warps;
  static constexpr int blocks = 2;
  static constexpr int shared_bytes = Chunk::staging_bytes + Planes::bytes;

  static __device__ unsigned offset(unsigned channel, unsigned row, unsigned octet) {
    return Planes::offset(channel, row % (2 * Chunk::rows), octet);
  }
};

template <typename T>
__device__ unsigned pair_of(T first, T second) {
  Pack<T, 2> pack{{first, second}};
  return *reinterpret_cast<unsigned*>(&pack);
}

// The lane's part of the Toeplitz matrices of one channel: toeplitz[2 t + i + 8 half, g] for g = lane / 4 and
// t = lane % 4. `weight` is the channel's kernel, null for a channel that is not there.
template <int K, bool kFlipped, typename T>
__device__ void load_toeplitz(const T* weight, unsigned (&to)[K][2]) {
  const int first = threadIdx.x % 4 * 2 - int(threadIdx.x / 4);
  const T* from = weight + (kFlipped ? K * K - 1 - first : first);
  const auto at = [&](int kh, int i) {
    const bool inside = weight != nullptr && 0 <= first + i && first + i < K;
    return inside ? from[kFlipped ? -(kh * K + i) : kh * K + i] : T(0);
  };
#pragma unroll
  for (int kh = 0; kh < K; ++kh) {
    to[kh][0] = pair_of(at(kh, 0), at(kh, 1));
    to[kh][1] = pair_of(at(kh, 8), at(kh, 9));
  }
}

// The outputs of one channel of a chunk that are not finite, again, as their definition says. `image` and
// `weight` are the channel's, `row` and `column` where the chunk begins.
template <typename T, int K>
__device__ __noinline__ void repair(const Walk& walk, const T* image, const T* weight, bool flipped,
                                    float start, int row, int column, unsigned char* planes, int channel,
                                    int plane_row) {
  for (int i = threadIdx.x; i < Chunk::rows * Chunk::columns; i += kWarp) {
    const int h = i / Chunk::columns, w = i % Chunk::columns;
    T* const output = reinterpret_cast<T*>(planes + Toeplitz::offset(channel, plane_row + h, w / 8)) + w % 8;
    if (isfinite(static_cast<float>(*output))) {
      continue;
    }
    float sum = start;
    for (int k = 0; k < K * K; ++k) {
      const int y = row + h - walk.pad_h + k / K, x = column + w - walk.pad_w + k % K;
      if (unsigned(y) < unsigned(walk.source_height) && unsigned(x) < unsigned(walk.source_width)) {
        const T value = image[(int64_t(y) * walk.source_width + x) * walk.channels];
        sum += static_cast<float>(value) * static_cast<float>(weight[flipped ? K * K - 1 - k : k]);
      }
    }
    *output = static_cast<T>(sum);
  }
}

template <typename T, int K>
__global__ void __launch_bounds__(Toeplitz::warps* kWarp, Toeplitz::blocks)
    toeplitz_kernel(Walk walk, const T* input, const T* weight, const T* bias, bool flipped, T* output) {
  constexpr int kRows = Chunk::rows, kChannels = Chunk::channels / Toeplitz::warps;
  constexpr int kOctets = Chunk::columns / 8, kPairs = (kOctets + 1) / 2;
  static_assert(K <= 9 && K % 2 == 1);
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* const planes_data = shared + Chunk::staging_bytes;
  const unsigned planes = shared_address(planes_data);
  const unsigned lane = threadIdx.x, warp = threadIdx.y;
  const Place place = place_of_block(walk, Chunk::channels, Chunk::columns);
  const int chunks = (min(walk.rows, walk.height - place.row) + kRows - 1) / kRows;

  ChunkReader<T, Toeplitz::Planes> reader(input, walk.source_height, walk.source_width, walk.channels, place,
                                          place.row - walk.pad_h, place.column - walk.pad_w,
                                          Chunk::input_columns, shared);

  reader.fetch();
  commit_copies();
  unsigned toeplitz[kChannels][K][2];
  float start[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const int channel = place.channel + int(warp * kChannels) + c;
    const bool exists = channel < walk.channels;
    const T* channel_weight = exists ? weight + int64_t(channel) * K * K : nullptr;
    if (flipped) {
      load_toeplitz<K, true>(channel_weight, toeplitz[c]);
    } else {
      load_toeplitz<K, false>(channel_weight, toeplitz[c]);
    }
    start[c] = exists && bias != nullptr ? static_cast<float>(bias[channel]) : 0.0f;
  }
  wait_for_copies<0>();
  __syncthreads();
  reader.transpose(planes_data, 0);
  __syncthreads();
  reader.fetch();
  commit_copies();

  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_for_copies<0>();
    __syncthreads();  // the next chunk is there, and the outputs of the last one have left
    reader.transpose(planes_data, (chunk + 1) % 2 * kRows);
    __syncthreads();
    if (chunk + 1 < chunks) {
      reader.fetch();
    }
    commit_copies();
    // Where lanes 8 i ... 8 i + 7 read octet i of the eight rows from kh on, in the first plane
    unsigned rows[K];
#pragma unroll
    for (int kh = 0; kh < K; ++kh) {
      rows[kh] = planes + Toeplitz::offset(warp * kChannels, chunk * kRows + kh + lane % 8, lane / 8);
    }
    unsigned broken = 0;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const unsigned channel = warp * kChannels + c;
      float sums[kPairs][4];  // rows 0-7 of the matrix are eight columns, rows 8-15 the next eight
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[p][i] = start[c];
        }
      }
#pragma unroll
      for (int kh = 0; kh < K; ++kh) {
        unsigned octets[2][4];
        load_matrices(rows[kh] + c * Toeplitz::Planes::plane_bytes, octets[0]);
        load_matrices(rows[kh] + c * Toeplitz::Planes::plane_bytes + 4 * 16, octets[1]);
        const auto at = [&](int i) { return i < 8 ? octets[i / 4][i % 4] : 0u; };
#pragma unroll
        for (int p = 0; p < kPairs; ++p) {
          depthwise_conv2d::multiply_add<T>(sums[p], at(2 * p), at(2 * p + 1), at(2 * p + 1), at(2 * p + 2),
                                            toeplitz[c][kh][0], toeplitz[c][kh][1]);
        }
      }
      __syncwarp();  // the rows have been read
      float zero = 0;
#pragma unroll
      for (unsigned i = 0; i < kOctets; ++i) {
        const float first = sums[i / 2][i % 2 * 2], second = sums[i / 2][i % 2 * 2 + 1];
        zero += 0 * first + 0 * second;
        const unsigned pair = pair_of(static_cast<T>(first), static_cast<T>(second));
        const int offset = Toeplitz::offset(channel, chunk * kRows + lane / 4, i) + lane % 4 * 4;
        *reinterpret_cast<unsigned*>(planes_data + offset) = pair;
      }
      broken |= __any_sync(0xffffffffu, zero != 0) << c;
    }
    // An infinity or NaN times a zero of a Toeplitz matrix is a NaN that the definition does not have.
    __syncwarp();  // the plane is written before it is repaired
    for (int c = 0; broken >> c != 0; ++c) {
      const int channel = place.channel + int(warp * kChannels) + c;
      if (broken >> c & 1 && channel < walk.channels) {
        const int64_t sample = place.sample * walk.source_height * walk.source_width * walk.channels;
        repair<T, K>(walk, input + sample + channel, weight + channel * K * K, flipped,
                     bias != nullptr ? static_cast<float>(bias[channel]) : 0.0f, place.row + chunk * kRows,
                     place.column, planes_data, warp * kChannels + c, chunk * kRows);
      }
    }
    __syncthreads();
    // A warp writes one row. Lane 4 g + t gets the channels 8 t ... 8 t + 7 of column g.
    const int y = place.row + chunk * kRows + int(warp);
    const int channel = place.channel + int(lane % 4 * 8);
    if (y < walk.height) {
      T* out = output + (place.sample * walk.height + y) * walk.width * walk.channels + channel;
#pragma unroll
      for (unsigned i = 0; i < kOctets; ++i) {
        union {
          unsigned matrices[4];
          uint4 vector;
        };
        const unsigned from = lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
        load_transposed(planes + Toeplitz::offset(from, chunk * kRows + warp, i), matrices);
        const int x = place.column + int(i * 8 + lane / 4);
        if (x < walk.width && channel < walk.channels) {
          *reinterpret_cast<uint4*>(out + int64_t(x) * walk.channels) = vector;
        }
      }
    }
  }
}

template <typename T, int K>
void launch_toeplitz(Walk walk, int64_t batch, const T* input, const T* weight, const T* bias, bool flipped,
                     T* output, cudaStream_t stream) {
  walk.channel_blocks = ceil_div(walk.channels, Chunk::channels);
  walk.column_blocks = ceil_div(walk.width, Chunk::columns);
  const auto kernel = toeplitz_kernel<T, K>;
  const Launch launch =
      cut_rows(kernel, batch, Toeplitz::warps, Toeplitz::shared_bytes, Chunk::rows, 1, walk);
  launch_kernel(kernel, launch.grid, launch.block, launch.shared, stream, walk, input, weight, bias, flipped,
                output);
}

}  // namespace detector::depthwise_conv2d::channels_last
