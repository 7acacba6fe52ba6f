// Proposal clusters on the CPU: one thread an image.
#pragma GCC optimize("fp-contract=off")  // see proposal_clusters.h; GCC fuses across statements where it can
#include "../proposal_clusters.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>
#include <vector>

namespace detector::proposal_clusters {
namespace {

struct Scored {
  int64_t row;
  double score;
};

template <typename B>
struct Boxes {
  std::vector<B> x1, y1, x2, y2, area;

  void push_back(const Box<B>& box) {
    x1.push_back(box.x1), y1.push_back(box.y1), x2.push_back(box.x2), y2.push_back(box.y2);
    area.push_back(proposal_clusters::area(box));
  }
  int64_t size() const { return area.size(); }
  Box<B> operator[](int64_t i) const { return {x1[i], y1[i], x2[i], y2[i]}; }
};

// A set of nodes, a bit each.
using Words = std::vector<uint64_t>;

// Neighbours are nodes whose IoU is greater than `edge_iou`; each node is its own.
template <typename B>
class Graph {
 public:
  Graph(const Boxes<B>& boxes, double edge_iou)
      : words_((boxes.size() + 63) / 64), bits_(boxes.size() * words_, 0) {
    const B threshold = static_cast<B>(edge_iou);
    std::vector<uint8_t> joined(words_ * 64, 0);
    for (int64_t i = 0; i < boxes.size(); ++i) {
      const Box<B> box = boxes[i];
      const B area = boxes.area[i];
      for (int64_t j = 0; j < boxes.size(); ++j) {
        joined[j] = iou(box, area, boxes[j], boxes.area[j]) > threshold;
      }
      joined[i] = 1;  // also of a box without area, whose IoU with itself is 0
      for (int64_t j = 0; j < words_ * 64; ++j) {
        bits_[i * words_ + j / 64] |= uint64_t(joined[j]) << (j % 64);
      }
    }
  }

  int64_t words() const { return words_; }
  const uint64_t* neighbours(int64_t node) const { return &bits_[node * words_]; }

