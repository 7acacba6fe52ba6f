// How the channels_last kernels go through an image: a block takes 32 * vector channels of some columns and
// walks down the rows. The rows that it reads pass through a ring in shared memory, filled a few steps ahead
// by asynchronous copies of 16 bytes; a warp has its channels in its lanes and a few columns in its
// registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "../../../depthwise_conv2d_plan.h"
#include "../../launch.cuh"
#include "../../pack.cuh"
#include "../../reduce.cuh"

namespace detector::depthwise_conv2d::channels_last {

// What a kernel is compiled for: a warp computes `columns` columns of 32 * vector channels; at most `warps`
// warps are a block, and `blocks` blocks must fit on a multiprocessor, which limits the registers; the rows
// come in `stages` groups of `rows` steps, with a barrier for each group.
template <int kVector, int kColumns, int kWarps, int kBlocks, int kStages, int kRows>
struct Tile {
  static constexpr int vector = kVector;
  static constexpr int channels = kWarp * kVector;
  static constexpr int columns = kColumns;
  static constexpr int warps = kWarps;
  static constexpr int blocks = kBlocks;
  static constexpr int stages = kStages;
  static constexpr int rows = kRows;
  static constexpr int slots = kStages * kRows;  // steps in the ring
};

// The sizes of one launch. The image that is walked is the output of a forward pass or what takes its place.
struct Walk {
  int channels;
  int source_height, source_width;  // of the image behind the ring
  int height, width;                // of the image that is walked
  int pad_h, pad_w;
  int channel_blocks, column_blocks, row_blocks;
  int rows;  // that a block walks
};

// From the input to the output, or over both for the gradient of the weight.
inline Walk walk_output(const Problem& p) {
  return {.channels = int(p.channels),
          .source_height = int(p.height),
          .source_width = int(p.width),
          .height = int(p.out_height),
          .width = int(p.out_width),
          .pad_h = int(p.pad_h),
          .pad_w = int(p.pad_w)};
}

// From the gradient of the output to that of the input.
inline Walk walk_input(const Problem& p) {
  Walk walk = walk_output(p);
  std::swap(walk.source_height, walk.height);
  std::swap(walk.source_width, walk.width);
  return walk;
}

struct Place {
  int64_t sample;
  int channel, column, row;  // where the block begins
};

__device__ inline Place place_of_block(const Walk& walk, int channels, int columns) {
  unsigned i = blockIdx.x;
  const auto digit = [&](unsigned base) {
    const unsigned remainder = i % base;
    i /= base;
    return int(remainder);
  };
  Place place;
  place.channel = digit(walk.channel_blocks) * channels;
  place.column = digit(walk.column_blocks) * columns;
  place.row = digit(walk.row_blocks) * walk.rows;
  place.sample = i;
  return place;
}

template <int kVector, typename T>
__device__ void load(const T* from, float (&to)[kVector]) {
  const auto pack = load_pack<kVector>(from);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    to[v] = static_cast<float>(pack.values[v]);
  }
}

template <int kVector, typename T>
__device__ void store(const float (&from)[kVector], T* to) {
  Pack<T, kVector> pack;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    pack.values[v] = static_cast<T>(from[v]);
  }
  store_pack(to, pack);
}

