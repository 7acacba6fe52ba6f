// Memory layouts: what lets a kernel walk memory in order instead of index by index.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "memory.h"

namespace detector {

// Whether the elements fill one stretch of memory, each once: contiguous but for the order of dimensions.
inline bool is_dense(const Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return true;
  }
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1) {
      dimensions.emplace_back(tensor.stride(i), tensor.size(i));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t elements = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != elements) {
      return false;
    }
    elements *= size;
  }
  return true;
}

// Tensors of one shape and layout that are dense hold element i of memory in the same place.
inline bool same_layout(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) {
      return false;
    }
  }
  return true;
}

// A new tensor laid out as the dense `model` is.
inline Tensor allocate_like(const Tensor& model) {
  return allocate_strided(model, model.sizes(), model.strides());
}

// The tensor itself where it is laid out as the dense `model` is, else a copy that is.
inline Tensor laid_out_as(const Tensor& model, const Tensor& tensor) {
  if (same_layout(model, tensor)) {
    return tensor;
  }
  Tensor copy = allocate_like(model);
  torch::stable::copy_(copy, tensor);
  return copy;
}

// The tensor itself if dense, else a dense copy. torch knows in which order the dimensions lie then, and is
// asked for it with tensors that have no memory.
inline Tensor dense(const Tensor& tensor) {
  if (is_dense(tensor)) {
    return tensor;
  }
  AtenTensorHandle shape_only = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      tensor.dim(), tensor.sizes().data(), tensor.strides().data(),
      torch::stable::detail::to<int32_t>(torch::stable::detail::from(tensor.scalar_type())),
      aoti_torch_device_type_meta(), 0, &shape_only));
  const Tensor model = torch::stable::empty_like(Tensor(shape_only));
  Tensor copy = allocate_strided(tensor, model.sizes(), model.strides());
  torch::stable::copy_(copy, tensor);
  return copy;
}

// ---- images (N, C, H, W): channels_last stays so; everything else is taken as contiguous ----

// Whether an image lies in memory as (N, H, W, C), and not also as (N, C, H, W). The stride of a dimension of
// size 1 does not count, as in torch.
inline bool is_channels_last(const Tensor& tensor) {
  int64_t expected = 1;
  for (const int i : {1, 3, 2, 0}) {
    if (tensor.size(i) != 1 && tensor.stride(i) != expected) {
      return false;
    }
    expected *= tensor.size(i);
  }
  return !tensor.is_contiguous();
}

// The tensor itself if it lies so, else a copy that does.
inline Tensor in_layout(const Tensor& tensor, bool channels_last) {
  if (channels_last ? is_channels_last(tensor) : tensor.is_contiguous()) {
    return tensor;
  }
  const auto sizes = tensor.sizes();
  Tensor copy = allocate_images(tensor, {sizes[0], sizes[1], sizes[2], sizes[3]}, channels_last);
  torch::stable::copy_(copy, tensor);
  return copy;
}

}  // namespace detector
