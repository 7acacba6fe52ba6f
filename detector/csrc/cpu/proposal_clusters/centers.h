// The centers of one class among the proposals of its pool.
#pragma once

#include <algorithm>
#include <bit>
#include <queue>
#include <vector>

#include "../../proposal_clusters.h"
#include "../multiversion.h"

namespace detector::proposal_clusters {

// Boxes column after column, so that one is compared with many at once.
template <typename B>
struct Boxes {
  std::vector<B> x1, y1, x2, y2, area;

  int64_t size() const { return area.size(); }
  Box<B> operator[](int64_t i) const { return {x1[i], y1[i], x2[i], y2[i]}; }

  void push_back(const Box<B>& box) {
    x1.push_back(box.x1);
    y1.push_back(box.y1);
    x2.push_back(box.x2);
    y2.push_back(box.y2);
    area.push_back(detector::area(box));
  }
};

template <typename B>
DETECTOR_MULTIVERSION void overlaps_with(const Box<B> box, const Boxes<B>& others, B* __restrict__ out) {
  const B *x1 = others.x1.data(), *y1 = others.y1.data(), *x2 = others.x2.data(), *y2 = others.y2.data();
  const B *areas = others.area.data(), box_area = area(box);
  const int64_t size = others.size();
  for (int64_t i = 0; i < size; ++i) {
    out[i] = iou(box, box_area, Box<B>{x1[i], y1[i], x2[i], y2[i]}, areas[i]);
  }
}

// The IoU of a box with each of others.
template <typename B>
const std::vector<B>& overlaps(const Box<B>& box, const Boxes<B>& others, std::vector<B>& out) {
  out.resize(others.size());
  overlaps_with(box, others, out.data());
  return out;
}

struct Scored {
  int64_t row;
  double score;
};

inline void sort_best_first(std::vector<Scored>& scored) {  // ties keep their order
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
}

// The lowest number of the top cluster of the optimal 3-means of ascending numbers.
inline int64_t top_threshold(const std::vector<int64_t>& numbers) {
  std::vector<int64_t> value, sum{0};
  std::vector<int32_t> count{0};
  for (const int64_t number : numbers) {
    if (value.empty() || value.back() != number) {
      value.push_back(number);
      count.push_back(count.back());
      sum.push_back(sum.back());
    }
    count.back() += 1;
    sum.back() += number;
  }
  const Sorted sorted{value.data(), sum.data(), count.data(), static_cast<int32_t>(value.size())};
  Split best = each_value_alone(sorted);
  for (int32_t low = 1; low < sorted.size; ++low) {
    const Bounds bounds = bounds_at(sorted, low);
    const double lowest = sorted.fit(0, low);
    const int32_t last = sorted.first_end(low, bounds.last);
    for (int32_t high = sorted.first_end(low, bounds.first); high < last; ++high) {
      best = better(best, split_of(lowest, sorted.fit(low, high), sorted.fit(high, sorted.size), high));
    }
  }
  return value[best.high];
}

// The rows of the pool in the highest of three clusters.
inline std::vector<Scored> top_ranking(const std::vector<Scored>& pool, const FixedPoint& fixed) {
  std::vector<int64_t> numbers;
  for (const Scored& scored : pool) {
    numbers.push_back(fixed(scored.score));
  }
  std::sort(numbers.begin(), numbers.end());
  const int64_t threshold = top_threshold(numbers);
  std::vector<Scored> top;
  std::copy_if(pool.begin(), pool.end(), std::back_inserter(top),
               [&](const Scored& scored) { return fixed(scored.score) >= threshold; });
  return top;
}

// A bit for each pair of boxes: whether their IoU is greater than `edge_iou`. Each box is its own neighbor.
class Graph {
 public:
  template <typename B>
  Graph(const Boxes<B>& boxes, double edge_iou)
      : words_((boxes.size() + 63) / 64), bits_(boxes.size() * words_, 0) {
    std::vector<B> overlap;
    for (int64_t i = 0; i < boxes.size(); ++i) {
      overlaps(boxes[i], boxes, overlap);
      overlap[i] = 2;  // also of a box without area, whose IoU with itself is 0
      for (int64_t j = 0; j < boxes.size(); ++j) {
        bits_[i * words_ + j / 64] |= uint64_t(overlap[j] > static_cast<B>(edge_iou)) << (j % 64);
      }
    }
  }

