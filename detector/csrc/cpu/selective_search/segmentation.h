// Graph-based segmentation: Felzenszwalb and Huttenlocher, Efficient Graph-Based Image Segmentation, IJCV
// 2004.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "../multiversion.h"
#include "buffer.h"
#include "color.h"

namespace detector::selective_search {

// The edges between neighboring pixels, sorted by weight: by the distance of the smoothed colors, rounded
// down to 128ths of a gray level. Equal weights are sorted by direction, then by pixel. Coarser weights would
// not do: a large region grows over a smooth background by edges that are hardly heavier than the last.
struct PixelGraph {
  static constexpr int64_t kDirections = 4;
  static constexpr std::array<int64_t, kDirections> kRight{1, 0, 1, -1}, kDown{0, 1, 1, 1};

  int64_t pixels;
  std::array<int64_t, kDirections> offsets;  // from the first pixel of an edge to its second
  Buffer<uint32_t> edges;                    // 4 * first pixel + direction
  Buffer<uint32_t> ends;                     // by weight: where its edges end

  PixelGraph(const Buffer<uint16_t>& smoothed, int64_t height, int64_t width) : pixels(height * width) {
    for (int64_t d = 0; d < kDirections; ++d) {
      offsets[d] = kDown[d] * width + kRight[d];
    }
    const auto for_rows =
        [&](const auto& body) {  // of edges: direction, and the first pixels from begin to end
          for (int64_t d = 0; d < kDirections; ++d) {
            for (int64_t y = 0; y + kDown[d] < height; ++y) {
              body(d, y * width + (kRight[d] < 0), (y + 1) * width - (kRight[d] > 0));
            }
          }
        };
    Buffer<uint16_t> weights(kDirections * pixels);
    ends.assign(kMaxWeight + 2, 0);
    for_rows([&](int64_t d, int64_t begin, int64_t end) {
      uint16_t* of = weights.data() + d * pixels;
      weigh(smoothed.data(), offsets[d], begin, end, of);
      for (int64_t i = begin; i < end; ++i) {
        ++ends[of[i] + 1];
      }
    });
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    edges.resize(ends.back());
    for_rows([&](int64_t d, int64_t begin, int64_t end) {
      const uint16_t* of = weights.data() + d * pixels;
      for (int64_t i = begin; i < end; ++i) {
        edges[ends[of[i]]++] = static_cast<uint32_t>(4 * i + d);
      }
    });
  }

 private:
  static constexpr int64_t kMaxWeight = 56533;  // 128 * 255 * sqrt(3)

  DETECTOR_MULTIVERSION void weigh(const uint16_t* smoothed, int64_t offset, int64_t begin, int64_t end,
                                   uint16_t* __restrict weights) const {
    const uint16_t *a = smoothed, *b = a + pixels, *c = b + pixels;
    for (int64_t i = begin; i < end; ++i) {
      const int32_t u = a[i] - a[i + offset], v = b[i] - b[i + offset], w = c[i] - c[i + offset];
      weights[i] = static_cast<uint16_t>(2 * std::sqrt(static_cast<float>(u * u + v * v + w * w)));
    }
  }
};

// Disjoint sets of pixels or of fragments. The larger set keeps its root.
struct Forest {
  Buffer<int32_t> parents, sizes;

  explicit Forest(Buffer<int32_t> sizes) : parents(sizes.size()), sizes(std::move(sizes)) {
    std::iota(parents.begin(), parents.end(), 0);
  }

  int32_t find(int32_t i) {
    while (parents[i] != i) {
      i = parents[i] = parents[parents[i]];
    }
    return i;
  }

  int32_t merge(int32_t a, int32_t b) {  // of two roots; returns that of both
    if (sizes[a] < sizes[b]) {
      std::swap(a, b);
    }
    parents[b] = a;
    sizes[a] += sizes[b];
    return a;
  }

