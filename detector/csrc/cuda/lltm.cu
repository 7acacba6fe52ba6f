// The LLTM cell on a GPU. At the tutorial's size (16 x 32 x 128) launches are all it costs, so what counts is
// their number: forward a kernel that packs [h, x], a product and a kernel; backward a kernel, two products
// and a kernel that unpacks and adds up for the bias. benchmarks/cases/lltm.py says what else was tried.
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "../lltm.h"
#include "launch.cuh"
#include "pack.cuh"
#include "reduce.cuh"

namespace detector::lltm {
namespace {

constexpr int kThreads = 256;
constexpr int kSumColumns = 8, kSumRows = kThreads / kSumColumns;  // of a block that adds rows up
constexpr int64_t kLongSum = 64, kSmallProduct = 1 << 16;
constexpr int kMostColumnBlocks = 64;
constexpr int64_t kFewStates = 1 << 16;  // a thread takes one of so few, to keep more processors busy

// Where threads take packs they count in 32 bits, and each takes one: kernels as short as these take a tenth
// longer with 64 bits and a loop.
template <int V>
using Index = std::conditional_t<(V > 1), int, int64_t>;

// Whether threads may take V columns of all rows at once, and there are so many that they should.
template <int V, typename T>
bool in_packs(const Sizes& sizes, std::initializer_list<Matrix<T>> matrices,
              std::initializer_list<const T*> rows) {
  constexpr int64_t most = std::numeric_limits<Index<V>>::max();
  const auto fits = [&](const Matrix<T>& matrix) {
    return matrix.data == nullptr || (matrix.column_stride == 1 && matrix.row_stride % V == 0 &&
                                      sizes.rows * matrix.row_stride <= most && is_aligned(matrix.data));
  };
  return sizes.rows * sizes.state > kFewStates && sizes.state % V == 0 && sizes.inputs % V == 0 &&
         sizes.steps * sizes.rows * (2 * sizes.state + sizes.width()) <= most &&
         sizes.width() <= kMostColumnBlocks * kThreads &&
         std::all_of(matrices.begin(), matrices.end(), fits) &&
         std::all_of(rows.begin(), rows.end(), [](const void* row) { return is_aligned(row); });
}

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
template <int V, typename Body>
__device__ void for_each(Index<V> rows, Index<V> columns, const Body& body) {
  const Index<V> first_row = Index<V>(blockIdx.x) * int(blockDim.y) + int(threadIdx.y);
  const Index<V> first_column = Index<V>(blockIdx.z) * int(blockDim.x) + int(threadIdx.x);
  if constexpr (V > 1) {
    if (first_row < rows && first_column < columns) {
      body(first_row, first_column);
    }
  } else {
    for (int64_t n = first_row; n < rows; n += int64_t(gridDim.x) * blockDim.y) {
      for (int64_t s = first_column; s < columns; s += int64_t(gridDim.z) * blockDim.x) {
        body(n, s);
      }
    }
  }
}

// Columns from `column` on in a row of the matrix, side by side if there are several.
template <int V, typename T>
__device__ const T* columns_of(const Matrix<T>& matrix, Index<V> row, Index<V> column) {
  if constexpr (V > 1) {
    return matrix.data + (row * int(matrix.row_stride) + column);
  } else {
    return &matrix(row, column);
  }
}

// Threads have packs of V columns.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) pack_kernel(Sizes sizes, const T* input, Matrix<T> h, T* xh) {
  using I = Index<V>;
  const I steps = sizes.steps, rows = sizes.rows, state = sizes.state, inputs = sizes.inputs;
  for_each<V>(steps * rows, (state + inputs) / V, [&](I n, I i) {
    const I s = i * V;
    T* const to = xh + n * (state + inputs) + s;
    if (s >= state) {
      store_pack(to, load_once<V>(input + (n * inputs + s - state)));
    } else if (n < rows) {
      store_pack(to, load_once<V>(columns_of<V>(h, n, s)));
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
__global__ void __launch_bounds__(kThreads) finish_kernel(Results<T> at) {
  const auto& sizes = at.sizes;
  const int64_t rows = sizes.steps * sizes.rows;
  if (blockIdx.y == 1) {
    if (blockIdx.z == 0) {
      add_rows(at.grad_gates, rows, 3 * sizes.state, at.grad_bias);
    }
    return;
  }
  for_each<1>(rows, sizes.width(), [&](int64_t n, int64_t s) {
    if (s >= sizes.state && at.grad_input != nullptr) {
      at.grad_input[n * sizes.inputs + s - sizes.state] = at.grad_xh[n * sizes.width() + s];
    } else if (s < sizes.state && n < sizes.rows && at.grad_h != nullptr) {
      at.grad_h[n * sizes.state + s] = at.grad_xh[n * sizes.width() + s];
    }
  });
}

// The gates of V columns, and their bias, unless they have it.
template <int V, typename T>
__device__ void load_gates(const T* from, const T* from_bias, Index<V> row, Index<V> column, Index<V> state,
                           Pack<T, V> (&gates)[3], Pack<T, V> (&bias)[3]) {
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
    gates[gate] = load_once<V>(from + ((row * 3 + gate) * state + column));
    if (from_bias != nullptr) {
      bias[gate] = load_once<V>(from_bias + (gate * state + column));
    }
  }
}

template <typename T, int V, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads) forward_kernel(ForwardStep<T> at) {
  using I = Index<V>;
  const I state = at.sizes.state;
  for_each<V>(at.sizes.rows, state / V, [&](I n, I i) {
    const I s = i * V, cell = n * state + s;
    Pack<T, V> gates[3], bias[3] = {}, c = load_once<V>(columns_of<V>(at.c, n, s)), h;
    load_gates<V>(at.gates, at.bias, n, s, state, gates, bias);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const auto gate = [&](int g) { return A(gates[g].values[v]) + A(bias[g].values[v]); };
      const auto next = step<DeviceMath>(gate(0), gate(1), gate(2), A(c.values[v]));
      h.values[v] = T(next.h);
      c.values[v] = T(next.c);
    }
    store_pack(at.next_h + cell, h);
    store_pack(at.next_c + cell, c);
    if (at.next_xh != nullptr) {
      store_pack(at.next_xh + (n * I(at.sizes.width()) + s), h);
    }
  });
}

template <typename T, int V, typename A = Accumulate<T>>
__global__ void __launch_bounds__(kThreads) backward_kernel(BackwardStep<T> at) {
  using I = Index<V>;
  const I state = at.sizes.state;
  if (at.zeros != nullptr && blockIdx.x == 0) {
    for (int64_t s = threadIdx.y * blockDim.x + threadIdx.x; s < at.sizes.width(); s += kThreads) {
      at.zeros[s] = T(0.f);
    }
  }
  for_each<V>(at.sizes.rows, state / V, [&](I n, I i) {
    const I s = i * V, cell = n * state + s;
    const auto load = [&](const Matrix<T>& gradient) {
      return gradient.data == nullptr ? Pack<T, V>{} : load_pack<V>(columns_of<V>(gradient, n, s));
    };
    const auto grad_h = load(at.grad_h), carried_h = load(at.carried_h);
    Pack<T, V> gates[3], bias[3] = {}, slopes[3], grad_c = load(at.grad_c);
    const auto next_c = load_once<V>(at.next_c + cell);
    load_gates<V>(at.gates, at.bias, n, s, state, gates, bias);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const auto gate = [&](int g) { return A(gates[g].values[v]) + A(bias[g].values[v]); };
      const auto of =
          step_backward<DeviceMath>(gate(0), gate(1), gate(2), A(next_c.values[v]),
                                    A(grad_h.values[v]) + A(carried_h.values[v]), A(grad_c.values[v]));
      slopes[0].values[v] = T(of.in);
      slopes[1].values[v] = T(of.out);
      slopes[2].values[v] = T(of.candidate);
      grad_c.values[v] = T(of.c);
    }
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      store_pack(at.grad_gates + ((n * 3 + gate) * state + s), slopes[gate]);
    }
    store_pack(at.new_grad_c + cell, grad_c);
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
    constexpr int V = std::min(kPackSize<T>, 4);
    const int64_t rows = sizes.steps * sizes.rows;
    if (in_packs<V, T>(sizes, {h}, {input, xh})) {
      launch(pack_kernel<T, V>, rows, sizes.width() / V, 1, sizes, input, h, xh);
    } else {
      launch(pack_kernel<T, 1>, rows, sizes.width(), 1, sizes, input, h, xh);
    }
  }

