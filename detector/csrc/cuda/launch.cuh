// What every launch needs: the stream that torch is on, grids that no size overflows, and as much shared
// memory as the device has.
#pragma once

#include <cxxabi.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "../memory.h"
#include "../plan.h"

namespace detector {

inline cudaStream_t current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

// Of the current device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  STD_CUDA_CHECK(cudaGetDevice(&device));
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// Shared memory that the blocks on a multiprocessor have together, in bytes; each takes 1 KiB for itself.
inline int64_t shared_of_processor() { return device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor); }

// Blocks of `threads` for `work` items in the x dimension of a grid, which holds 2^31 - 1; a kernel that
// strides by the grid does the rest.
inline unsigned blocks_for(int64_t work, int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>(ceil_div(work, threads), 0x7fffffff));
}

// ---- kernels on the current device ----

struct CompiledKernel {
  int64_t most_shared;  // bytes of dynamic shared memory that a block may have
  int architecture;     // the value of __CUDA_ARCH__ / 10 in its code: 90 for compute capability 9.0
};

// Bytes of shared memory that a block may have on the current device. The environment variable
// DETECTOR_SHARED_MEMORY, in KiB, lowers it, so that tests run on one GPU what others run.
inline int64_t most_shared_of_block() {
  static const char* const cap = std::getenv("DETECTOR_SHARED_MEMORY");
  const int64_t most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return cap != nullptr ? std::min<int64_t>(most, std::atoll(cap) * 1024) : most;
}

// CUDA refuses a launch with more than 48 KiB of dynamic shared memory unless the kernel's limit was raised.
// This is done once for each kernel and device, to all that there is: a limit that was set for each launch
// could be lowered by another thread before the launch.
inline CompiledKernel compiled_kernel(const void* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, CompiledKernel> compiled;
  int device = 0;
  STD_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = compiled.find({kernel, device});
  if (known != compiled.end()) {
    return known->second;
  }
  cudaFuncAttributes attributes;
  STD_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const CompiledKernel result{most_shared_of_block() - int64_t(attributes.sharedSizeBytes),
                              attributes.ptxVersion};
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(std::max<int64_t>(result.most_shared, 0))));
  return compiled[{kernel, device}] = result;
}

template <typename... Parameters>
CompiledKernel compiled_kernel(void (*kernel)(Parameters...)) {
  return compiled_kernel(reinterpret_cast<const void*>(kernel));
}

// What is known of the current device, for plan().
inline Gpu current_gpu() {
  return {10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
              device_attribute(cudaDevAttrComputeCapabilityMinor),
          most_shared_of_block(), shared_of_processor(), device_attribute(cudaDevAttrMultiProcessorCount)};
}

// With DETECTOR_EXPLAIN=1 each launch is printed, with the C++ name of the kernel.
inline void explain_launch(const void* kernel, dim3 grid, dim3 block, size_t shared) {
  static const char* const setting = std::getenv("DETECTOR_EXPLAIN");
  if (setting == nullptr || std::string_view(setting) != "1") {
    return;
  }
  const char* name = nullptr;
  STD_CUDA_CHECK(cudaFuncGetName(&name, kernel));
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? readable.get() : name;
  int depth = 0;  // the parameters, in the last parentheses, are left out
  size_t end = text.size();
  do {
    end -= 1;
    depth += (text[end] == ')') - (text[end] == '(');
  } while (end > 0 && depth > 0);
  if (end > 0) {
    text.resize(end);
  }
  std::fprintf(stderr, "detector: %s, grid (%u, %u, %u), block (%u, %u, %u), %zu bytes of shared memory\n",
               text.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
}

// Blocks of threads on a stream, with `shared` bytes of dynamic shared memory each.
template <typename... Parameters, typename... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   const Arguments&... arguments) {
  if (shared > 0) {
    compiled_kernel(kernel);  // raises its limit
  }
  explain_launch(reinterpret_cast<const void*>(kernel), grid, block, shared);
  kernel<<<grid, block, shared, stream>>>(arguments...);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

// As a plan says.
template <typename... Parameters, typename... Arguments>
void launch_kernel(void (*kernel)(Parameters...), const Launch& launch, cudaStream_t stream,
                   const Arguments&... arguments) {
  const auto fits = [](int64_t blocks, int64_t most) { return 0 < blocks && blocks <= most; };
  if (!fits(launch.x, 0x7fffffff) || !fits(launch.y, 65535) || !fits(launch.z, 65535)) {
    fail("detector: a grid of ", launch.x, " x ", launch.y, " x ", launch.z,
         " blocks is wanted, expected 1 to 2^31 - 1 and twice 1 to 65535; split the work over several calls");
  }
  launch_kernel(kernel, dim3(unsigned(launch.x), unsigned(launch.y), unsigned(launch.z)),
                unsigned(launch.threads), size_t(launch.shared), stream, arguments...);
}

}  // namespace detector