  // Calls visit(a, b, e) for each edge e of 0..count, in this order, that links two sets, with their roots.
  // ends(e) returns two members. Most edges lie inside a set, but a processor cannot predict which: a loop
  // without branches drops most of these first.
  template <typename Ends, typename Visit>
  void visit_edges(int64_t count, const Ends& ends, const Visit& visit) {
    struct Candidate {
      int32_t a, b;
      int64_t edge;
    };
    constexpr int64_t kBlock = 256;
    std::array<Candidate, kBlock> candidates;
    int32_t* const parent = parents.data();
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      int64_t found = 0;
      for (int64_t e = begin; e < std::min(begin + kBlock, count); ++e) {
        const auto [first, second] = ends(e);
        const int32_t a = parent[first] = parent[parent[first]];
        const int32_t b = parent[second] = parent[parent[second]];
        candidates[found] = {a, b, e};
        found += a != b;
      }
      for (int64_t i = 0; i < found; ++i) {
        const int32_t a = find(candidates[i].a), b = find(candidates[i].b);
        if (a != b) {
          visit(a, b, candidates[i].edge);
        }
      }
    }
  }

  // The set of each member, numbered in the order of their first members, and the root of each set.
  std::pair<Buffer<int32_t>, Buffer<int32_t>> number() {
    Buffer<int32_t> labels(parents.size()), numbers(parents.size(), -1), roots;
    for (size_t i = 0; i < labels.size(); ++i) {
      const int32_t root = find(static_cast<int32_t>(i));
      if (numbers[root] < 0) {
        numbers[root] = static_cast<int32_t>(roots.size());
        roots.push_back(root);
      }
      labels[i] = numbers[root];
    }
    return {std::move(labels), std::move(roots)};
  }
};

// Pairs of numbers in a table where a later pair takes the place of an earlier one.
class RecentPairs {
 public:
  // Returns whether the pair was not in the table, in either order.
  bool add(int32_t a, int32_t b) {
    const auto [low, high] = std::minmax(a, b);
    const uint64_t pair = uint64_t(low) << 32 | uint64_t(high);  // never 0: low < high
    uint64_t& slot = pairs_[(pair * 0x9e3779b97f4a7c15) >> (64 - kBits)];
    return std::exchange(slot, pair) != pair;
  }

 private:
  static constexpr int kBits = 12;
  std::array<uint64_t, 1 << kBits> pairs_{};
};

// A region merges along an edge that weighs at most this. `heaviest` is the heaviest edge inside the region.
inline float limit(float heaviest, int64_t k, int32_t size) {
  return heaviest + static_cast<float>(128 * k) / static_cast<float>(size);
}

// What the segmentations of a graph by several k have in common: fragments, which none of them cuts, and the
// edges between fragments, in the order of the graph. A photograph has a fifteenth as many fragments as
// pixels and as many edges as a sixteenth of its graph, so that the second and later k cost little.
//
// The limit of a region grows with k. While all segmentations have a region, an edge within the limits of the
// smallest k merges it in all of them, and one beyond a limit of the largest k in none: later edges weigh
// more, so the region with this limit is final. Any other edge is left to the segmentations, as are all later
// edges of its two regions, which grow no further here.
//
// Of the edges between two fragments only the first matters: if it does not merge them, one of them is final.
struct Fragments {
  struct Edge {
    int32_t a, b;
    float weight;
  };

  Buffer<int32_t> labels;  // the fragment of each pixel, numbered in row order
  Buffer<int32_t> sizes;
  Buffer<float> heaviest;  // edge inside a fragment
  Buffer<Edge> edges;

  Fragments(const PixelGraph& graph, int64_t smallest_k, int64_t largest_k) {
    constexpr float kLeft = -1;  // limit of a region that is left to the segmentations
    Forest forest(Buffer<int32_t>(graph.pixels, 1));
    Buffer<float> inside(graph.pixels), limits(graph.pixels, limit(0, smallest_k, 1));
    const auto is_final = [&](int32_t root, float weight) {
      return limits[root] != kLeft && weight > limit(inside[root], largest_k, forest.sizes[root]);
    };
    const auto ends = [&](int64_t e) {
      const auto first = static_cast<int32_t>(graph.edges[e] >> 2);
      return std::pair(first, static_cast<int32_t>(first + graph.offsets[graph.edges[e] & 3]));
    };
    RecentPairs linked;
    int64_t bucket = 0;
    forest.visit_edges(std::ssize(graph.edges), ends, [&](int32_t a, int32_t b, int64_t e) {
      while (e >= graph.ends[bucket]) {
        ++bucket;
      }
      const auto weight = static_cast<float>(bucket);
      if (weight <= limits[a] && weight <= limits[b]) {
        const int32_t root = forest.merge(a, b);
        inside[root] = weight;
        limits[root] = limit(weight, smallest_k, forest.sizes[root]);
        return;
      }
      if (linked.add(a, b)) {
        edges.push_back({a, b, weight});
      }
      if (!is_final(a, weight) && !is_final(b, weight)) {
        limits[a] = limits[b] = kLeft;
      }
    });

    Buffer<int32_t> roots;
    std::tie(labels, roots) = forest.number();
    for (const int32_t root : roots) {
      sizes.push_back(forest.sizes[root]);
      heaviest.push_back(inside[root]);
    }
    for (Edge& edge : edges) {
      edge.a = labels[edge.a], edge.b = labels[edge.b];
    }
  }
};

