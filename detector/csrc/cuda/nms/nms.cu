// Non-maximum suppression on a GPU. README.md says which kernels run when.
#include <torch/csrc/stable/library.h>

#include <atomic>
#include <optional>
#include <tuple>

#include "../launch.cuh"
#include "list.cuh"
#include "order.cuh"
#include "scan.cuh"

namespace detector::nms {
namespace {

struct Arguments {
  const Tensor& boxes;
  const Tensor& scores;
  const std::optional<Tensor>& idxs;
  double iou_threshold;
  int64_t size() const { return boxes.size(0); }
};

// The kernels that run; README.md has their tables.
struct Kernels {
  Request request;
  OrderKernel order;
  KeepKernel keep;

  explicit Kernels(const Arguments& in)
      : request{in.size(), in.idxs.has_value()},
        order(OrderKernel(plan("nms", kOrderTable, request))),
        keep(KeepKernel(plan("nms", kKeepTable, request))) {}
  bool ranks() const { return order == OrderKernel::kRank; }
  bool scans() const { return keep == KeepKernel::kScan; }
};

template <typename T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Divides one allocation: begun at 0 it tells how much is needed.
struct Division {
  uintptr_t next;
  template <typename P>
  void take(P*& part, int64_t count) {
    constexpr uintptr_t widest = 32;  // bytes that a thread reads at once
    part = count > 0 ? reinterpret_cast<P*>(next) : nullptr;
    next += (count * sizeof(P) + widest - 1) / widest * widest;
  }
};

// Temporary memory of a call; parts that it does not use are null.
template <typename A>
struct Memory {
  Order<A> order;
  State state;
  uint32_t* pairs;  // of scan_kernel
  Sorting sorting;
  uint8_t* flags;  // of each rank
  int64_t* list;   // of a call without a mask
  Tensor tensor;

  Memory(const Arguments& in, const Kernels& kernels, bool lists) {
    Division division{0};
    divide(division, in, kernels, lists);
    tensor = allocate(in.boxes, {int64_t(division.next)}, ScalarType::Byte);
    division.next = reinterpret_cast<uintptr_t>(data<char>(tensor));
    divide(division, in, kernels, lists);
    order.size = in.size();
  }

