// Non-maximum suppression on a GPU. The number of launches depends on the number of boxes alone.
//
//   rank_kernel    up to kMostRanked boxes: the order, group after group, best first
//   fill_kernel    more: the same from torch's sort
//   settle_kernel  which boxes stay
//   list_kernel    nms, not nms_mask: their indices, best first
#include <torch/csrc/stable/library.h>

#include <array>
#include <tuple>

#include "launch.cuh"
#include "nms/list.cuh"
#include "nms/order.cuh"
#include "nms/settle.cuh"

namespace detector::nms {
namespace {

// Measured: ranking takes 6 us for 2,000 boxes and 54 us for 8,192; torch's sort of 100,000 takes 46 us.
constexpr int64_t kMostRanked = 4096;

// Sorted keys, and where they were.
std::tuple<Tensor, Tensor> stable_sort(const Tensor& keys, bool descending) {
  using torch::stable::detail::from;
  std::array<StableIValue, 4> stack{from(keys), from(std::optional<bool>(true)), from(int64_t(0)),
                                    from(descending)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  return {torch::stable::detail::to<Tensor>(stack[0]), torch::stable::detail::to<Tensor>(stack[1])};
}

Tensor take(const Tensor& values, const Tensor& indices) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(values), from(int64_t(0)), from(indices)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::index_select", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

template <typename T>
T* data(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// The indices of the scores in descending order.
template <typename T>
Tensor sort_scores(const Tensor& scores) {
  using Signed = std::conditional_t<sizeof(Accumulate<T>) == 4, int32_t, int64_t>;
  const int64_t size = scores.size(0);
  const auto type = sizeof(Signed) == 4 ? ScalarType::Int : ScalarType::Long;
  const Tensor keys = torch::stable::new_empty(scores, {size}, type);
  key_kernel<T, Signed><<<blocks_for(size, kOrderThreads), kOrderThreads, 0, current_stream(scores)>>>(
      vector_view<T>(scores), size, data<Signed>(keys));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return std::get<1>(stable_sort(keys, /*descending=*/true));
}

struct Arguments {
  const Tensor& boxes;
  const Tensor& scores;
  const std::optional<Tensor>& idxs;
  double iou_threshold;
  int64_t size() const { return boxes.size(0); }
};

// kept_of_slot (N,) and count get the answer; `indices`, of each rank, makes ranks the slots: see Filled.
template <typename T>
void launch(const Arguments& in, int64_t* indices, uint8_t* kept_of_slot, unsigned long long* count) {
  using A = Accumulate<T>;
  const int64_t size = in.size(), num_chunks = ceil_div(size, kChunk);
  const cudaStream_t stream = current_stream(in.boxes);
  const int64_t box_words = 2 * sizeof(Box<A>) / sizeof(int64_t), vectors = 1 + in.idxs.has_value();
  const Tensor scratch = torch::stable::new_empty(
      in.boxes, {(box_words + vectors) * size + (1 + kWords) * num_chunks + 1}, ScalarType::Long);
  auto* box = data<Box<A>>(scratch);
  auto* slots = reinterpret_cast<int64_t*>(box + 2 * size);
  auto* groups = in.idxs ? slots + size : nullptr;
  auto* progress = reinterpret_cast<uint64_t*>(slots + size * vectors);
  auto* tickets = reinterpret_cast<unsigned long long*>(progress + num_chunks * (1 + kWords));
  const State state{count, tickets, progress, progress + num_chunks};
  Order<A> order{box, box + size, groups, slots, size};
  const Filled<T> filled{matrix_view<T>(in.boxes), order, groups, indices};

  Tensor sorted_groups;  // lives until the launches
  if (size <= kMostRanked) {
    const auto idxs = in.idxs ? vector_view<int64_t>(*in.idxs) : Vector<int64_t>{nullptr, 0};
    rank_kernel<T><<<blocks_for(size, kRowsABlock), kOrderThreads, 0, stream>>>(
        filled, vector_view<T>(in.scores), idxs, state, num_chunks);
  } else {
    const Tensor index_of_rank = sort_scores<T>(in.scores);
    Tensor rank_of_place;
    if (in.idxs) {
      std::tie(sorted_groups, rank_of_place) =
          stable_sort(take(*in.idxs, index_of_rank), /*descending=*/false);
      order.groups = data<int64_t>(sorted_groups);
    }
    fill_kernel<T><<<blocks_for(size, kOrderThreads), kOrderThreads, 0, stream>>>(
        filled, data<int64_t>(index_of_rank), in.idxs ? data<int64_t>(rank_of_place) : nullptr, state,
        num_chunks);
  }
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  settle_kernel<A><<<num_chunks, kSettleThreads, 0, stream>>>(order, round_down<A>(in.iou_threshold), state,
                                                              kept_of_slot);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

void check(const char* op, const Arguments& in) {
  check_arguments(op, in.boxes, in.scores, in.idxs, in.iou_threshold);
  if (validate_values()) {
    check_values(op, on_host(in.boxes), on_host(in.scores));
  }
}

std::tuple<Tensor, Tensor> nms_mask(const Tensor& boxes, const Tensor& scores,
                                    const std::optional<Tensor>& idxs, double iou_threshold) {
  const Arguments in{boxes, scores, idxs, iou_threshold};
  check("nms_mask", in);
  const auto guard = device_guard(boxes);
  const Tensor mask = torch::stable::new_empty(boxes, {in.size()}, ScalarType::Bool);
  Tensor count = torch::stable::new_empty(boxes, std::vector<int64_t>{}, ScalarType::Long);
  if (in.size() == 0) {
    torch::stable::zero_(count);
    return {mask, count};
  }
  dispatch_floating("nms_mask", "boxes", boxes.scalar_type(), [&](auto zero) {
    launch<decltype(zero)>(in, nullptr, data<uint8_t>(mask), data<unsigned long long>(count));
  });
  return {mask, count};
}

Tensor nms(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& idxs,
           double iou_threshold) {
  const Arguments in{boxes, scores, idxs, iou_threshold};
  check("nms", in);
  const auto guard = device_guard(boxes);
  const int64_t size = in.size();
  Tensor list = torch::stable::new_empty(boxes, {size}, ScalarType::Long);
  if (size == 0) {
    return list;
  }
  const int64_t flag_words = 2 * ceil_div(size, kFlagsALoad);
  const Tensor scratch = torch::stable::new_empty(boxes, {flag_words + size + 1}, ScalarType::Long);
  auto* flags = data<uint8_t>(scratch);
  auto* indices = data<int64_t>(scratch) + flag_words;
  auto* count = reinterpret_cast<unsigned long long*>(indices + size);
  dispatch_floating("nms", "boxes", boxes.scalar_type(),
                    [&](auto zero) { launch<decltype(zero)>(in, indices, flags, count); });
  const cudaStream_t stream = current_stream(boxes);
  list_kernel<<<ceil_div(size, kFlagsABlock), kListThreads, 0, stream>>>(flags, indices, size,
                                                                         data<int64_t>(list));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  int64_t num_kept = 0;
  STD_CUDA_CHECK(cudaMemcpyAsync(&num_kept, count, sizeof(num_kept), cudaMemcpyDeviceToHost, stream));
  STD_CUDA_CHECK(cudaStreamSynchronize(stream));
  return torch::stable::narrow(list, 0, 0, num_kept);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("nms", TORCH_BOX(&nms));
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
}

}  // namespace detector::nms
