// Eight floats or four doubles at a time: GCC's vector type, which every target has an instruction or two
// for.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace detector::depthwise_conv2d {

template <typename A>
struct Lanes {
  using Integer = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  typedef A Vector __attribute__((vector_size(32)));
  typedef Integer Mask __attribute__((vector_size(32)));
  static constexpr int count = 32 / sizeof(A);
};

// By reference: vectors as arguments would be passed differently on each target.
template <typename A, typename Vector>
[[gnu::always_inline]] inline void load(const A* source, Vector& vector) {
  std::memcpy(&vector, source, sizeof(Vector));
}

template <typename T, typename Vector>
[[gnu::always_inline]] inline void store(const Vector& vector, int64_t count, T* out) {
  using A = std::remove_cvref_t<decltype(vector[0])>;
  constexpr int lanes = Lanes<A>::count;
  if (std::is_same_v<T, A> && count >= lanes) {
    std::memcpy(out, &vector, sizeof(Vector));
    return;
  }
  for (int l = 0; l < lanes && l < count; ++l) {
    out[l] = T(vector[l]);
  }
}

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace detector::depthwise_conv2d