  int64_t words() const { return words_; }
  const uint64_t* neighbors(int64_t node) const { return &bits_[node * words_]; }

 private:
  int64_t words_;
  std::vector<uint64_t> bits_;
};

// Greedy: the node of the most remaining neighbors (ties: the first) becomes a center and takes them with
// it, until `max_centers` nodes or fewer remain. Its weight is the best score among them.
inline std::vector<Scored> graph_centers(const std::vector<Scored>& top, const Graph& graph,
                                         int64_t max_centers) {
  const int64_t words = graph.words(), num_nodes = top.size();
  std::vector<uint64_t> remaining(words, 0);
  for (int64_t node = 0; node < num_nodes; ++node) {
    remaining[node / 64] |= uint64_t(1) << (node % 64);
  }
  const auto degree = [&](int64_t node) {
    int64_t count = 0;
    for (int64_t w = 0; w < words; ++w) {
      count += std::popcount(graph.neighbors(node)[w] & remaining[w]);
    }
    return count;
  };
  // Degrees only fall, so an entry is an upper bound: if it is out of date it goes back with the present
  // degree.
  std::priority_queue<std::pair<int64_t, int64_t>> queue;  // (degree, -node)
  for (int64_t node = 0; node < num_nodes; ++node) {
    queue.emplace(degree(node), -node);
  }
  std::vector<Scored> found;
  for (int64_t left = num_nodes; found.empty() || left > max_centers;) {
    const int64_t bound = queue.top().first, node = -queue.top().second;
    queue.pop();
    if (!(remaining[node / 64] >> (node % 64) & 1)) {
      continue;
    }
    if (const int64_t now = degree(node); now < bound) {
      queue.emplace(now, -node);
      continue;
    }
    double best = 0;
    for (int64_t w = 0; w < words; ++w) {
      for (uint64_t group = graph.neighbors(node)[w] & remaining[w]; group != 0; group &= group - 1) {
        best = std::max(best, top[w * 64 + std::countr_zero(group)].score);
      }
      remaining[w] &= ~graph.neighbors(node)[w];
    }
    found.push_back({top[node].row, best});
    left -= bound;
  }
  return found;
}

template <typename B>
std::vector<Scored> pcl_centers(const Boxes<B>& boxes, const std::vector<Scored>& pool,
                                const FixedPoint& fixed, const Options& options) {
  const std::vector<Scored> top = top_ranking(pool, fixed);
  Boxes<B> nodes;
  for (const Scored& scored : top) {
    nodes.push_back(boxes[scored.row]);
  }
  auto found = graph_centers(top, Graph(nodes, options.edge_iou), options.max_centers);
  sort_best_first(found);
  found.resize(std::min<size_t>(found.size(), options.max_centers));
  return found;
}

inline std::vector<Scored> oicr_center(const std::vector<Scored>& pool) {
  return {*std::max_element(pool.begin(), pool.end(),
                            [](const Scored& a, const Scored& b) { return a.score < b.score; })};
}

// Greedy non-maximum suppression of the best share of the pool.
template <typename B>
std::vector<Scored> mist_centers(const Boxes<B>& boxes, std::vector<Scored> pool, const Options& options) {
  sort_best_first(pool);
  pool.resize(top_count(pool.size(), options.top_share));
  const B most = static_cast<B>(options.edge_iou);
  Boxes<B> kept;
  std::vector<B> overlap;
  std::vector<Scored> found;
  for (const Scored& scored : pool) {
    const Box<B> box = boxes[scored.row];
    overlaps(box, kept, overlap);
    if (std::none_of(overlap.begin(), overlap.end(), [&](B value) { return value > most; })) {
      kept.push_back(box);
      found.push_back(scored);
    }
  }
  return found;
}

}  // namespace detector::proposal_clusters
