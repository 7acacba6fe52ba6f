// The LLTM cell on a GPU. At the tutorial's size (16 x 32 x 128) launches are all it costs, so what counts is
// their number: forward a kernel that packs [h, x], a product and a kernel; backward a kernel, two products
// and a kernel that unpacks and adds up for the bias. benchmarks/cases/lltm.py says what else was tried.
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "../lltm.h"
#include "launch.cuh"

namespace detector::lltm {
namespace {

constexpr int kThreads = 256;
constexpr int kSumColumns = 8, kSumRows = kThreads / kSumColumns;  // of a block that adds rows up
constexpr int64_t kLongSum = 64, kSmallProduct = 1 << 16;
constexpr int kMostColumnBlocks = 64;

struct DeviceMath {
  template <typename A>
  __device__ static A sigmoid(A x) {
    const A one_and_more = 1 + std::exp(-x);
    if constexpr (std::is_same_v<A, float>) {
      return __fdividef(1.f, one_and_more);  // within 2 ulp
    } else {
      return 1 / one_and_more;
    }
  }
  template <typename A>
  __device__ static A tanh(A x) {
    return std::tanh(x);
  }
  template <typename A>
  __device__ static A elu(A x) {
    return x < 0 ? std::expm1(x) : x;
  }
  template <typename A>
  __device__ static A elu_slope(A elu) {
    return elu < 0 ? elu + 1 : A(1);
  }
};

// Threads x and blocks z have the columns, threads y and blocks x the rows.
template <typename Body>
__device__ void for_each(int64_t rows, int64_t columns, const Body& body) {
  for (int64_t n = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; n < rows;
       n += int64_t(gridDim.x) * blockDim.y) {
    for (int64_t s = int64_t(blockIdx.z) * blockDim.x + threadIdx.x; s < columns;
         s += int64_t(gridDim.z) * blockDim.x) {
      body(n, s);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    lltm_pack_kernel(Sizes sizes, const T* input, Matrix<T> h, T* xh) {
  const int64_t state = sizes.state;
  for_each(sizes.steps * sizes.rows, sizes.width(), [&](int64_t n, int64_t s) {
    if (s >= state) {
      xh[n * sizes.width() + s] = input[n * sizes.inputs + s - state];
    } else if (n < sizes.rows) {
      xh[n * sizes.width() + s] = h(n, s);
    }
  });
}

// sums[s] = the sum of column s, in a fixed order: by so many threads as fit, each some rows.
template <typename T, typename A = Accumulate<T>>
__device__ void add_rows(const T* __restrict__ matrix, int64_t rows, int64_t columns, T* __restrict__ sums) {
  __shared__ A row_sums[kSumRows][kSumColumns];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int row = thread / kSumColumns, column = thread % kSumColumns;
  for (int64_t first = int64_t(blockIdx.x) * kSumColumns; first < columns;
       first += int64_t(gridDim.x) * kSumColumns) {
    A sum = 0;
    if (first + column < columns) {
#pragma unroll 16
      for (int64_t n = row; n < rows; n += kSumRows) {
        sum += A(matrix[n * columns + first + column]);
      }
    }
    row_sums[row][column] = sum;
    __syncthreads();
    if (row == 0 && first + column < columns) {
#pragma unroll
      for (int other = 1; other < kSumRows; ++other) {
        sum += row_sums[other][column];
      }
      sums[first + column] = T(sum);
    }
    __syncthreads();
  }
}

// Blocks (i, 0, j) copy, blocks (i, 1, 0) add up for the bias.
template <typename T>
__global__ void __launch_bounds__(kThreads) lltm_finish_kernel(Results<T> at) {
  const auto& sizes = at.sizes;
  const int64_t rows = sizes.steps * sizes.rows;
  if (blockIdx.y == 1) {
    if (blockIdx.z == 0) {
      add_rows(at.grad_gates, rows, 3 * sizes.state, at.grad_bias);
    }
    return;
  }
  for_each(rows, sizes.width(), [&](int64_t n, int64_t s) {
    if (s >= sizes.state && at.grad_input != nullptr) {
      at.grad_input[n * sizes.inputs + s - sizes.state] = at.grad_xh[n * sizes.width() + s];
    } else if (s < sizes.state && n < sizes.rows && at.grad_h != nullptr) {
      at.grad_h[n * sizes.state + s] = at.grad_xh[n * sizes.width() + s];
    }
  });
}

// A gate of element (n, s) with its bias, unless it has that.
template <typename T, typename A = Accumulate<T>>
__device__ A gate_at(const T* gates, const T* bias, int gate, int64_t n, int64_t s, int64_t state) {
  const A own = A(gates[(n * 3 + gate) * state + s]);
  return bias == nullptr ? own : own + A(bias[gate * state + s]);
}

template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads) lltm_forward_kernel(ForwardStep<T> at) {
  const int64_t state = at.sizes.state;
  for_each(at.sizes.rows, state, [&](int64_t n, int64_t s) {
    const auto gate = [&](int i) { return gate_at(at.gates, at.bias, i, n, s, state); };
    const auto next = step<DeviceMath>(gate(0), gate(1), gate(2), A(at.c(n, s)));
    at.next_h[n * state + s] = T(next.h);
    at.next_c[n * state + s] = T(next.c);
    if (at.next_xh != nullptr) {
      at.next_xh[n * at.sizes.width() + s] = T(next.h);
    }
  });
}

template <typename T, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads) lltm_backward_kernel(BackwardStep<T> at) {
  const int64_t state = at.sizes.state;
  if (at.zeros != nullptr && blockIdx.x == 0) {
    for (int64_t s = threadIdx.y * blockDim.x + threadIdx.x; s < at.sizes.width(); s += kThreads) {
      at.zeros[s] = T(0.f);
    }
  }
  for_each(at.sizes.rows, state, [&](int64_t n, int64_t s) {
    const auto gate = [&](int i) { return gate_at(at.gates, at.bias, i, n, s, state); };
    const auto load = [&](const Matrix<T>& gradient) {
      return gradient.data == nullptr ? A(0) : A(gradient(n, s));
    };
    const auto slopes = step_backward<DeviceMath>(gate(0), gate(1), gate(2), A(at.next_c[n * state + s]),
                                                  load(at.grad_h) + load(at.carried_h), load(at.grad_c));
    T* const grad_gates = at.grad_gates + n * 3 * state + s;
    grad_gates[0] = T(slopes.in);
    grad_gates[state] = T(slopes.out);
    grad_gates[2 * state] = T(slopes.candidate);
    at.new_grad_c[n * state + s] = T(slopes.c);
  });
}

struct Cuda {
  torch::stable::accelerator::DeviceGuard guard;
  cudaStream_t stream;

  static constexpr int64_t most_rows_to_add = 1024;  // beside the copies of finish

  explicit Cuda(const Tensor& tensor) : guard(tensor.get_device_index()), stream(current_stream(tensor)) {}

  // A product that adds a bias goes to cuBLASLt, which shares a long sum out over blocks; one that adds none
  // to cuBLAS, which does not: 16 x 384 by 384 x 160 takes 54 us there and 8 us with a bias of zeros (H200).
  // With many blocks there is nothing to share out, and cuBLAS is the faster.
  void mm(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& zeros) const {
    if (a.size(1) >= kLongSum && out.numel() <= kSmallProduct) {
      addmm(out, zeros, a, b);
    } else {
      TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(out.get(), a.get(), b.get()));
    }
  }

  // A sum of half type would be rounded before the bias is added.
  static bool adds_bias(const Tensor& out) { return out.numel() <= kSmallProduct || out.element_size() < 4; }

  void linear(const Tensor& out, const Tensor& bias, const Tensor& a, const Tensor& b) const {
    if (adds_bias(out)) {
      addmm(out, bias, a, b);
    } else {
      TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(out.get(), a.get(), b.get()));
    }
  }