 private:
  int64_t words_;
  std::vector<uint64_t> bits_;
};

// The lower bound of the top cluster of the optimal 3-means of ascending numbers.
int64_t top_threshold(const std::vector<int64_t>& numbers) {
  std::vector<int64_t> value, count{0}, sum{0};
  for (const int64_t number : numbers) {
    if (value.empty() || value.back() != number) {
      value.push_back(number);
      count.push_back(count.back());
      sum.push_back(sum.back());
    }
    count.back() += 1;
    sum.back() += number;
  }
  const Sorted sorted{value.data(), count.data(), sum.data(), static_cast<int64_t>(value.size())};
  Split best{.high = sorted.size - 1};  // with fewer than three values each is a cluster
  for (int64_t low = 1; low + 1 < sorted.size; ++low) {
    const Range range = candidates(sorted, low);
    for (int64_t high = range.first; high < std::min(range.last, sorted.size); ++high) {
      best = better(best, split_at(sorted, low, high));
    }
  }
  return value[best.high];
}

// The rows of the pool in the highest of three clusters, in the order of the pool.
std::vector<Scored> top_ranking(const std::vector<Scored>& pool, const FixedPoint& fixed) {
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

struct Centre {
  int64_t row, column;  // of scores
  double weight;
};

// Greedy on the graph of the top-ranking rows: the node of the most remaining neighbours (ties: the first)
// takes them with it, until `max_centres` nodes or fewer remain. Its weight is the best score among them.
template <typename B>
std::vector<Scored> graph_centres(const std::vector<Scored>& top, const Graph<B>& graph,
                                  int64_t max_centres) {
  const int64_t words = graph.words();
  Words remaining(words, 0);
  for (size_t node = 0; node < top.size(); ++node) {
    remaining[node / 64] |= uint64_t(1) << (node % 64);
  }
  const auto degree = [&](int64_t node) {
    int64_t count = 0;
    for (int64_t w = 0; w < words; ++w) {
      count += std::popcount(graph.neighbours(node)[w] & remaining[w]);
    }
    return count;
  };
  // Degrees only fall, so an entry is an upper bound: if it is out of date it goes back with the present
  // degree.
  std::priority_queue<std::pair<int64_t, int64_t>> queue;  // (degree, -node)
  for (size_t node = 0; node < top.size(); ++node) {
    queue.emplace(degree(node), -static_cast<int64_t>(node));
  }
  std::vector<Scored> found;
  for (int64_t left = top.size(); found.empty() || left > max_centres;) {
    const auto [bound, negative] = queue.top();
    const int64_t node = -negative;
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
      for (uint64_t group = graph.neighbours(node)[w] & remaining[w]; group != 0; group &= group - 1) {
        best = std::max(best, top[w * 64 + std::countr_zero(group)].score);
      }
      remaining[w] &= ~graph.neighbours(node)[w];
    }
    found.push_back({top[node].row, best});
    left -= bound;
  }
  return found;
}

void sort_best_first(std::vector<Scored>& scored) {  // ties keep their order
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
}

template <typename B>
std::vector<Scored> pcl_centres(const Matrix<B>& boxes, const std::vector<Scored>& pool,
                                const FixedPoint& fixed, const Options& options) {
  const std::vector<Scored> top = top_ranking(pool, fixed);
  Boxes<B> nodes;
  for (const Scored& scored : top) {
    nodes.push_back(box_at(boxes, scored.row));
  }
  auto found = graph_centres(top, Graph<B>(nodes, options.edge_iou), options.max_centres);
  sort_best_first(found);
  found.resize(std::min<size_t>(found.size(), options.max_centres));
  return found;
}

// Greedy non-maximum suppression of the best share of the pool.
template <typename B>
std::vector<Scored> mist_centres(const Matrix<B>& boxes, std::vector<Scored> pool, const Options& options) {
  sort_best_first(pool);
  pool.resize(top_count(pool.size(), options.top_share));
  Boxes<B> kept;
  std::vector<Scored> found;
  for (const Scored& scored : pool) {
    const Box<B> box = box_at(boxes, scored.row);
    bool suppressed = false;
    for (int64_t k = 0; k < kept.size() && !suppressed; ++k) {
      suppressed = iou(box, area(box), kept[k], kept.area[k]) > static_cast<B>(options.edge_iou);
    }
    if (!suppressed) {
      kept.push_back(box);
      found.push_back(scored);
    }
  }
  return found;
}

// Class by class; a chosen row is out of the pool of later classes. Rows count from the image's first.
template <typename B, typename T>
std::vector<Centre> find_centres(const Matrix<B>& boxes, const Matrix<T>& scores, const Vector<float>& labels,
                                 int64_t num_rows, int64_t num_classes, const Options& options) {
  std::vector<Centre> centres;
  std::vector<bool> chosen(num_rows, false);
  for (int64_t c = 0; c < num_classes; ++c) {
    if (labels[c] == 0) {
      continue;
    }
    std::vector<Scored> pool;
    double lowest = 1, highest = 0;
    for (int64_t r = 0; r < num_rows; ++r) {
      const double score = clamp_score(Accumulate<T>(scores(r, c)));
      lowest = std::min(lowest, score), highest = std::max(highest, score);
      if (!chosen[r]) {
        pool.push_back({r, score});
      }
    }
    if (pool.empty()) {
      break;
    }
    std::vector<Scored> found;
    switch (options.method) {
      case Method::pcl:
        found = pcl_centres(boxes, pool, FixedPoint(lowest, highest), options);
        break;
      case Method::oicr:
        found = {*std::max_element(pool.begin(), pool.end(),
                                   [](const Scored& a, const Scored& b) { return a.score < b.score; })};
        break;
      case Method::mist:
        found = mist_centres(boxes, pool, options);
    }
    for (const Scored& scored : found) {
      chosen[scored.row] = true;
      centres.push_back({scored.row, c, scored.score});
    }
  }
  return centres;
}

// The outputs, from the image's first row on.
template <typename T>
struct Assignment {
  int64_t* labels;
  T* weights;
  int64_t* clusters;
  int64_t* centres;
};

template <typename B, typename T>
void assign(const Matrix<B>& boxes, int64_t num_rows, const std::vector<Centre>& centres,
            const Options& options, const Assignment<T>& out) {
  Boxes<B> centre_boxes;
  for (const Centre& centre : centres) {
    centre_boxes.push_back(box_at(boxes, centre.row));
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    const Box<B> box = box_at(boxes, r);
    const B box_area = area(box);
    B overlap = -1;
    int64_t nearest = -1;
    for (int64_t n = 0; n < centre_boxes.size(); ++n) {
      if (const B value = iou(box, box_area, centre_boxes[n], centre_boxes.area[n]); value > overlap) {
        overlap = value, nearest = n;
      }
    }
    const bool member = nearest >= 0 && overlap >= static_cast<B>(options.member_iou);
    const bool ignored = nearest < 0 || overlap < static_cast<B>(options.ignore_iou);
    out.labels[r] = member ? centres[nearest].column + 1 : 0;
    out.weights[r] = static_cast<T>(ignored ? 0 : static_cast<Accumulate<T>>(centres[nearest].weight));
    out.clusters[r] = member ? nearest : -1;
    out.centres[r] = -1;
  }
  for (size_t n = 0; n < centres.size(); ++n) {
    out.centres[centres[n].row] = n;
  }
}

// The first row of each image and, last, the number of rows: (B + 1,).
std::vector<int64_t> image_starts(const Tensor& counts, int64_t num_rows) {
  std::vector<int64_t> starts{0};
  const auto count = vector_view<int64_t>(counts);
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t most = std::min(num_rows - starts.back(), kMaxRows);
    if (count[i] < 0 || count[i] > most) {
      fail("proposal_clusters: counts[", i, "] is ", count[i], ", expected 0 to ", most,
           ": the rows of boxes that are left, at most ", kMaxRows);
    }
    starts.push_back(starts.back() + count[i]);
  }
  if (starts.back() != num_rows) {
    fail("proposal_clusters: counts sum to ", starts.back(), ", but boxes has ", num_rows, " rows");
  }
  return starts;
}

template <typename B, typename T>
void cluster_images(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                    const std::vector<int64_t>& starts, const Options& options, const Assignment<T>& out) {
  const auto all_boxes = matrix_view<B>(boxes);
  const auto all_scores = matrix_view<T>(scores);
  const auto all_labels = matrix_view<float>(image_labels);
  torch::stable::parallel_for(0, starts.size() - 1, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t start = starts[i], num_rows = starts[i + 1] - start;
      const auto image_boxes = all_boxes.from_row(start);
      const auto centres = find_centres(image_boxes, all_scores.from_row(start), all_labels.row(i), num_rows,
                                        scores.size(1), options);
      assign(
          image_boxes, num_rows, centres, options,
          Assignment<T>{out.labels + start, out.weights + start, out.clusters + start, out.centres + start});
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> forward(const Tensor& boxes, const Tensor& scores,
                                                   const Tensor& image_labels, const Tensor& counts,
                                                   int64_t method, double edge_iou, int64_t max_centres,
                                                   double top_share, double member_iou, double ignore_iou) {
  check_arguments(boxes, scores, image_labels, counts);
  check_values(boxes, scores, image_labels, counts);
  const auto starts = image_starts(counts, boxes.size(0));
  const Options options{Method(method), edge_iou, max_centres, top_share, member_iou, ignore_iou};
  const auto column = [&](ScalarType type) {
    return torch::stable::new_empty(scores, {scores.size(0)}, type);
  };
  Tensor labels = column(ScalarType::Long), weights = column(scores.scalar_type());
  Tensor clusters = column(ScalarType::Long), centres = column(ScalarType::Long);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Assignment<T> out{static_cast<int64_t*>(labels.mutable_data_ptr()),
                            static_cast<T*>(weights.mutable_data_ptr()),
                            static_cast<int64_t*>(clusters.mutable_data_ptr()),
                            static_cast<int64_t*>(centres.mutable_data_ptr())};
    if (boxes.scalar_type() == ScalarType::Double) {
      cluster_images<double>(boxes, scores, image_labels, starts, options, out);
    } else {
      cluster_images<float>(boxes, scores, image_labels, starts, options, out);
    }
  });
  return {labels, weights, clusters, centres};
}

template <typename T>
void check_scores(const Matrix<T>& scores, int64_t num_classes, int64_t row, int64_t image) {
  for (int64_t c = 0; c < num_classes; ++c) {
    if (const double score = scores(row, c); !std::isfinite(score)) {
      fail("proposal_clusters: scores[", row, ", ", c, "], of image ", image, ", is ", score,
           ", expected a finite number");
    }
  }
}

template <typename B>
void check_box(const Box<B>& box, int64_t row, int64_t image) {
  const bool finite =
      std::isfinite(box.x1) && std::isfinite(box.y1) && std::isfinite(box.x2) && std::isfinite(box.y2);
  if (!finite || box.x2 < box.x1 || box.y2 < box.y1) {
    fail("proposal_clusters: boxes[", row, "], of image ", image, ", is (", box.x1, ", ", box.y1, ", ",
         box.x2, ", ", box.y2, "), expected finite x1 <= x2 and y1 <= y2");
  }
}

}  // namespace

void check_values(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                  const Tensor& counts) {
  const auto starts = image_starts(counts, boxes.size(0));
  const int64_t num_classes = scores.size(1);
  const auto labels = matrix_view<float>(image_labels);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    const auto all_scores = matrix_view<decltype(zero)>(scores);
    for (int64_t i = 0; i < counts.size(0); ++i) {
      for (int64_t c = 0; c < num_classes; ++c) {
        if (labels(i, c) != 0 && labels(i, c) != 1) {
          fail("proposal_clusters: image_labels[", i, ", ", c, "] is ", labels(i, c), ", expected 0 or 1");
        }
      }
      for (int64_t r = starts[i]; r < starts[i + 1]; ++r) {
        check_scores(all_scores, num_classes, r, i);
        if (boxes.scalar_type() == ScalarType::Double) {
          check_box(box_at(matrix_view<double>(boxes), r), r, i);
        } else {
          check_box(box_at(matrix_view<float>(boxes), r), r, i);
        }
      }
    }
  });
}

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("proposal_clusters", TORCH_BOX(&forward)); }

}  // namespace detector::proposal_clusters
