// Plain -O3 builds for the oldest x86-64 (SSE2), so that one wheel serves all. A hot function marked with
// DETECTOR_MULTIVERSION is compiled for newer ones too (AVX2 with FMA), and the loader picks.
//
// Mark plain functions and function templates; what they call is included only where it is inlined.
#pragma once

// DETECTOR_MULTIVERSION_WIDE adds one with vectors twice as wide (AVX-512), for what computes more than it
// moves.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DETECTOR_MULTIVERSION __attribute__((target_clones("arch=x86-64-v3", "default")))
#define DETECTOR_MULTIVERSION_WIDE \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DETECTOR_MULTIVERSION
#define DETECTOR_MULTIVERSION_WIDE
#endif