struct Segmentation {
  int64_t regions = 0;
  Buffer<int32_t> labels;                         // the region of each fragment, numbered in row order
  Buffer<std::pair<int32_t, int32_t>> neighbors;  // regions that touch, (smaller, larger), ascending
};

// The pairs of regions that meet in `borders`, pairs of fragments. Sorted by counting: a region has many
// fragments at its border, but few neighbors.
inline Buffer<std::pair<int32_t, int32_t>> unique_pairs(const Buffer<std::pair<int32_t, int32_t>>& borders,
                                                        const Segmentation& segmentation) {
  Buffer<int64_t> starts(segmentation.regions + 1);
  for (const auto& [first, second] : borders) {
    ++starts[std::min(segmentation.labels[first], segmentation.labels[second]) + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  Buffer<int64_t> ends(starts.begin(), starts.end() - 1);
  Buffer<int32_t> others(borders.size());
  for (const auto& [first, second] : borders) {
    const auto [a, b] = std::minmax(segmentation.labels[first], segmentation.labels[second]);
    others[ends[a]++] = b;
  }
  Buffer<std::pair<int32_t, int32_t>> pairs;
  Buffer<int32_t> seen(segmentation.regions, -1);
  for (int32_t a = 0; a < segmentation.regions; ++a) {
    seen[a] = a;  // no neighbor of its own
    const size_t begin = pairs.size();
    for (int64_t i = starts[a]; i < starts[a + 1]; ++i) {
      if (seen[others[i]] != a) {
        seen[others[i]] = a;
        pairs.emplace_back(a, others[i]);
      }
    }
    std::sort(pairs.begin() + begin, pairs.end());
  }
  return pairs;
}

// Two regions merge along an edge within the limits of both; then, in the same order of edges, wherever one
// has fewer than `min_size` pixels.
inline Segmentation segment(const Fragments& fragments, int64_t k, int64_t min_size) {
  Forest forest(fragments.sizes);
  Buffer<float> limits(fragments.sizes.size());
  for (size_t i = 0; i < limits.size(); ++i) {
    limits[i] = limit(fragments.heaviest[i], k, fragments.sizes[i]);
  }
  Buffer<std::pair<int32_t, int32_t>> borders;  // edges that did not merge
  const auto ends = [&](int64_t e) { return std::pair(fragments.edges[e].a, fragments.edges[e].b); };
  forest.visit_edges(std::ssize(fragments.edges), ends, [&](int32_t a, int32_t b, int64_t e) {
    const float weight = fragments.edges[e].weight;
    if (weight <= limits[a] && weight <= limits[b]) {
      const int32_t root = forest.merge(a, b);
      limits[root] = limit(weight, k, forest.sizes[root]);
    } else {
      borders.emplace_back(a, b);
    }
  });
  const auto border_ends = [&](int64_t e) { return borders[e]; };
  forest.visit_edges(std::ssize(borders), border_ends, [&](int32_t a, int32_t b, int64_t) {
    if (forest.sizes[a] < min_size || forest.sizes[b] < min_size) {
      forest.merge(a, b);
    }
  });
  auto [labels, roots] = forest.number();
  Segmentation out{std::ssize(roots), std::move(labels), {}};
  out.neighbors = unique_pairs(borders, out);
  return out;
}

}  // namespace detector::selective_search
