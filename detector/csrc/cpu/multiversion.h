// Plain -O3 builds for the oldest x86-64 (SSE2), so that one wheel serves all. A hot function marked with
// DETECTOR_MULTIVERSION is compiled for newer ones too (AVX2 with FMA), and the loader picks.
//
// Mark plain functions and function templates; what they call is included only where it is inlined.
#pragma once

// DETECTOR_MULTIVERSION_WIDE adds one with vectors twice as wide (AVX-512), for what computes more than it
// moves.
//
// DETECTOR_AVX512 marks a function for vectors twice as wide, to be called where has_avx512() says so.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DETECTOR_MULTIVERSION __attribute__((target_clones("arch=x86-64-v3", "default")))
#define DETECTOR_MULTIVERSION_WIDE \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define DETECTOR_AVX512 __attribute__((target("arch=x86-64-v4")))
#else
#define DETECTOR_MULTIVERSION
#define DETECTOR_MULTIVERSION_WIDE
#define DETECTOR_AVX512
#endif

// DETECTOR_IVDEP stands before a loop whose iterations do not read what others write.
#if defined(__GNUC__) && !defined(__clang__)
#define DETECTOR_IVDEP _Pragma("GCC ivdep")
#else
#define DETECTOR_IVDEP
#endif

namespace detector {

inline bool has_avx512() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}

}  // namespace detector
