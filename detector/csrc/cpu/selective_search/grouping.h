// Hierarchical grouping of regions by similarity: Uijlings et al., Selective Search for Object Recognition,
// IJCV 2013, sections 3.1 and 3.2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "../multiversion.h"
#include "buffer.h"
#include "counts.h"
#include "segmentation.h"

namespace detector::selective_search {

// Which similarities are added up: bits of a set.
enum Measure : int64_t { kColor = 1, kTexture = 2, kSize = 4, kFill = 8 };
constexpr int64_t kAllMeasures = 15;

constexpr float kUnit = 4096;  // what the normalized histogram of a plane sums to

// The overlap of two normalized histograms. All are integers: the order of the sum does not matter.
template <int64_t size>
int32_t overlap(const uint16_t* a, const uint16_t* b) {
  int32_t sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += std::min(a[i], b[i]);
  }
  return sum;
}

// The regions of a segmentation and, after them, those they merge into.
class Regions {
 public:
  // `counts` are those of the parts.
  Regions(const Segmentation& segmentation, const Parts& parts, const Buffer<Counts>& counts, int64_t area)
      : num_(segmentation.regions),
        area_(static_cast<double>(area)),
        counts_(2 * num_),
        histograms_(2 * num_) {
    Buffer<int32_t> labels(parts.count);
    for (size_t i = 0; i < parts.labels.size(); ++i) {
      labels[parts.labels[i]] = segmentation.labels[i];
    }
    for (int64_t i = 0; i < parts.count; ++i) {
      counts_[labels[i]].add(counts[i]);
    }
    for (int64_t r = 0; r < num_; ++r) {
      normalize(r);
    }
  }

  const PixelBox& box(int64_t r) const { return counts_[r].box; }

  // Merges the two most similar neighbors until none are left, ties by smaller numbers; the merged region
  // gets the next number. Returns the number of all regions, 2 n - 1 for n.
  int64_t group(const Buffer<std::pair<int32_t, int32_t>>& neighbors, int64_t measures) {
    std::vector<std::vector<int32_t>> adjacent(2 * num_);
    Buffer<Pair> heap;
    for (const auto& [a, b] : neighbors) {
      heap.push_back({similarity(a, b, measures), a, b});
      adjacent[a].push_back(b), adjacent[b].push_back(a);
    }
    std::make_heap(heap.begin(), heap.end());
    std::vector<bool> merged(2 * num_);
    Buffer<int32_t> seen(2 * num_, -1);  // the last merged region that had it as a neighbor
    auto next = static_cast<int32_t>(num_);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const auto [_, a, b] = heap.back();
      heap.pop_back();
      if (merged[a] || merged[b]) {
        continue;
      }
      merged[a] = merged[b] = true;
      counts_[next] = counts_[a];
      counts_[next].add(counts_[b]);
      normalize(next);
      for (const int32_t half : {a, b}) {
        for (const int32_t other : adjacent[half]) {
          if (merged[other] || seen[other] == next) {
            continue;
          }
          seen[other] = next;
          adjacent[next].push_back(other), adjacent[other].push_back(next);
          heap.push_back({similarity(other, next, measures), other, next});
          std::push_heap(heap.begin(), heap.end());
        }
      }
      ++next;
    }
    return next;
  }

 private:
  struct Histograms {  // each plane's sums to kUnit or, rounded down, a little less
    uint16_t color[kColorValues] = {}, texture[kTextureValues] = {};
  };
  struct Pair {
    double similarity;
    int32_t a, b;
    bool operator<(const Pair& other) const {
      return similarity != other.similarity ? similarity < other.similarity
                                            : std::pair(a, b) > std::pair(other.a, other.b);
    }
  };

  DETECTOR_MULTIVERSION void normalize(int64_t r) {
    const float scale = kUnit / static_cast<float>(counts_[r].size);
    const float texture_scale = kUnit / (4 * kSteepest * static_cast<float>(counts_[r].size));
    for (int64_t i = 0; i < kColorValues; ++i) {
      histograms_[r].color[i] = static_cast<uint16_t>(static_cast<float>(counts_[r].color[i]) * scale);
    }
    for (int64_t i = 0; i < kTextureValues; ++i) {
      histograms_[r].texture[i] =
          static_cast<uint16_t>(static_cast<float>(counts_[r].texture[i]) * texture_scale);
    }
  }

  DETECTOR_MULTIVERSION double similarity(int32_t a, int32_t b, int64_t measures) const {
    double sum = 0;
    if (measures & kColor) {
      sum += overlap<kColorValues>(histograms_[a].color, histograms_[b].color) / double(kPlanes * kUnit);
    }
    if (measures & kTexture) {
      sum +=
          overlap<kTextureValues>(histograms_[a].texture, histograms_[b].texture) / double(kPlanes * kUnit);
    }
    const double size = double(counts_[a].size) + double(counts_[b].size);
    if (measures & kSize) {
      sum += 1 - size / area_;
    }
    if (measures & kFill) {
      const PixelBox box = hull(counts_[a].box, counts_[b].box);
      sum += 1 - (double(box.x2 - box.x1) * double(box.y2 - box.y1) - size) / area_;
    }
    return sum;
  }

  int64_t num_;
  double area_;
  Buffer<Counts> counts_;
  Buffer<Histograms> histograms_;
};

}  // namespace detector::selective_search
