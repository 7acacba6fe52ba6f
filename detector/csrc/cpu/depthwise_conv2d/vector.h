// Eight floats or four doubles at a time: GCC's vector type, which every target has an instruction or two
// for. Twice as many where a function is compiled for AVX-512 alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace detector::depthwise_conv2d {

constexpr int kNarrow = 32, kWide = 64;  // bytes of a vector

template <typename A, int kBytes = kNarrow>
struct Lanes {
  using Integer = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  typedef A Vector __attribute__((vector_size(kBytes)));
  typedef Integer Mask __attribute__((vector_size(kBytes)));
  static constexpr int count = kBytes / sizeof(A);
};

// By reference: vectors as arguments would be passed differently on each target.
template <typename A, typename Vector>
[[gnu::always_inline]] inline void load(const A* source, Vector& vector) {
  std::memcpy(&vector, source, sizeof(Vector));
}

// kWhole: all lanes, else the first `count`.
template <bool kWhole, typename T, typename Vector>
[[gnu::always_inline]] inline void store(const Vector& vector, int64_t count, T* out) {
  using A = std::remove_cvref_t<decltype(vector[0])>;
  if constexpr (kWhole && std::is_same_v<T, A>) {
    std::memcpy(out, &vector, sizeof(Vector));
  } else {
    constexpr int lanes = sizeof(Vector) / sizeof(A);
    A values[lanes];
    std::memcpy(values, &vector, sizeof(Vector));
    for (int l = 0; l < (kWhole ? lanes : count); ++l) {
      out[l] = T(values[l]);
    }
  }
}

// Inline for rows of a few elements, where a call of memcpy would take most of the time.
template <typename T, typename A>
[[gnu::always_inline]] inline void convert(const T* from, int64_t count, A* to) {
  if constexpr (std::is_same_v<T, A>) {
    constexpr int64_t lanes = Lanes<A>::count;
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      std::memcpy(to + i, from + i, sizeof(typename Lanes<A>::Vector));
    }
#pragma GCC unroll 4
    for (int64_t n = lanes / 2; n > 0; n /= 2) {
      if (count & n) {
        std::memcpy(to + i, from + i, n * sizeof(A));
        i += n;
      }
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = A(from[i]);
    }
  }
}

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace detector::depthwise_conv2d
