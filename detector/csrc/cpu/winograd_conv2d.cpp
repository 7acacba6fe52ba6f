// Winograd's maps on the CPU, channel by channel.
#include "../winograd_conv2d.h"

#include <torch/csrc/stable/library.h>

#include "parallel.h"

namespace detector::winograd_conv2d {
namespace {

constexpr int64_t kGrain = 32768;  // numbers; fewer are done before a second thread wakes

// Calls body(c) for every channel.
template <typename Body>
void for_channels(int64_t channels, int64_t numbers_of_channel, const Body& body) {
  const int64_t grain = kGrain / (numbers_of_channel + 1) + 1;
  parallel_for(channels, grain, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      body(c);
    }
  });
}

struct Cpu {
  static int guard(const Tensor&) { return 0; }

  template <bool kOutputs, typename T>
  static void to_matrices(const Tensor& planes, const Tiles& tiles, const Tensor& matrices) {
    const int64_t channels = planes.size(1), height = planes.size(2), width = planes.size(3);
    const int64_t padded = tiles.padded();
    const T* from = data<T>(planes);
    T* to = new_data<T>(matrices);
    for_channels(channels, kPlaces * padded, [=](int64_t c) {
      for (int64_t index = 0; index < padded; ++index) {
        T values[kPlaces] = {};
        if (index < tiles.count()) {
          const Tile tile = tiles.at(index);
          const T* plane = from + (tile.image * channels + c) * height * width;
          if constexpr (kOutputs) {
            output_tile_transposed(plane, tiles, tile, values);
          } else {
            input_tile(plane, height, width, tiles, tile, values);
          }
        }
        store_places(values, to + c * padded + index, channels * padded);
      }
    });
  }

  template <typename T>
  static void to_outputs(const Tensor& matrices, const Tiles& tiles, const Tensor& planes) {
    const int64_t channels = planes.size(1), padded = tiles.padded();
    const T* from = data<T>(matrices);
    T* to = new_data<T>(planes);
    for_channels(channels, kPlaces * padded, [=](int64_t c) {
      for (int64_t index = 0; index < tiles.count(); ++index) {
        T values[kPlaces];
        load_places(from + c * padded + index, channels * padded, values);
        const Tile tile = tiles.at(index);
        output_tile(values, tiles, tile,
                    to + (tile.image * channels + c) * tiles.rows.size * tiles.columns.size);
      }
    });
  }

  template <typename T>
  static void to_inputs(const Tensor& matrices, const Tiles& tiles, const Tensor& planes) {
    const int64_t channels = planes.size(1), height = planes.size(2), width = planes.size(3);
    const int64_t padded = tiles.padded();
    const T* from = data<T>(matrices);
    T* to = new_data<T>(planes);
    for_channels(channels, kPlaces * padded, [=](int64_t c) {
      for (int64_t index = 0; index < tiles.pairs(); ++index) {
        const Tile pair = tiles.pair_at(index);
        input_pairs(from + c * padded, channels * padded, tiles, pair, height, width,
                    to + (pair.image * channels + c) * height * width);
      }
    });
  }

  template <bool kBackward, typename T>
  static void map_weights(const Tensor& from_tensor, int64_t filters, const Tensor& to_tensor) {
    const T* from = data<T>(from_tensor);
    T* to = new_data<T>(to_tensor);
    for_channels(filters, kPlaces, [=](int64_t filter) {
      T values[kPlaces];
      if constexpr (kBackward) {
        load_places(from + filter, filters, values);
        weight_tile_transposed(values, to + 9 * filter);
      } else {
        weight_tile(from + 9 * filter, values);
        store_places(values, to + filter, filters);
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { DETECTOR_WINOGRAD_CONV2D_OPS(m, Cpu); }

}  // namespace detector::winograd_conv2d
