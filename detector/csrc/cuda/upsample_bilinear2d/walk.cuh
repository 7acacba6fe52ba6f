// A thread walks along one axis, height in NCHW and width in NHWC, and keeps in registers what two neighbors
// share. Along the other axis, the `line`, it stands still; so its weights there are computed once.
#pragma once

#include "../../upsample_bilinear2d_plan.h"
#include "../pack.cuh"

namespace detector::upsample_bilinear2d {

// Written out, for then every kernel rounds alike: a and b in the proportion 1 - weight to weight.
template <typename A>
__device__ A mix(A a, A b, A weight) {
  return fma(weight, b, (1 - weight) * a);
}

// output[o] for o in first..last. line(i) is input line i, already resized along the other axis.
template <int kSize, typename A, typename Line, typename Store>
__device__ void walk_outputs(const Axis<A>& axis, int first, int last, const Line& line, const Store& store) {
  Pack<A, kSize> lower, upper, result;
  int held = -2;  // the line in `lower`; the next one is in `upper`
  for (int o = first; o < last; ++o) {
    const Tap<A> tap = axis.tap(o);
    if (tap.lower != held) {
      lower = tap.lower == held + 1 ? upper : line(tap.lower);
      upper = line(tap.upper);
      held = tap.lower;
    }
#pragma unroll
    for (int v = 0; v < kSize; ++v) {
      result.values[v] = mix(lower.values[v], upper.values[v], tap.weight);
    }
    store(o, result);
  }
}

// The gradient of input lines i in first..last, gathered in the order of the outputs. load(o) fetches what
// output line o has for the thread, and sum(o, loaded) adds it up along the other axis; kAhead of them are
// fetched before the first is needed. tap_of(o) is axis.tap(o).
template <int kSize, int kAhead, typename A, typename TapOf, typename Load, typename Sum, typename Store>
__device__ void walk_inputs(const Axis<A>& axis, int first, int last, const TapOf& tap_of, const Load& load,
                            const Sum& sum, const Store& store) {
  Pack<A, kSize> here{}, next{};  // of line i, and of i + 1
  int i = first - 1;
  const auto advance = [&] {
    if (i >= first) {
      store(i, here);
    }
    here = next;
    next = {};
    ++i;
  };
  const int end = axis.first_from(last);
  for (int o = axis.first_from(first - 1); o < end; o += kAhead) {
    decltype(load(o)) loaded[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      loaded[a] = load(min(o + a, end - 1));
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (o + a < end) {
        const Tap<A> tap = tap_of(o + a);
        while (i < tap.lower) {
          advance();
        }
        const Pack<A, kSize> arriving = sum(o + a, loaded[a]);
        const A to_next = tap.upper == i ? A(0) : tap.weight;  // the last line is its own upper one
#pragma unroll
        for (int v = 0; v < kSize; ++v) {
          here.values[v] += (1 - to_next) * arriving.values[v];
          next.values[v] += to_next * arriving.values[v];
        }
      }
    }
  }
  while (i < last) {
    advance();
  }
}

// The outputs that input line `line` touches: `count` of them from `first` on, the first kTaps with weights.
template <int kTaps, typename A>
struct Window {
  int first, count;
  A weights[kTaps];

  __device__ Window() : first(0), count(0), weights{} {}
  __device__ Window(const Axis<A>& axis, int line)
      : first(axis.first_from(line - 1)), count(axis.first_from(line + 1) - first) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      weights[k] = k < count ? axis.weight_of(line, first + k) : A(0);
    }
  }
};

// The packs that a thread has fetched for one output line, as the words that they come in: packs of half
// types that are either loaded or zero would be put together element by element.
template <typename T, int kSize, int kTaps>
struct Fetched {
  Word<sizeof(T) * kSize> words[kTaps];

  __device__ void load(int k, const T* data) {
    words[k] = *reinterpret_cast<const Word<sizeof(T) * kSize>*>(data);
  }
  __device__ Pack<T, kSize> pack(int k) const {
    Pack<T, kSize> pack;
    memcpy(&pack, &words[k], sizeof(pack));
    return pack;
  }
};

// Gradients at data[(window.first + k) * step], loaded for the k that have weights here and, past those, when
// they are summed.
template <int kSize, int kTaps, typename Index, typename T>
__device__ Fetched<T, kSize, kTaps> fetch(const Window<kTaps, Accumulate<T>>& window, const T* data,
                                          Index step) {
  Fetched<T, kSize, kTaps> fetched{};
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    if (k < window.count) {
      fetched.load(k, data + (window.first + k) * step);
    }
  }
  return fetched;
}

template <int kSize, int kTaps, typename Index, typename T, typename A = Accumulate<T>>
__device__ Pack<A, kSize> sum_window(const Window<kTaps, A>& window, const Axis<A>& axis, int line,
                                     const Fetched<T, kSize, kTaps>& fetched, const T* data, Index step) {
  Pack<A, kSize> sum{};
  const auto add = [&](A weight, const Pack<T, kSize>& pack) {
#pragma unroll
    for (int v = 0; v < kSize; ++v) {
      sum.values[v] += weight * A(pack.values[v]);
    }
  };
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    add(window.weights[k], fetched.pack(k));
  }
  for (int k = kTaps; k < window.count; ++k) {
    add(axis.weight_of(line, window.first + k), load_pack<kSize>(data + (window.first + k) * step));
  }
  return sum;
}

template <typename T, int kSize, typename A>
__device__ Pack<T, kSize> rounded(const Pack<A, kSize>& pack) {
  Pack<T, kSize> result;
#pragma unroll
  for (int v = 0; v < kSize; ++v) {
    result.values[v] = T(pack.values[v]);
  }
  return result;
}

}  // namespace detector::upsample_bilinear2d
