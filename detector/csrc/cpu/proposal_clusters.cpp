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

#include "parallel.h"

namespace detector::proposal_clusters {
namespace {

// ---- boxes: column after column, so that one is compared with many at once ----

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
    area.push_back(proposal_clusters::area(box));
  }
};

template <typename B>
inline void overlaps_loop(const Box<B> box, const Boxes<B>& others, B* __restrict__ out) {
  const B *x1 = others.x1.data(), *y1 = others.y1.data(), *x2 = others.x2.data(), *y2 = others.y2.data();
  const B *areas = others.area.data(), box_area = area(box);
  const int64_t size = others.size();
  for (int64_t i = 0; i < size; ++i) {
    out[i] = iou(box, box_area, Box<B>{x1[i], y1[i], x2[i], y2[i]}, areas[i]);
  }
}

// Built for eight floats at a time too, and chosen at run time.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define DETECTOR_WIDE __attribute__((target_clones("avx2", "default"), flatten))
#else
#define DETECTOR_WIDE
#endif

DETECTOR_WIDE void overlaps_with(const Box<float>& box, const Boxes<float>& others, float* out) {
  overlaps_loop(box, others, out);
}

DETECTOR_WIDE void overlaps_with(const Box<double>& box, const Boxes<double>& others, double* out) {
  overlaps_loop(box, others, out);
}

// The IoU of a box with each of others.
template <typename B>
const std::vector<B>& overlaps(const Box<B>& box, const Boxes<B>& others, std::vector<B>& out) {
  out.resize(others.size());
  overlaps_with(box, others, out.data());
  return out;
}

// ---- centres of one class ----

struct Scored {
  int64_t row;
  double score;
};

void sort_best_first(std::vector<Scored>& scored) {  // ties keep their order
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
}

// The lowest number of the top cluster of the optimal 3-means of ascending numbers.
int64_t top_threshold(const std::vector<int64_t>& numbers) {
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
    const Range range = candidates(sorted, low);
    for (int32_t high = range.first; high < range.last; ++high) {
      best = better(best, split_at(sorted, low, high));
    }
  }
  return value[best.high];
}

// The rows of the pool in the highest of three clusters.
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

// A bit for each pair of boxes: whether their IoU is greater than `edge_iou`. Each box is its own neighbour.
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
  const uint64_t* neighbours(int64_t node) const { return &bits_[node * words_]; }

 private:
  int64_t words_;
  std::vector<uint64_t> bits_;
};