  template <typename T>
  void finish(const Results<T>& at) const {
    launch(finish_kernel<T>, at.sizes.steps * at.sizes.rows, at.sizes.width(), at.grad_bias ? 2 : 1, at);
  }

  template <typename T>
  void forward_step(const ForwardStep<T>& step) const {
    constexpr int V = 2;  // four take 0.6 us longer (512 x 256 x 512)
    const Sizes& sizes = step.sizes;
    if (in_packs<V, T>(sizes, {step.c}, {step.gates, step.bias, step.next_h, step.next_c, step.next_xh})) {
      launch(forward_kernel<T, V>, sizes.rows, sizes.state / V, 1, step);
    } else {
      launch(forward_kernel<T, 1>, sizes.rows, sizes.state, 1, step);
    }
  }

  template <typename T>
  void backward_step(const BackwardStep<T>& step) const {
    constexpr int V = 2;
    const Sizes& sizes = step.sizes;
    if (in_packs<V, T>(sizes, {step.grad_h, step.carried_h, step.grad_c},
                       {step.gates, step.bias, step.next_c, step.grad_gates, step.new_grad_c})) {
      launch(backward_kernel<T, V>, sizes.rows, sizes.state / V, 1, step);
    } else {
      launch(backward_kernel<T, 1>, sizes.rows, sizes.state, 1, step);
    }
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
