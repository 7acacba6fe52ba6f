// What every op needs of a tensor: errors that name the argument, strided views for the kernels, and the step
// from a run-time dtype to a C++ type.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/macros/Macros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace detector {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Lengths = torch::headeronly::IntHeaderOnlyArrayRef;

// ---- errors: "op: argument ..., what came, what was expected" ----

// No C++ streams: torch's libraries export copies of a part of them, and what was compiled beside a newer
// libstdc++ than theirs crashed in the constructor of an std::ostringstream.
template <typename Part>
void append(std::string& text, const Part& part) {
  if constexpr (std::is_floating_point_v<Part>) {
    std::array<char, 32> digits;
    std::snprintf(digits.data(), digits.size(), "%g", double(part));
    text += digits.data();
  } else if constexpr (std::is_integral_v<Part> && !std::is_same_v<Part, char>) {
    text += std::to_string(part);
  } else {
    text += part;
  }
}

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw std::runtime_error(joined(parts...));  // RuntimeError in Python
}

// As Python writes a tuple.
template <typename Range>
std::string tuple_text(const Range& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    append(text, joined(text.empty() ? "(" : ", ", number));
  }
  return text.empty() ? "()" : text + (numbers.size() == 1 ? ",)" : ")");
}

inline std::string shape_text(const Tensor& tensor) { return tuple_text(tensor.sizes()); }

inline void check_dtype(const char* op, const char* name, const Tensor& tensor, ScalarType expected) {
  if (tensor.scalar_type() != expected) {
    fail(op, ": ", name, " is ", torch::headeronly::toString(tensor.scalar_type()), ", expected ",
         torch::headeronly::toString(expected));
  }
}

inline void check_rank(const char* op, const char* name, const Tensor& tensor, int64_t rank) {
  if (tensor.dim() != rank) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected ", rank, " dimensions");
  }
}

inline void check_shape(const char* op, const char* name, const Tensor& tensor, Lengths expected) {
  const auto sizes = tensor.sizes();
  if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end())) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected ", tuple_text(expected));
  }
}

// A tensor of any number of rows, `rows` in the message.
inline void check_rows(const char* op, const char* name, const Tensor& tensor, int64_t columns,
                       const char* rows = "N") {
  if (tensor.dim() != 2 || tensor.size(1) != columns) {
    fail(op, ": ", name, " has shape ", shape_text(tensor), ", expected (", rows, ", ", columns, ")");
  }
}

// `other` must be where `tensor`, the argument that chose the kernel, is.
inline void check_device(const char* op, const char* name, const Tensor& other, const char* first,
                         const Tensor& tensor) {
  const auto text = [](const Tensor& t) {
    return t.is_cpu() ? std::string("cpu") : "cuda:" + std::to_string(t.get_device_index());
  };
  if (text(other) != text(tensor)) {
    fail(op, ": ", name, " is on ", text(other), ", but ", first, " is on ", text(tensor));
  }
}

// All that is known of an argument beside `first`, the one that chose the kernel.
inline void check_argument(const char* op, const char* name, const Tensor& other, Lengths shape,
                           ScalarType type, const char* first, const Tensor& tensor) {
  check_shape(op, name, other, shape);
  check_dtype(op, name, other, type);
  check_device(op, name, other, first, tensor);
}

// On a GPU values are checked on request only: reading them makes the host wait.
inline bool validates_values(const Tensor& tensor) {
  const char* setting = std::getenv("DETECTOR_VALIDATE");
  return tensor.is_cpu() || (setting != nullptr && std::string_view(setting) == "1");
}

// ---- views: kernels take any strides, so nothing is copied to be contiguous ----

template <typename T>
struct Vector {
  const T* data;
  int64_t stride;
  C10_HOST_DEVICE T operator[](int64_t i) const { return data[i * stride]; }
};

template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;
  C10_HOST_DEVICE const T& operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
  C10_HOST_DEVICE Matrix from_row(int64_t row) const {
    return {data + row * row_stride, row_stride, column_stride};
  }
  C10_HOST_DEVICE Vector<T> row(int64_t row) const { return {data + row * row_stride, column_stride}; }
  C10_HOST_DEVICE Vector<T> column(int64_t column) const {
    return {data + column * column_stride, row_stride};
  }
};

// A view of a tensor (N,); a scalar () is seen as one value that repeats.
template <typename T>
Vector<T> vector_view(const Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.dim() == 0 ? 0 : tensor.stride(0)};
}

template <typename T>
Matrix<T> matrix_view(const Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.stride(0), tensor.stride(1)};
}

// The first row of each image and, last, the number of rows of `name`: (B + 1,). `counts` (B,) on the CPU.
inline std::vector<int64_t> image_starts(const char* op, const char* name, const Tensor& counts,
                                         int64_t num_rows, int64_t most = INT64_MAX) {
  std::vector<int64_t> starts{0};
  const auto count = vector_view<int64_t>(counts);
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t left = num_rows - starts.back();
    if (count[i] < 0 || count[i] > left) {
      fail(op, ": counts[", i, "] is ", count[i], ", expected 0 to the ", left, " rows of ", name,
           " that are left");
    }
    if (count[i] > most) {
      fail(op, ": counts[", i, "] is ", count[i], ", expected at most ", most);
    }
    starts.push_back(starts.back() + count[i]);
  }
  if (starts.back() != num_rows) {
    fail(op, ": counts sum to ", starts.back(), ", but ", name, " has ", num_rows, " rows");
  }
  return starts;
}

// ---- dtypes ----

// The type to compute in: double for double, float for everything shorter.
template <typename T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline ScalarType accumulate_type(ScalarType type) {
  return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// Calls body(T{}) with the C++ type of a floating dtype.
template <typename Body>
void dispatch_floating(const char* op, const char* name, ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Double:
      return body(double{});
    case ScalarType::Float:
      return body(float{});
    case ScalarType::Half:
      return body(Half{});
    case ScalarType::BFloat16:
      return body(BFloat16{});
    default:
      fail(op, ": ", name, " is ", torch::headeronly::toString(type),
           ", expected Double, Float, Half or BFloat16");
  }
}

// The same for ops that take half precision as float32.
template <typename Body>
void dispatch_float_or_double(const char* op, const char* name, ScalarType type, const Body& body) {
  if (type != ScalarType::Double && type != ScalarType::Float) {
    fail(op, ": ", name, " is ", torch::headeronly::toString(type), ", expected Double or Float");
  }
  return type == ScalarType::Double ? body(double{}) : body(float{});
}

}  // namespace detector
