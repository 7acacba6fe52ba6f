// What the kernels are compiled for, as measured on an H200 (percent of the copy bandwidth).
#pragma once

#include <type_traits>

#include "walk.cuh"

namespace detector::depthwise_conv2d::channels_last {

template <typename T, int K>
constexpr auto forward_tile() {
  if constexpr (K == 3 && sizeof(T) == 4) {
    return Tile<2, 4, 8, 3, 4, 1>{};
  } else if constexpr (K == 3) {
    return Tile<4, 4, 8, 2, 4, 1>{};
  } else {
    return Tile<1, 7, 8, 2, 4, 1>{};
  }
}

template <typename T, int K>
using ForwardTile = decltype(forward_tile<T, K>());

template <typename T, int K>
constexpr auto transposed_tile() {
  if constexpr (K == 3 && sizeof(T) == 4) {
    return Tile<2, 4, 8, 3, 4, 1>{};
  } else if constexpr (K == 3) {
    return Tile<4, 4, 8, 2, 4, 1>{};
  } else {
    return Tile<1, 6, 8, 2, 4, 1>{};
  }
}

template <typename T, int K>
using TransposedTile = decltype(transposed_tile<T, K>());

template <typename T, int K>
constexpr auto grad_weight_tile() {
  if constexpr (K == 3 && sizeof(T) == 4) {
    return Tile<2, 8, 8, 2, 4, 1>{};
  } else if constexpr (K == 3) {
    return Tile<4, 4, 8, 2, 4, 1>{};
  } else {
    return Tile<1, 7, 8, 2, 4, 1>{};
  }
}

template <typename T, int K>
using GradWeightTile = decltype(grad_weight_tile<T, K>());

}  // namespace detector::depthwise_conv2d::channels_last
