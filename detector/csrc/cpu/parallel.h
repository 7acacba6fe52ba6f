// torch's parallel_for, out of which an error comes as it was thrown: torch 2.11 passes only a code between
// threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <cstdint>
#include <exception>
#include <mutex>

namespace detector {

// Calls body(first, last) on stretches of 0..size, of at least `grain` where there are several. Of several
// errors the one of the lowest stretch is thrown, whatever the threads did first.
template <typename Body>
void parallel_for(int64_t size, int64_t grain, const Body& body) {
  std::mutex mutex;
  std::exception_ptr error;
  int64_t error_at = size;
  torch::stable::parallel_for(0, size, grain, [&](int64_t first, int64_t last) {
    try {
      body(first, last);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first < error_at) {
        error = std::current_exception();
        error_at = first;
      }
    }
  });
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace detector
