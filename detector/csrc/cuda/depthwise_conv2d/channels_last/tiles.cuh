// What the kernels are compiled for.
//
// Measured on an H200 with 32 x 256 x 112 x 112 (3 x 3) and 32 x 256 x 56 x 56 (5 x 5, 7 x 7), microseconds
// for vector x columns:
//
//   3 x 3 float32, forward      2 x 4: 219   4 x 4: 228   2 x 8: 223   1 x 8: 249   1 x 4: 233
//   3 x 3 float32, grad_weight  2 x 4: 205-225   4 x 4: 195   2 x 8: 190   1 x 8: 201
//   3 x 3 float16, forward      2 x 4: 139   4 x 4: 115   2 x 8: 120
//   5 x 5 float32, forward      1 x 8: 64   1 x 7: 67-69   1 x 14: 68   2 x 4: 72   1 x 4: 85
//   5 x 5 float32, grad_weight  1 x 7: 65   1 x 8: 70   2 x 4: 82   1 x 4: 110
//   7 x 7 float32, forward      1 x 7: 81   1 x 8: 104   1 x 4: 102
//   7 x 7 float32, grad_weight  1 x 7: 97   1 x 8: 115   1 x 4: 120
//
// and 3 x 3 with stride 2 in float32, vector x columns x stages:
//
//   forward      2 x 4 x 4: 125   2 x 4 x 3: 126   2 x 7 x 3: 126   2 x 2 x 3, x 4: 128   4 x 2 x 3: 129
//                1 x 7 x 3: 130   1 x 4 x 4: 131   4 x 1 x 4: 131
//   grad_weight  2 x 7 x 3: 120   2 x 4 x 3: 120   1 x 7 x 3: 121   2 x 4 x 4, 2 x 2 x 3, 4 x 2 x 3: 123
//                1 x 4 x 4: 130   2 x 2 x 4: 132   4 x 1 x 4: 144
//
// 3 x 3 float32, grad_weight, for planes of 7, 14, 28 and 112 columns (256 x 512, 256 x 512, 128 x 512 and
// 32 x 256 of them), vector x columns x stages; in brackets with one sample a block:
//
//   2 x 8 x 4: 22, 63, 107, 190 (27, 66, 111, 188)   2 x 7 x 4: 22, 62, 106, 190
//   2 x 7 x 3: 20, 58, 102, 189 (23, 62, 103, 192)   1 x 7 x 4: 24, 61, 108, 198
//
// Blocks of four warps instead of eight, and a barrier every two rows instead of each: 0-5 % slower.
#pragma once

#include "walk.cuh"

namespace detector::depthwise_conv2d::channels_last {

template <typename T, int K, int S>
constexpr auto forward_tile() {
  constexpr bool wide = sizeof(T) == 4;
  if constexpr (K == 3) {
    return Tile<wide ? 2 : 4, wide || S == 1 ? 4 : 2, 8, wide && S == 1 ? 3 : 2, 4, 1>{};
  } else {
    return Tile<1, K == 5 ? 8 : 7, 8, 2, 4, 1>{};
  }
}

template <typename T, int K, int S>
constexpr auto grad_weight_tile() {
  constexpr bool wide = sizeof(T) == 4;
  if constexpr (K == 3 && S == 2) {
    return Tile<wide ? 2 : 4, wide ? 4 : 2, 8, 2, wide ? 3 : 4, 1>{};
  } else {
    return Tile<K == 3 ? 2 : 1, 7, 8, 2, K == 3 && wide ? 3 : 4, 1>{};
  }
}

}  // namespace detector::depthwise_conv2d::channels_last
