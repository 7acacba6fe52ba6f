// Gradient of the weight of the large kernels for float16 and bfloat16 in channels_last, on the matrix units.
// For one channel and one kernel row, the products of all columns of the gradient with all columns of the
// input,
//
//   pairs[m, n] = sum over rows h of grad[h, x0 + m] input[h + kh, x0 + n],
//
// hold in their diagonal n - m = kw what weight (kh, kw) gets. Eight columns m meet the eight columns n at
// the same place and the next eight; the pairs add up over all rows and columns, and their diagonals are
// summed at the end.
#pragma once

#include "grad_weight.cuh"
#include "planes.cuh"

namespace detector::depthwise_conv2d::channels_last {

// Two chunks of the input and one of the gradient lie in the planes. Half of the warps bring the input, the
// others the gradient; each multiplies two channels.
struct Pairs {
  static constexpr int grad_row = 2 * Chunk::rows;
  using Planes = channels_last::Planes<grad_row + Chunk::rows>;
  static constexpr int warps = 2 * Chunk::warps;
  static constexpr int shared_bytes = 2 * Chunk::staging_bytes + Planes::bytes;
};

// sums (16 x 8) += a (16 x 8) b (8 x 8)
template <typename T>
__device__ void multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(b));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
#endif
}

// The K * K sums of one channel's diagonals, from a warp's pairs: pairs[kh][2 i + j] is row g + 8 i and
// column 2 t + j for g = lane / 4 and t = lane % 4, where rows from 8 on are m for the next eight columns n.
// `scratch` is the warp's.
template <int K>
__device__ void sum_diagonals(const float (&pairs)[K][4], float (*scratch)[16][8], float* to, int stride) {
  const int lane = threadIdx.x;
#pragma unroll
  for (int kh = 0; kh < K; ++kh) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scratch[kh][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = pairs[kh][i];
    }
  }
  __syncwarp();
  for (int k = lane; k < K * K; k += kWarp) {
    float sum = 0;
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      const int n = m + k % K;
      sum += scratch[k / K][m + n / 8 * 8][n % 8];
    }
    to[int64_t(k) * stride] = sum;
  }
  __syncwarp();
}

template <typename T, int K>
__global__ void __launch_bounds__(Pairs::warps* kWarp, 1)
    pairs_kernel(Walk walk, const T* input, const T* grad, float* partial) {
  constexpr int kRows = Chunk::rows, kChannels = Chunk::channels / Pairs::warps;
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* const planes_data = shared + 2 * Chunk::staging_bytes;
  const unsigned planes = shared_address(planes_data);
  const unsigned lane = threadIdx.x, warp = threadIdx.y;
  const Place place = place_of_block(walk, Chunk::channels, Chunk::columns);
  const int chunks = (min(walk.rows, walk.height - place.row) + kRows - 1) / kRows;
  const bool brings_input = warp < Chunk::warps;
  auto reader =
      brings_input
          ? ChunkReader<T, Pairs::Planes>(input, walk.source_height, walk.source_width, walk.channels, place,
                                          place.row - walk.pad_h, place.column - walk.pad_w,
                                          Chunk::input_columns, shared)
          : ChunkReader<T, Pairs::Planes>(grad, walk.height, walk.width, walk.channels, place, place.row,
                                          place.column, Chunk::columns, shared + Chunk::staging_bytes);
  if (brings_input) {
    reader.fetch();
  }
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();
  if (brings_input) {
    reader.transpose(planes_data, 0);
  }
  __syncthreads();
  reader.fetch();
  commit_copies();

  float pairs[kChannels][K][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_for_copies<0>();
    __syncthreads();  // the chunk of the gradient and the next of the input are there, the last is done
    reader.transpose(planes_data, brings_input ? (chunk + 1) % 2 * kRows : Pairs::grad_row);
    __syncthreads();
    if (chunk + 1 < chunks) {
      reader.fetch();
    }
    commit_copies();
    const auto load_row = [&](int c, unsigned row, unsigned (&to)[2][4]) {
      const unsigned address =
          planes + c * Pairs::Planes::plane_bytes + Pairs::Planes::offset(warp * kChannels, row, lane / 8);
      load_transposed(address, to[0]);
      load_transposed(address + 4 * 16, to[1]);
    };
    unsigned grads[kChannels][2][4], inputs[kChannels][2][4];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      load_row(c, Pairs::grad_row + lane % 8, grads[c]);
    }
#pragma unroll
    for (int kh = 0; kh < K; ++kh) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        load_row(c, (chunk * kRows + kh + lane % 8) % (2 * kRows), inputs[c]);
      }
#pragma unroll
      for (int i = 0; i < Chunk::input_columns / 8; ++i) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {  // inside, as a sum waits for its last product
          const unsigned last = i > 0 ? grads[c][(i - 1) / 4][(i - 1) % 4] : 0;
          multiply_add<T>(pairs[c][kh], grads[c][i / 4][i % 4], last, inputs[c][i / 4][i % 4]);
        }
      }
    }
  }

  __syncthreads();
  static_assert(Pairs::warps * sizeof(float) * K * 16 * 8 <= 2 * Chunk::staging_bytes);
  auto* const scratch = reinterpret_cast<float (*)[16][8]>(shared) + warp * K;
  float* const block_partial = partial + int64_t(blockIdx.x / walk.channel_blocks) * (K * K) * walk.channels;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const int channel = place.channel + int(warp * kChannels) + c;
    if (channel < walk.channels) {
      sum_diagonals<K>(pairs[c], scratch, block_partial + channel, walk.channels);
    }
  }
}

template <typename T, int K, typename Allocate>
void launch_pairs(Walk walk, int64_t batch, const T* input, const T* grad, T* grad_weight,
                  const Allocate& allocate, cudaStream_t stream) {
  walk.channel_blocks = ceil_div(walk.channels, Chunk::channels);
  walk.column_blocks = ceil_div(walk.width, Chunk::columns);
  const auto kernel = pairs_kernel<T, K>;
  const Launch launch = cut_rows(kernel, batch, Pairs::warps, Pairs::shared_bytes, Chunk::rows, 1, walk);
  const int64_t blocks = launch.grid / walk.channel_blocks;
  float* partial = allocate(blocks * K * K * walk.channels);
  launch_kernel(kernel, launch.grid, launch.block, launch.shared, stream, walk, input, grad, partial);
  add_partials(partial, blocks, K * K, walk.channels, grad_weight, stream);
}

}  // namespace detector::depthwise_conv2d::channels_last
