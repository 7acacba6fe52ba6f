// What the host prepares for kernels: the device, memory and views, made without torch's dispatcher: a call
// through it takes the host some microseconds, longer than a GPU needs for a small op.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "tensor.h"

namespace detector {

// Makes the device of a tensor on a GPU the current one for as long as the result lives.
inline std::optional<torch::stable::accelerator::DeviceGuard> device_guard(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return std::nullopt;
  }
  return std::make_optional<torch::stable::accelerator::DeviceGuard>(tensor.get_device_index());
}

// A new tensor (elements,) where `like` is, after an allocation failed; raises what torch raises where the
// memory of the device does not hold it.
Tensor allocate_again(const Tensor& like, int64_t elements, int32_t dtype);

// A part of the memory of a tensor, `offset` elements behind its first.
inline Tensor part(const Tensor& of, int64_t offset, Lengths sizes, Lengths strides) {
  AtenTensorHandle tensor = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(of.get(), int64_t(sizes.size()), sizes.data(),
                                                        strides.data(), offset, &tensor));
  return Tensor(tensor);
}

// The elements from the first to the last of a strided tensor.
inline int64_t extent(Lengths shape, Lengths strides) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) {
      return 0;
    }
    last += (shape[i] - 1) * strides[i];
  }
  return last + 1;
}

// A new tensor where `like` is, in its dtype if none is given; nothing is written to it.
inline Tensor allocate_strided(const Tensor& like, Lengths shape, Lengths strides,
                               std::optional<ScalarType> type = std::nullopt) {
  int32_t device = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  const auto dtype =
      torch::stable::detail::to<int32_t>(torch::stable::detail::from(type.value_or(like.scalar_type())));
  AtenTensorHandle tensor = nullptr;
  if (aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), strides.data(), dtype, device,
                               like.get_device_index(), &tensor) != AOTI_TORCH_SUCCESS) {
    return part(allocate_again(like, extent(shape, strides), dtype), 0, shape, strides);
  }
  return Tensor(tensor);
}

// The number of elements of a block of memory; an error where int64 does not hold it.
inline int64_t checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    fail("detector: a tensor of ", a, " times ", b, " elements is wanted, expected fewer than 2^63");
  }
  return product;
}

// The same, contiguous.
inline Tensor allocate(const Tensor& like, Lengths shape, std::optional<ScalarType> type = std::nullopt) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i > 1; --i) {
    strides[i - 2] = checked_product(strides[i - 1], std::max<int64_t>(shape[i - 1], 1));
  }
  return allocate_strided(like, shape, strides, type);
}

// A new tensor (N, C, H, W), which lies in memory as (N, H, W, C) with `channels_last`.
inline Tensor allocate_images(const Tensor& like, const std::array<int64_t, 4>& shape, bool channels_last) {
  if (!channels_last) {
    return allocate(like, shape);
  }
  const auto& [images, channels, height, width] = shape;
  const int64_t row = checked_product(width, channels);
  return allocate_strided(like, shape,
                          std::array<int64_t, 4>{checked_product(height, row), 1, row, channels});
}

// The tensor itself if contiguous, else a copy that is.
inline Tensor as_contiguous(const Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  Tensor copy = allocate(tensor, tensor.sizes());
  torch::stable::copy_(copy, tensor);
  return copy;
}

// The tensor itself if of that dtype, else a contiguous copy that is.
inline Tensor as_type(const Tensor& tensor, ScalarType type) {
  if (tensor.scalar_type() == type) {
    return tensor;
  }
  Tensor copy = allocate(tensor, tensor.sizes(), type);
  torch::stable::copy_(copy, tensor);
  return copy;
}

// The tensor itself if on the CPU, else a copy there.
inline Tensor on_host(const Tensor& tensor) {
  const torch::stable::Device host(torch::headeronly::DeviceType::CPU);
  return tensor.is_cpu() ? tensor : torch::stable::to(tensor, host);
}

}  // namespace detector
