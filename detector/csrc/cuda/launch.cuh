// What every launch needs: the stream that torch is on, and grids that no size overflows.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>

#include "../tensor.h"

namespace detector {

inline cudaStream_t current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

// Makes the device of a tensor the current one for as long as it lives.
inline torch::stable::accelerator::DeviceGuard device_guard(const Tensor& tensor) {
  return torch::stable::accelerator::DeviceGuard(tensor.get_device_index());
}

inline Tensor on_host(const Tensor& tensor) {
  return torch::stable::to(tensor, torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

// Of the current device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  STD_CUDA_CHECK(cudaGetDevice(&device));
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of `threads` for `work` items in the x dimension of a grid, which holds 2^31 - 1; a kernel that
// strides by the grid does the rest.
inline unsigned blocks_for(int64_t work, int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>(ceil_div(work, threads), 0x7fffffff));
}

}  // namespace detector
