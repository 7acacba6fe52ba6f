// Non-maximum suppression on the CPU. A group's boxes, best first, are taken in bands: a band is decided box
// after box; those of it that are kept suppress all later boxes, by vectors and by threads; what is
// suppressed is moved out of the way, so that later bands have less to look at.
#include "../nms.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "multiversion.h"
#include "no_contraction.h"  // see nms.h
#include "parallel.h"

namespace detector::nms {
namespace {

constexpr int64_t kBand = 128;
constexpr int64_t kTile = 1024;      // later boxes that all of a band's see while they are in the first cache
constexpr int64_t kGrain = 1 << 21;  // pairs, half a millisecond: for less no second thread wakes

// The indices by descending score, equal scores by ascending index.
template <typename T>
std::vector<int64_t> order_by_score(const Tensor& scores) {
  struct Entry {
    decltype(order_key(Accumulate<T>{})) key;
    int64_t index;
  };
  const auto score = vector_view<T>(scores);
  std::vector<Entry> entries(scores.size(0));
  for (int64_t i = 0; i < scores.size(0); ++i) {
    entries[i] = {order_key(Accumulate<T>(score[i])), i};
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.key > b.key || (a.key == b.key && a.index < b.index);
  });
  std::vector<int64_t> order(entries.size());
  std::transform(entries.begin(), entries.end(), order.begin(), [](const Entry& e) { return e.index; });
  return order;
}

// The ranks of the boxes, places in `order`, group after group.
struct Groups {
  std::vector<int64_t> ranks;
  std::vector<int64_t> starts;  // of each group in `ranks` and, last, the number of boxes
};

Groups groups_of(const std::optional<Tensor>& idxs, const std::vector<int64_t>& order) {
  const int64_t size = order.size();
  Groups groups{std::vector<int64_t>(size), {}};
  std::iota(groups.ranks.begin(), groups.ranks.end(), 0);
  if (!idxs) {
    groups.starts = {0, size};
    return groups;
  }
  const auto idx = vector_view<int64_t>(*idxs);
  std::vector<std::pair<int64_t, int64_t>> pairs(size);  // group, rank
  for (int64_t rank = 0; rank < size; ++rank) {
    pairs[rank] = {idx[order[rank]], rank};
  }
  std::sort(pairs.begin(), pairs.end());
  for (int64_t i = 0; i < size; ++i) {
    groups.ranks[i] = pairs[i].second;
    if (i == 0 || pairs[i].first != pairs[i - 1].first) {
      groups.starts.push_back(i);
    }
  }
  groups.starts.push_back(size);
  return groups;
}

// The boxes that are still in question, as arrays, which vectors load. A flag is as wide as a coordinate.
template <typename A>
struct Candidates {
  using Flag = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  A *x1, *y1, *x2, *y2, *areas;
  Flag* suppressed;
  int64_t* ranks;

  Candidates from(int64_t i) const {
    return {x1 + i, y1 + i, x2 + i, y2 + i, areas + i, suppressed + i, ranks + i};
  }
  void set(int64_t i, const Box<A>& box, A area, int64_t rank) const {
    x1[i] = box.x1, y1[i] = box.y1, x2[i] = box.x2, y2[i] = box.y2;
    areas[i] = area, suppressed[i] = 0, ranks[i] = rank;
  }
  Box<A> box(int64_t i) const { return {x1[i], y1[i], x2[i], y2[i]}; }
};

// Those of begin..end that one of the boxes `kept` suppresses get their flag.
template <typename A>
DETECTOR_MULTIVERSION void suppress(const Candidates<A>& candidates, const int64_t* kept, int64_t num_kept,
                                    int64_t begin, int64_t end, A threshold) {
  const A *x1 = candidates.x1, *y1 = candidates.y1, *x2 = candidates.x2, *y2 = candidates.y2;
  const A* areas = candidates.areas;
  auto* __restrict__ suppressed = candidates.suppressed;
  for (int64_t k = 0; k < num_kept; ++k) {
    const Box<A> box{x1[kept[k]], y1[kept[k]], x2[kept[k]], y2[kept[k]]};
    const A area_of_box = areas[kept[k]];
    for (int64_t i = begin; i < end; ++i) {
      suppressed[i] |= suppresses(box, area_of_box, {x1[i], y1[i], x2[i], y2[i]}, areas[i], threshold);
    }
  }
}

// Puts candidates begin..end that have no flag at the front, in their order; returns their number.
template <typename A>
int64_t move_up(const Candidates<A>& candidates, int64_t begin, int64_t end) {
  int64_t place = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (!candidates.suppressed[i]) {
      candidates.set(place++, candidates.box(i), candidates.areas[i], candidates.ranks[i]);
    }
  }
  return place;
}

// `size` boxes of one group, best first; kept, by rank, gets a 1 for those that are kept.
template <typename A>
void suppress_in_group(const Candidates<A>& candidates, int64_t size, A threshold, uint8_t* kept) {
  while (size > 0) {
    const int64_t band = std::min(kBand, size);
    int64_t kept_of_band[kBand], num_kept = 0;
    for (int64_t i = 0; i < band; ++i) {
      if (!candidates.suppressed[i]) {
        kept_of_band[num_kept++] = i;
        kept[candidates.ranks[i]] = 1;
        suppress(candidates, &i, 1, i + 1, band, threshold);
      }
    }
    parallel_for(size - band, kGrain / num_kept, [&](int64_t first, int64_t last) {
      for (int64_t begin = band + first; begin < band + last; begin += kTile) {
        suppress(candidates, kept_of_band, num_kept, begin, std::min(begin + kTile, band + last), threshold);
      }
    });
    size = move_up(candidates, band, size);
  }
}