// Sixteen bytes from global to shared memory, or zeros: then nothing is read. Asynchronous from compute
// capability 8.0 on.
__device__ inline void copy_async(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(inside ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Until all but the newest kPending groups have come.
template <int kPending>
__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#endif
}

// The part of one sample that a block reads: a window of columns of its channels. Columns and channels
// outside of the image are zeros. Each thread copies the same vector of channels of every so many columns.
template <typename T, int kChannels>
class Window {
 public:
  __device__ Window(const T* image, int height, int width, int channels, const Place& place, int first_row,
                    int first_column, int columns)
      : columns(columns), height_(height), row_stride_(width * channels), row_(first_row) {
    const int thread = threadIdx.y * kWarp + threadIdx.x;
    const int channel = place.channel + thread % kVectors * kVector;
    begin_ = first_column + thread / kVectors;
    end_ = first_column + columns;
    width_ = channel < channels ? width : 0;
    source_ =
        image + (place.sample * height + first_row) * row_stride_ + int64_t(begin_) * channels + channel;
    source_stride_ = blockDim.y * kWarp / kVectors * channels;
    target_ = thread * kVector;
  }

  __device__ bool has_row(int y) const { return unsigned(y) < unsigned(height_); }

  // Row after row, from the first: into shared memory, unless it is outside of the image.
  __device__ void fetch_next(T* slot) {
    if (has_row(row_)) {
      const int step = blockDim.y * kWarp / kVectors;
      const T* source = source_;
      T* target = slot + target_;
      for (int column = begin_; column < end_; column += step) {
        copy_async(target, source, unsigned(column) < unsigned(width_));
        source += source_stride_;
        target += step * kChannels;
      }
    }
    row_ += 1;
    source_ += row_stride_;
  }

  const int columns;

 private:
  static constexpr int kVector = 16 / sizeof(T);  // of an asynchronous copy
  static constexpr int kVectors = kChannels / kVector;
  int height_, width_, row_stride_, row_;
  int begin_, end_;
  int source_stride_, target_;
  const T* source_;
};

// Calls body(0), body(1), ... with constants for as long as it returns true: what they index stays in
// registers.
template <int kCount, typename Body>
__device__ void unrolled_while(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (void)(body(std::integral_constant<int, I>{}) && ...);
  }(std::make_integer_sequence<int, kCount>{});
}

// A window's weights (K * K values a channel), from global memory, each once, to the registers of the lanes.
template <int kWeights, int kVector, typename T>
__device__ void load_weights(const T* weight, int channel, int channels, bool flipped, T* shared,
                             float (&to)[kWeights][kVector]) {
  const int count = min(kWarp * kVector, channels - channel) * kWeights;
  const T* from = weight + int64_t(channel) * kWeights;
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < count; i += blockDim.y * kWarp) {
    shared[i] = from[i];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kWeights; ++k) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const int offset = (threadIdx.x * kVector + v) * kWeights;
      to[k][v] = static_cast<float>(shared[offset + (flipped ? kWeights - 1 - k : k)]);
    }
  }
}

struct Launch {
  dim3 block;
  unsigned grid;
  size_t shared;
};

// The warps of a block, so many that no block has much less to do than another, and that what they need,
// shared_of(warps) bytes, is there. One warp needs less than 48 KiB, which every GPU has.
template <typename Tile, typename Kernel, typename SharedOf>
int cut_columns(Kernel kernel, const SharedOf& shared_of, Walk& walk) {
  const int64_t tiles = ceil_div(walk.width, Tile::columns), most = compiled_kernel(kernel).most_shared;
  int most_warps = Tile::warps;
  while (most_warps > 1 && int64_t(shared_of(most_warps)) > most) {
    most_warps -= 1;
  }
  walk.channel_blocks = ceil_div(walk.channels, Tile::channels);
  walk.column_blocks = ceil_div(tiles, most_warps);
  return ceil_div(tiles, walk.column_blocks);
}

// As many rows a block as give every multiprocessor, with the blocks that fit it, the same to do: `step` rows
// are walked at once, and a block walks `halo` steps besides its own.
template <typename Kernel>
Launch cut_rows(Kernel kernel, int64_t batch, int warps, size_t shared, int step, int halo, Walk& walk) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount);
  int resident = 0;
  compiled_kernel(kernel);  // raises its limit of shared memory
  STD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, warps * kWarp, shared));
  const int64_t steps = ceil_div(walk.height, step);
  const int64_t columns = batch * walk.column_blocks * walk.channel_blocks;
  int64_t best_cost = INT64_MAX, best = 1;
  for (int64_t parts = 1; parts <= std::min<int64_t>(steps, 64); ++parts) {
    const int64_t rounds = ceil_div(columns * parts, processors * std::max(resident, 1));
    const int64_t cost = rounds * (ceil_div(steps, parts) + halo);
    if (cost < best_cost) {
      best_cost = cost;
      best = parts;
    }
  }
  const int64_t steps_of_block = ceil_div(steps, best);
  walk.rows = steps_of_block * step;
  walk.row_blocks = ceil_div(steps, steps_of_block);
  return {dim3(kWarp, warps), static_cast<unsigned>(columns * walk.row_blocks), shared};
}

}  // namespace detector::depthwise_conv2d::channels_last
