// Winograd's maps on a GPU, a thread a tile (or a cell, or nine weights) of several channels. Each moves its
// numbers once: four times as many on the side of the matrices, where neighbouring threads write neighbours.
#include <torch/csrc/stable/library.h>

#include "../winograd_conv2d.h"
#include "launch.cuh"

namespace detector::winograd_conv2d {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChannelsOfThread = 4;  // share the work of finding the place

dim3 grid_of(int64_t places, int64_t channels) {
  const int64_t rows = std::min<int64_t>(ceil_div(channels, kChannelsOfThread), 65535);
  return dim3(blocks_for(places, kThreads), unsigned(rows));
}

__device__ int64_t place_of_thread() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }

// planes (N, C, height, width) to matrices (16, C, padded).
template <bool kOutputs, typename T>
__global__ void __launch_bounds__(kThreads)
    to_matrices_kernel(const T* planes, int64_t channels, int64_t height, int64_t width, Tiles tiles,
                       T* matrices) {
  const int64_t index = place_of_thread(), padded = tiles.padded();
  if (index >= padded) {
    return;
  }
  const bool empty = index >= tiles.count();
  const Tile tile = tiles.at(empty ? 0 : index);
  for (int64_t c = blockIdx.y; c < channels; c += gridDim.y) {
    T values[kPlaces] = {};
    if (!empty) {
      const T* plane = planes + (tile.image * channels + c) * height * width;
      if constexpr (kOutputs) {
        output_tile_transposed(plane, tiles, tile, values);
      } else {
        input_tile(plane, height, width, tiles, tile, values);
      }
    }
    store_places(values, matrices + c * padded + index, channels * padded);
  }
}

// Matrices (16, C, padded) to outputs (N, C, rows, columns).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    to_outputs_kernel(const T* matrices, int64_t channels, Tiles tiles, T* planes) {
  const int64_t index = place_of_thread(), padded = tiles.padded();
  if (index >= tiles.count()) {
    return;
  }
  const Tile tile = tiles.at(index);
  for (int64_t c = blockIdx.y; c < channels; c += gridDim.y) {
    T values[kPlaces];
    load_places(matrices + c * padded + index, channels * padded, values);
    output_tile(values, tiles, tile,
                planes + (tile.image * channels + c) * tiles.rows.size * tiles.columns.size);
  }
}

// The gradient of the matrices to that of the inputs (N, C, height, width).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    to_inputs_kernel(const T* matrices, int64_t channels, int64_t height, int64_t width, Tiles tiles,
                     T* planes) {
  const int64_t index = place_of_thread(), padded = tiles.padded();
  if (index >= tiles.pairs()) {
    return;
  }
  const Tile pair = tiles.pair_at(index);
  for (int64_t c = blockIdx.y; c < channels; c += gridDim.y) {
    input_pairs(matrices + c * padded, channels * padded, tiles, pair, height, width,
                planes + (pair.image * channels + c) * height * width);
  }
}

template <bool kBackward, typename T>
__global__ void __launch_bounds__(kThreads) map_weights_kernel(const T* from, int64_t filters, T* to) {
  const int64_t filter = place_of_thread();
  if (filter >= filters) {
    return;
  }
  T values[kPlaces];
  if constexpr (kBackward) {
    load_places(from + filter, filters, values);
    weight_tile_transposed(values, to + 9 * filter);
  } else {
    weight_tile(from + 9 * filter, values);
    store_places(values, to + filter, filters);
  }
}

struct Cuda {
  static auto guard(const Tensor& tensor) { return device_guard(tensor); }

  template <bool kOutputs, typename T>
  static void to_matrices(const Tensor& planes, const Tiles& tiles, const Tensor& matrices) {
    const int64_t channels = planes.size(1);
    to_matrices_kernel<kOutputs, T>
        <<<grid_of(tiles.padded(), channels), kThreads, 0, current_stream(planes)>>>(
            data<T>(planes), channels, planes.size(2), planes.size(3), tiles, new_data<T>(matrices));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }

  template <typename T>
  static void to_outputs(const Tensor& matrices, const Tiles& tiles, const Tensor& planes) {
    const int64_t channels = planes.size(1);
    to_outputs_kernel<T><<<grid_of(tiles.count(), channels), kThreads, 0, current_stream(planes)>>>(
        data<T>(matrices), channels, tiles, new_data<T>(planes));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }

  template <typename T>
  static void to_inputs(const Tensor& matrices, const Tiles& tiles, const Tensor& planes) {
    const int64_t channels = planes.size(1), height = planes.size(2), width = planes.size(3);
    to_inputs_kernel<T><<<grid_of(tiles.pairs(), channels), kThreads, 0, current_stream(planes)>>>(
        data<T>(matrices), channels, height, width, tiles, new_data<T>(planes));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }

  template <bool kBackward, typename T>
  static void map_weights(const Tensor& from, int64_t filters, const Tensor& to) {
    map_weights_kernel<kBackward, T><<<blocks_for(filters, kThreads), kThreads, 0, current_stream(from)>>>(
        data<T>(from), filters, new_data<T>(to));
    STD_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) { DETECTOR_WINOGRAD_CONV2D_OPS(m, Cuda); }

}  // namespace detector::winograd_conv2d