// Greedy: the node of the most remaining neighbours (ties: the first) becomes a centre and takes them with
// it, until `max_centres` nodes or fewer remain. Its weight is the best score among them.
std::vector<Scored> graph_centres(const std::vector<Scored>& top, const Graph& graph, int64_t max_centres) {
  const int64_t words = graph.words(), num_nodes = top.size();
  std::vector<uint64_t> remaining(words, 0);
  for (int64_t node = 0; node < num_nodes; ++node) {
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
  for (int64_t node = 0; node < num_nodes; ++node) {
    queue.emplace(degree(node), -node);
  }
  std::vector<Scored> found;
  for (int64_t left = num_nodes; found.empty() || left > max_centres;) {
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

template <typename B>
std::vector<Scored> pcl_centres(const Boxes<B>& boxes, const std::vector<Scored>& pool,
                                const FixedPoint& fixed, const Options& options) {
  const std::vector<Scored> top = top_ranking(pool, fixed);
  Boxes<B> nodes;
  for (const Scored& scored : top) {
    nodes.push_back(boxes[scored.row]);
  }
  auto found = graph_centres(top, Graph(nodes, options.edge_iou), options.max_centres);
  sort_best_first(found);
  found.resize(std::min<size_t>(found.size(), options.max_centres));
  return found;
}

std::vector<Scored> oicr_centre(const std::vector<Scored>& pool) {
  return {*std::max_element(pool.begin(), pool.end(),
                            [](const Scored& a, const Scored& b) { return a.score < b.score; })};
}

// Greedy non-maximum suppression of the best share of the pool.
template <typename B>
std::vector<Scored> mist_centres(const Boxes<B>& boxes, std::vector<Scored> pool, const Options& options) {
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

// ---- one image; rows count from its first ----

struct Centre {
  int64_t row, column;  // of scores
  double weight;
};

// Class by class; a chosen row is out of the pool of later classes.
template <typename B, typename T>
std::vector<Centre> find_centres(const Boxes<B>& boxes, const Matrix<T>& scores, const Vector<float>& labels,
                                 int64_t num_classes, const Options& options) {
  std::vector<Centre> centres;
  std::vector<bool> chosen(boxes.size(), false);
  for (int64_t c = 0; c < num_classes; ++c) {
    if (labels[c] == 0 || static_cast<int64_t>(centres.size()) == boxes.size()) {
      continue;
    }
    std::vector<Scored> pool;
    double lowest = 1, highest = 0;
    for (int64_t r = 0; r < boxes.size(); ++r) {
      const double score = clamp_score<Accumulate<T>>(scores(r, c));
      lowest = std::min(lowest, score);
      highest = std::max(highest, score);
      if (!chosen[r]) {
        pool.push_back({r, score});
      }
    }
    const auto found = options.method == Method::pcl
                           ? pcl_centres(boxes, pool, FixedPoint(lowest, highest), options)
                       : options.method == Method::oicr ? oicr_centre(pool)
                                                        : mist_centres(boxes, std::move(pool), options);
    for (const Scored& scored : found) {
      chosen[scored.row] = true;
      centres.push_back({scored.row, c, scored.score});
    }
  }
  return centres;
}

template <typename T>
struct Outputs {
  int64_t* labels;
  T* weights;
  int64_t* clusters;
  int64_t* centres;
};

template <typename B, typename T>
void assign(const Boxes<B>& boxes, const std::vector<Centre>& centres, const Options& options,
            const Outputs<T>& out) {
  const int64_t num_rows = boxes.size();
  std::vector<B> overlap, highest(num_rows, -1);
  std::vector<int32_t> nearest(num_rows, -1);
  std::fill_n(out.centres, num_rows, -1);
  for (size_t n = 0; n < centres.size(); ++n) {
    overlaps(boxes[centres[n].row], boxes, overlap);
    for (int64_t r = 0; r < num_rows; ++r) {
      const bool nearer = overlap[r] > highest[r];
      highest[r] = nearer ? overlap[r] : highest[r];
      nearest[r] = nearer ? n : nearest[r];
    }
    out.centres[centres[n].row] = n;
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    const int32_t n = nearest[r];  // -1 where there are no centres
    const bool member = n >= 0 && highest[r] >= static_cast<B>(options.member_iou);
    const bool ignored = n < 0 || highest[r] < static_cast<B>(options.ignore_iou);
    out.labels[r] = member ? centres[n].column + 1 : 0;
    out.weights[r] = static_cast<T>(ignored ? 0 : static_cast<Accumulate<T>>(centres[n].weight));
    out.clusters[r] = member ? n : -1;
  }
}

// ---- the batch ----

template <typename B, typename T>
void cluster_images(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                    const std::vector<int64_t>& starts, const Options& options, const Outputs<T>& out) {
  const auto box = matrix_view<B>(boxes);
  const auto score = matrix_view<T>(scores);
  const auto label = matrix_view<float>(image_labels);
  parallel_for(starts.size() - 1, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Boxes<B> image_boxes;
      for (int64_t r = starts[i]; r < starts[i + 1]; ++r) {
        image_boxes.push_back(box_at(box, r));
      }
      const int64_t start = starts[i];
      const auto centres =
          find_centres(image_boxes, score.from_row(start), label.row(i), scores.size(1), options);
      assign(image_boxes, centres, options,
             Outputs<T>{out.labels + start, out.weights + start, out.clusters + start, out.centres + start});
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> clusters_cpu(const Tensor& boxes, const Tensor& scores,
                                                        const Tensor& image_labels, const Tensor& counts,
                                                        int64_t method, double edge_iou, int64_t max_centres,
                                                        double top_share, double member_iou,
                                                        double ignore_iou) {
  check_arguments(boxes, scores, image_labels, counts);
  check_values(boxes, scores, image_labels, counts);
  const Options options{Method(method), edge_iou, max_centres, top_share, member_iou, ignore_iou};
  const auto starts = image_starts(counts, boxes.size(0));
  const auto column = [&](ScalarType type) {
    return torch::stable::new_empty(scores, {scores.size(0)}, type);
  };
  Tensor labels = column(ScalarType::Long), weights = column(scores.scalar_type());
  Tensor clusters = column(ScalarType::Long), centres = column(ScalarType::Long);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Outputs<T> out{static_cast<int64_t*>(labels.mutable_data_ptr()),
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
  if (!is_box(box)) {
    fail("proposal_clusters: boxes[", row, "], of image ", image, ", is (", box.x1, ", ", box.y1, ", ",
         box.x2, ", ", box.y2, "), expected finite x1 <= x2 and y1 <= y2");
  }
}

}  // namespace

std::vector<int64_t> image_starts(const Tensor& counts, int64_t num_rows) {
  std::vector<int64_t> starts{0};
  const auto count = vector_view<int64_t>(counts);
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t left = num_rows - starts.back();
    if (count[i] < 0 || count[i] > left) {
      fail("proposal_clusters: counts[", i, "] is ", count[i], ", expected 0 to the ", left,
           " rows of boxes that are left");
    }
    if (count[i] > kMaxRows) {
      fail("proposal_clusters: counts[", i, "] is ", count[i], ", expected at most ", kMaxRows);
    }
    starts.push_back(starts.back() + count[i]);
  }
  if (starts.back() != num_rows) {
    fail("proposal_clusters: counts sum to ", starts.back(), ", but boxes has ", num_rows, " rows");
  }
  return starts;
}

void check_values(const Tensor& boxes, const Tensor& scores, const Tensor& image_labels,
                  const Tensor& counts) {
  const auto starts = image_starts(counts, boxes.size(0));
  const int64_t num_classes = scores.size(1);
  const auto labels = matrix_view<float>(image_labels);
  dispatch_floating("proposal_clusters", "scores", scores.scalar_type(), [&](auto zero) {
    const auto all_scores = matrix_view<decltype(zero)>(scores);
    for (int64_t i = 0; i < counts.size(0); ++i) {
      for (int64_t c = 0; c < num_classes; ++c) {
        if (!is_label(labels(i, c))) {
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

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("proposal_clusters", TORCH_BOX(&clusters_cpu)); }

}  // namespace detector::proposal_clusters
