// Graph-based segmentation: Felzenszwalb and Huttenlocher, Efficient Graph-Based Image Segmentation, IJCV
// 2004.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "../multiversion.h"
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
  std::vector<uint32_t> edges;               // 4 * first pixel + direction
  std::vector<int64_t> ends;                 // by weight: where its edges end

  PixelGraph(const std::vector<uint16_t>& smoothed, int64_t height, int64_t width) : pixels(height * width) {
    constexpr uint16_t kNone = 0xffff;
    std::vector<uint16_t> weights(kDirections * pixels, kNone);
    for (int64_t d = 0; d < kDirections; ++d) {
      offsets[d] = kDown[d] * width + kRight[d];
      const int64_t begin = kRight[d] < 0 ? 1 : 0, end = kRight[d] > 0 ? width - 1 : width;
      for (int64_t y = 0; y + kDown[d] < height; ++y) {
        weigh(smoothed.data() + y * width, offsets[d], begin, end, weights.data() + d * pixels + y * width);
      }
    }
    ends.assign(kMaxWeight + 2, 0);
    for (const uint16_t weight : weights) {
      if (weight != kNone) {
        ++ends[weight + 1];
      }
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    edges.resize(ends.back());
    for (int64_t d = 0; d < kDirections; ++d) {
      for (int64_t i = 0; i < pixels; ++i) {
        if (const uint16_t weight = weights[d * pixels + i]; weight != kNone) {
          edges[ends[weight]++] = static_cast<uint32_t>(4 * i + d);
        }
      }
    }
  }

 private:
  static constexpr int64_t kMaxWeight = 56533;  // 128 * 255 * sqrt(3)

  DETECTOR_MULTIVERSION void weigh(const uint16_t* row, int64_t offset, int64_t begin, int64_t end,
                                   uint16_t* weights) const {
    const uint16_t *a = row, *b = row + pixels, *c = row + 2 * pixels;
    for (int64_t x = begin; x < end; ++x) {
      const int32_t u = a[x] - a[x + offset], v = b[x] - b[x + offset], w = c[x] - c[x + offset];
      weights[x] = static_cast<uint16_t>(2 * std::sqrt(static_cast<float>(u * u + v * v + w * w)));
    }
  }
};

struct Segmentation {
  int64_t regions = 0;
  std::vector<int32_t> labels;                         // the region of each pixel, numbered in row order
  std::vector<std::pair<int32_t, int32_t>> neighbors;  // regions that touch, (smaller, larger), ascending
};

// The pairs of regions that meet in `borders`, pairs of pixels. Sorted by counting: a region has thousands of
// border pixels, but few neighbors.
inline std::vector<std::pair<int32_t, int32_t>> unique_pairs(
    const std::vector<std::pair<int32_t, int32_t>>& borders, const Segmentation& segmentation) {
  std::vector<int64_t> starts(segmentation.regions + 1);
  for (const auto& [first, second] : borders) {
    ++starts[std::min(segmentation.labels[first], segmentation.labels[second]) + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<int64_t> ends(starts.begin(), starts.end() - 1);
  std::vector<int32_t> others(borders.size());
  for (const auto& [first, second] : borders) {
    const auto [a, b] = std::minmax(segmentation.labels[first], segmentation.labels[second]);
    others[ends[a]++] = b;
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  std::vector<int32_t> seen(segmentation.regions, -1);
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

// Two regions merge along an edge that weighs at most w + k / |region| for both, where w is the heaviest
// edge inside the region; then, in the same order of edges, wherever one has fewer than `min_size` pixels.
inline Segmentation segment(const PixelGraph& graph, int64_t k, int64_t min_size) {
  std::vector<int32_t> parents(graph.pixels), sizes(graph.pixels, 1);
  const auto scale = static_cast<float>(128 * k);
  std::vector<float> limits(graph.pixels, scale);
  std::iota(parents.begin(), parents.end(), 0);
  const auto find = [&](int32_t i) {
    while (parents[i] != i) {
      i = parents[i] = parents[parents[i]];
    }
    return i;
  };
  const auto merge = [&](int32_t a, int32_t b) {  // returns the root of both
    if (sizes[a] < sizes[b]) {
      std::swap(a, b);
    }
    parents[b] = a;
    sizes[a] += sizes[b];
    return a;
  };

  std::vector<std::pair<int32_t, int32_t>> borders;  // edges that did not merge: pixels, later regions
  int64_t e = 0;
  for (size_t bucket = 0; bucket < graph.ends.size(); ++bucket) {
    const auto weight = static_cast<float>(bucket);
    for (; e < graph.ends[bucket]; ++e) {
      const int64_t first = graph.edges[e] >> 2, second = first + graph.offsets[graph.edges[e] & 3];
      const int32_t a = find(static_cast<int32_t>(first)), b = find(static_cast<int32_t>(second));
      if (a == b) {
        continue;
      }
      if (weight <= limits[a] && weight <= limits[b]) {
        const int32_t root = merge(a, b);
        limits[root] = weight + scale / static_cast<float>(sizes[root]);
      } else {
        borders.emplace_back(a, b);
      }
    }
  }
  for (const auto& [first, second] : borders) {
    const int32_t a = find(first), b = find(second);
    if (a != b && (sizes[a] < min_size || sizes[b] < min_size)) {
      merge(a, b);
    }
  }

  Segmentation out;
  out.labels.resize(graph.pixels);
  std::vector<int32_t> numbers(graph.pixels, -1);  // by root
  for (int64_t i = 0; i < graph.pixels; ++i) {
    int32_t& number = numbers[find(static_cast<int32_t>(i))];
    if (number < 0) {
      number = static_cast<int32_t>(out.regions++);
    }
    out.labels[i] = number;
  }
  out.neighbors = unique_pairs(borders, out);
  return out;
}

}  // namespace detector::selective_search