  void divide(Division& division, const Arguments& in, const Kernels& kernels, bool lists) {
    const int64_t size = in.size(), num_chunks = ceil_div(size, kChunk), num_words = ceil_div(size, kWarp);
    const int64_t sorted = kernels.ranks() ? 0 : size, grouped = in.idxs ? size : 0;
    const int64_t decided = kernels.scans() ? 0 : size, listed = lists ? decided : 0;
    division.take(order.boxes, size);
    division.take(order.slots, size);
    division.take(order.groups, grouped);
    division.take(order.kept, decided);
    division.take(state.count, 1);
    division.take(state.tickets, 1);
    division.take(state.progress, kernels.scans() ? 0 : num_chunks);
    division.take(state.words, kernels.scans() ? 0 : num_chunks * kWords);
    division.take(pairs, kernels.scans() ? num_words * size : 0);
    division.take(sorting.keys, sorted);
    division.take(sorting.sorted_keys, sorted);
    division.take(sorting.numbers, sorted);
    division.take(sorting.index_of_rank, std::max(sorted, listed));
    division.take(sorting.rank_of_place, std::min(sorted, grouped));
    division.take(flags, ceil_div(listed, kFlagsALoad) * kFlagsALoad);
    division.take(list, lists ? size : 0);
  }
};

template <typename T, typename A = Accumulate<T>>
void put_in_order(const Arguments& in, const Kernels& kernels, const Memory<A>& memory, cudaStream_t stream) {
  const int64_t size = in.size(), num_chunks = kernels.scans() ? 0 : ceil_div(size, kChunk);
  const auto scores = vector_view<T>(in.scores);
  const auto idxs = in.idxs ? vector_view<int64_t>(*in.idxs) : Vector<int64_t>{nullptr, 0};
  const Sorting& sorting = memory.sorting;
  const Filled<T> filled{matrix_view<T>(in.boxes), memory.order, memory.list != nullptr && !kernels.scans()};
  if (kernels.ranks()) {
    launch_kernel(nms_rank_kernel<T>, rank_launch(kernels.request), stream, filled, scores, idxs,
                  sorting.index_of_rank, memory.state, num_chunks);
    return;
  }
  sort_numbers(ScoreKey<T>{scores}, 8 * sizeof(A), sorting, size, sorting.index_of_rank, in.boxes, stream);
  if (in.idxs) {
    sort_numbers(GroupKey{idxs, sorting.index_of_rank}, 64, sorting, size, sorting.rank_of_place, in.boxes,
                 stream);
  }
  launch_kernel(nms_fill_kernel<T>, sort_launch(kernels.request), stream, filled, sorting, memory.state,
                num_chunks);
}

template <typename A>
void suppress(const Arguments& in, const Kernels& kernels, const Memory<A>& memory, const Answer& answer,
              cudaStream_t stream) {
  const A threshold = round_down<A>(in.iou_threshold);
  const int64_t size = in.size();
  if (kernels.scans()) {
    launch_kernel(nms_scan_kernel<A>, scan_launch(kernels.request), stream, memory.order, threshold,
                  memory.pairs, memory.state.tickets, answer);
    return;
  }
  launch_kernel(nms_chunk_kernel<A>, chunks_launch(kernels.request), stream, memory.order, threshold,
                memory.state, answer.mask ? answer.mask : memory.flags);
  if (answer.list) {
    launch_kernel(nms_list_kernel, ceil_div(size, kFlagsABlock), kListThreads, 0, stream, memory.flags,
                  memory.sorting.index_of_rank, size, memory.state.count, answer);
  }
}

void check(const char* op, const Arguments& in) {
  check_arguments(op, in.boxes, in.scores, in.idxs, in.iou_threshold);
  if (in.size() > INT32_MAX) {
    fail(op, ": boxes has shape ", shape_text(in.boxes), ", expected at most ", INT32_MAX, " rows on a GPU");
  }
}

std::tuple<Tensor, Tensor> nms_mask(const Tensor& boxes, const Tensor& scores,
                                    const std::optional<Tensor>& idxs, double iou_threshold) {
  const Arguments in{boxes, scores, idxs, iou_threshold};
  check("nms_mask", in);
  const auto guard = device_guard(boxes);
  const Tensor mask = allocate(boxes, {in.size()}, ScalarType::Bool);
  Tensor count = allocate(boxes, {}, ScalarType::Long);
  if (in.size() == 0) {
    torch::stable::zero_(count);
    return {mask, count};
  }
  dispatch_floating("nms_mask", "boxes", boxes.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const cudaStream_t stream = current_stream(boxes);
    const Kernels kernels(in);
    Memory<Accumulate<T>> memory(in, kernels, false);
    memory.state.count = data<unsigned long long>(count);
    put_in_order<T>(in, kernels, memory, stream);
    suppress(in, kernels, memory, {data<uint8_t>(mask), nullptr, memory.state.count}, stream);
  });
  return {mask, count};
}

// The number of boxes that are kept, in pinned memory: a kernel writes it, and the host reads it as soon as
// it is there, without a copy and before the stream is through.
class CountOnHost {
 public:
  explicit CountOnHost(cudaStream_t stream) : stream_(stream) {
    const int64_t one = 1;
    AtenTensorHandle tensor = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided_pinned(1, &one, &one, aoti_torch_dtype_int64(),
                                                           aoti_torch_device_type_cpu(), 0, &tensor));
    tensor_ = Tensor(tensor);
    *data<uint64_t>(tensor_) = kNone;
  }
  // The kernel may still be queued after an error; others would get the memory before it has written there.
  ~CountOnHost() {
    if (*data<uint64_t>(tensor_) == kNone) {
      cudaStreamSynchronize(stream_);
    }
  }
  CountOnHost(const CountOnHost&) = delete;
  unsigned long long* on_device() const {
    void* pointer = nullptr;
    STD_CUDA_CHECK(cudaHostGetDevicePointer(&pointer, data<uint64_t>(tensor_), 0));
    return static_cast<unsigned long long*>(pointer);
  }
  // Queries the stream periodically, to avoid a deadlock after an error.
  int64_t wait() const {
    const std::atomic_ref<uint64_t> count(*data<uint64_t>(tensor_));
    for (int64_t turn = 1; count == kNone; ++turn) {
      if (turn % 100'000 == 0) {
        const cudaError_t state = cudaStreamQuery(stream_);
        if (state != cudaErrorNotReady) {
          STD_CUDA_CHECK(state);
          break;
        }
      }
    }
    return count;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t(0);
  cudaStream_t stream_;
  Tensor tensor_;
};

constexpr int kCopyThreads = 256;

__global__ void nms_copy_kernel(const int64_t* from, int64_t size, int64_t* to) {
  const int64_t i = int64_t(blockIdx.x) * kCopyThreads + threadIdx.x;
  if (i < size) {
    to[i] = from[i];
  }
}

// The list in memory of its own: a view would keep that of all N, and torch.save would write it. The host
// allocates what it can while the first kernel runs. Kernels follow each other sooner than a cudaMemcpyAsync
// follows them.
template <typename T>
Tensor listed(const Arguments& in) {
  const cudaStream_t stream = current_stream(in.boxes);
  const Kernels kernels(in);
  const Memory<Accumulate<T>> memory(in, kernels, true);
  put_in_order<T>(in, kernels, memory, stream);
  const CountOnHost count(stream);
  suppress(in, kernels, memory, {nullptr, memory.list, count.on_device()}, stream);
  const int64_t kept = count.wait();
  const Tensor result = allocate(in.boxes, {kept}, ScalarType::Long);
  launch_kernel(nms_copy_kernel, ceil_div(kept, kCopyThreads), kCopyThreads, 0, stream, memory.list, kept,
                data<int64_t>(result));
  return result;
}

Tensor nms(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& idxs,
           double iou_threshold) {
  const Arguments in{boxes, scores, idxs, iou_threshold};
  check("nms", in);
  const auto guard = device_guard(boxes);
  if (in.size() == 0) {
    return allocate(boxes, {0}, ScalarType::Long);
  }
  std::optional<Tensor> result;
  dispatch_floating("nms", "boxes", boxes.scalar_type(),
                    [&](auto zero) { result = listed<decltype(zero)>(in); });
  return *result;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("nms", TORCH_BOX(&nms));
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
}

}  // namespace detector::nms