struct Kept {
  std::vector<int64_t> order;  // the index of each rank
  std::vector<uint8_t> flags;  // by rank
  int64_t number() const { return std::count(flags.begin(), flags.end(), 1); }
};

template <typename T, typename A = Accumulate<T>>
Kept keep_boxes(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& idxs,
                double iou_threshold) {
  const int64_t size = boxes.size(0);
  Kept kept{order_by_score<T>(scores), std::vector<uint8_t>(size)};
  Groups groups = groups_of(idxs, kept.order);
  std::vector<A> values(5 * size);
  std::vector<typename Candidates<A>::Flag> flags(size);
  A* value = values.data();
  const Candidates<A> candidates{
      value,        value + size,       value + 2 * size, value + 3 * size, value + 4 * size,
      flags.data(), groups.ranks.data()};
  const auto view = matrix_view<T>(boxes);
  const int64_t num_groups = groups.starts.size() - 1;
  double pairs = 1;
  for (int64_t g = 0; g < num_groups; ++g) {
    pairs += std::pow(groups.starts[g + 1] - groups.starts[g], 2) / 2;
  }
  const auto groups_of_grain = static_cast<int64_t>(1 + kGrain / pairs * num_groups);
  parallel_for(num_groups, groups_of_grain, [&](int64_t first, int64_t last) {
    for (int64_t i = groups.starts[first]; i < groups.starts[last]; ++i) {
      const int64_t rank = groups.ranks[i], row = kept.order[rank];
      const Box<A> box{A(view(row, 0)), A(view(row, 1)), A(view(row, 2)), A(view(row, 3))};
      candidates.set(i, box, area(box), rank);
    }
    for (int64_t g = first; g < last; ++g) {
      const int64_t begin = groups.starts[g];
      suppress_in_group(candidates.from(begin), groups.starts[g + 1] - begin, round_down<A>(iou_threshold),
                        kept.flags.data());
    }
  });
  return kept;
}

Kept checked_keep_boxes(const char* op, const Tensor& boxes, const Tensor& scores,
                        const std::optional<Tensor>& idxs, double iou_threshold) {
  check_arguments(op, boxes, scores, idxs, iou_threshold);
  Kept kept;
  dispatch_floating(op, "boxes", boxes.scalar_type(), [&](auto zero) {
    kept = keep_boxes<decltype(zero)>(boxes, scores, idxs, iou_threshold);
  });
  return kept;
}

Tensor nms(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& idxs,
           double iou_threshold) {
  const Kept kept = checked_keep_boxes("nms", boxes, scores, idxs, iou_threshold);
  const Tensor indices = allocate(boxes, {kept.number()}, ScalarType::Long);
  auto* index = indices.mutable_data_ptr<int64_t>();
  for (size_t rank = 0; rank < kept.order.size(); ++rank) {
    if (kept.flags[rank]) {
      *index++ = kept.order[rank];
    }
  }
  return indices;
}

std::tuple<Tensor, Tensor> nms_mask(const Tensor& boxes, const Tensor& scores,
                                    const std::optional<Tensor>& idxs, double iou_threshold) {
  const Kept kept = checked_keep_boxes("nms_mask", boxes, scores, idxs, iou_threshold);
  const Tensor mask = allocate(boxes, {boxes.size(0)}, ScalarType::Bool);
  const Tensor count = allocate(boxes, Lengths{}, ScalarType::Long);
  auto* is_kept = mask.mutable_data_ptr<bool>();
  for (size_t rank = 0; rank < kept.order.size(); ++rank) {
    is_kept[kept.order[rank]] = kept.flags[rank];
  }
  *count.mutable_data_ptr<int64_t>() = kept.number();
  return {mask, count};
}

}  // namespace

void check_boxes(const char* op, const Tensor& boxes, bool sorted) {
  dispatch_floating(op, "boxes", boxes.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto box = matrix_view<T>(boxes);
    for (int64_t i = 0; i < boxes.size(0); ++i) {
      for (int64_t j = 0; j < boxes.size(1); ++j) {
        if (std::isnan(Accumulate<T>(box(i, j)))) {
          fail(op, ": boxes[", sorted ? std::string(":") : std::to_string(i), ", ", j, "] ",
               sorted ? "has a nan, expected numbers" : "is nan, expected a number");
        }
      }
    }
  });
}

void check_scores(const char* op, const Tensor& scores) {
  dispatch_floating(op, "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto score = vector_view<T>(scores);
    for (int64_t i = 0; i < scores.size(0); ++i) {
      if (std::isnan(Accumulate<T>(score[i]))) {
        fail(op, ": scores[", i, "] is nan, expected a number");
      }
    }
  });
}

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("nms", TORCH_BOX(&nms));
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
}

}  // namespace detector::nms