  template <typename T>
  void pack(const Sizes& sizes, const T* input, const Matrix<T>& h, T* xh) const {
    launch(lltm_pack_kernel<T>, sizes.steps * sizes.rows, sizes.width(), 1, sizes, input, h, xh);
  }

  template <typename T>
  void finish(const Results<T>& at) const {
    launch(lltm_finish_kernel<T>, at.sizes.steps * at.sizes.rows, at.sizes.width(), at.grad_bias ? 2 : 1, at);
  }

  template <typename T>
  void forward_step(const ForwardStep<T>& step) const {
    launch(lltm_forward_kernel<T, Accumulate<T>>, step.sizes.rows, step.sizes.state, 1, step);
  }

  template <typename T>
  void backward_step(const BackwardStep<T>& step) const {
    launch(lltm_backward_kernel<T, Accumulate<T>>, step.sizes.rows, step.sizes.state, 1, step);
  }

  template <typename Kernel, typename... Arguments>
  void launch(Kernel kernel, int64_t rows, int64_t columns, unsigned tasks, Arguments... arguments) const {
    unsigned x = 1;
    while (x < kThreads && x < columns) {
      x *= 2;
    }
    const dim3 threads(x, kThreads / x);
    if (rows * columns > 0) {
      const dim3 grid(blocks_for(rows, threads.y), tasks,
                      std::min<int64_t>(ceil_div(columns, x), kMostColumnBlocks));
      launch_kernel(kernel, grid, threads, 0, stream, arguments...);
    }
  }

 private:
  static void addmm(const Tensor& out, const Tensor& bias, const Tensor& a, const Tensor& b) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_addmm_out(out.get(), bias.get(), a.get(), b.get(), 1, 1));
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("lltm_forward", TORCH_BOX(&forward<Cuda>));
  m.impl("lltm_backward", TORCH_BOX(&backward<Cuda>));
}

}  // namespace detector::lltm
