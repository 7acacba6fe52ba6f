// Hierarchical grouping of regions by similarity: Uijlings et al., Selective Search for Object Recognition,
// IJCV 2013, sections 3.1 and 3.2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "../multiversion.h"
#include "color.h"
#include "segmentation.h"

namespace detector::selective_search {

// Which similarities are added up: bits of a set.
enum Measure : int64_t { kColor = 1, kTexture = 2, kSize = 4, kFill = 8 };
constexpr int64_t kAllMeasures = 15;

constexpr int64_t kColorBins = 25;   // of each plane
constexpr int64_t kTextureBins = 9;  // of each plane: 4 directions of 2 signs, and flatness
constexpr int64_t kColorValues = 80, kTextureValues = 32;  // of a region: 3 planes, filled up for the vectors
constexpr int32_t kSteepest = 63;                          // derivatives are clipped to it
constexpr float kUnit = 4096;                              // what the normalized histogram of a plane sums to

// Derivatives of the smoothed planes in four directions, in gray levels: (H, W, 3, 4).
DETECTOR_MULTIVERSION inline std::vector<int8_t> differentiate(const std::vector<uint16_t>& smoothed,
                                                               int64_t height, int64_t width) {
  std::vector<int8_t> out(height * width * kPlanes * 4);
  const auto clip = [](int32_t v) { return static_cast<int8_t>(std::clamp(v / 64, -kSteepest, kSteepest)); };
  for (int64_t p = 0; p < kPlanes; ++p) {
    const uint16_t* plane = smoothed.data() + p * height * width;
    for (int64_t y = 0; y < height; ++y) {
      const uint16_t* row = plane + y * width;
      const uint16_t *above = y > 0 ? row - width : row, *below = y + 1 < height ? row + width : row;
      for (int64_t x = 0; x < width; ++x) {
        const int32_t dx = row[std::min(x + 1, width - 1)] - row[std::max<int64_t>(x - 1, 0)];
        const int32_t dy = below[x] - above[x];
        int8_t* to = out.data() + ((y * width + x) * kPlanes + p) * 4;
        to[0] = clip(dx), to[1] = clip(dy);
        to[2] = clip((dx + dy) * 181 / 256), to[3] = clip((dx - dy) * 181 / 256);  // 181 / 256: 1 / sqrt(2)
      }
    }
  }
  return out;
}

struct PixelBox {
  int32_t x1, y1, x2, y2;  // half-open
};

inline PixelBox hull(const PixelBox& a, const PixelBox& b) {
  return {std::min(a.x1, b.x1), std::min(a.y1, b.y1), std::max(a.x2, b.x2), std::max(a.y2, b.y2)};
}

// The overlap of two normalized histograms. All are integers: the order of the sum does not matter.
template <int64_t size>
int32_t overlap(const uint16_t* a, const uint16_t* b) {
  int32_t sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += std::min(a[i], b[i]);
  }
  return sum;
}

// Boxes, sizes and histograms of the regions of a segmentation and, after them, of those they merge into.
class Regions {
 public:
  Regions(const Segmentation& segmentation, const Image& image, const std::vector<int8_t>& derivatives)
      : num_(segmentation.regions),
        area_(static_cast<double>(image.pixels())),
        boxes_(2 * num_, {INT32_MAX, INT32_MAX, 0, 0}),
        sizes_(2 * num_),
        counts_(2 * num_),
        histograms_(2 * num_) {
    int64_t i = 0;
    for (int32_t y = 0; y < image.height; ++y) {
      for (int32_t x = 0; x < image.width; ++x, ++i) {
        count(segmentation.labels[i], x, y, image, i, derivatives.data() + i * kPlanes * 4);
      }
    }
    for (int64_t r = 0; r < num_; ++r) {
      for (int64_t p = 0; p < kPlanes; ++p) {
        uint32_t* bins = counts_[r].texture + p * kTextureBins;
        bins[kTextureBins - 1] =
            4 * kSteepest * static_cast<uint32_t>(sizes_[r]) - std::accumulate(bins, bins + 8, uint32_t(0));
      }
      normalize(r);
    }
  }

  const std::vector<PixelBox>& boxes() const { return boxes_; }

  // Merges the two most similar neighbors until none are left, ties by smaller numbers; the merged region
  // gets the next number. Returns the number of all regions, 2 n - 1 for n.
  int64_t group(const std::vector<std::pair<int32_t, int32_t>>& neighbors, int64_t measures) {
    std::vector<std::vector<int32_t>> adjacent(2 * num_);
    std::vector<Pair> heap;
    for (const auto& [a, b] : neighbors) {
      heap.push_back({similarity(a, b, measures), a, b});
      adjacent[a].push_back(b), adjacent[b].push_back(a);
    }
    std::make_heap(heap.begin(), heap.end());
    std::vector<bool> merged(2 * num_);
    std::vector<int32_t> seen(2 * num_, -1);  // the last merged region that had it as a neighbor
    auto next = static_cast<int32_t>(num_);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const auto [_, a, b] = heap.back();
      heap.pop_back();
      if (merged[a] || merged[b]) {
        continue;
      }
      merged[a] = merged[b] = true;
      join(a, b, next);
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
  struct Counts {
    uint32_t color[kColorValues] = {}, texture[kTextureValues] = {};
  };
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

  // Pixel i, which is at (x, y).
  void count(int32_t r, int32_t x, int32_t y, const Image& image, int64_t i, const int8_t* derivatives) {
    boxes_[r] = hull(boxes_[r], {x, y, x + 1, y + 1});
    ++sizes_[r];
    for (int64_t p = 0; p < kPlanes; ++p) {
      ++counts_[r].color[p * kColorBins + (image.plane(p)[i] * kColorBins >> 8)];
      uint32_t* bins = counts_[r].texture + p * kTextureBins;
      for (int64_t d = 0; d < 4; ++d) {
        const int32_t slope = derivatives[4 * p + d];
        bins[2 * d + (slope < 0)] += std::abs(slope);
      }
    }
  }

  DETECTOR_MULTIVERSION void normalize(int64_t r) {
    const float scale = kUnit / static_cast<float>(sizes_[r]);
    const float texture_scale = kUnit / (4 * kSteepest * static_cast<float>(sizes_[r]));
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
    const double size = double(sizes_[a]) + double(sizes_[b]);
    if (measures & kSize) {
      sum += 1 - size / area_;
    }
    if (measures & kFill) {
      const PixelBox box = hull(boxes_[a], boxes_[b]);
      sum += 1 - (double(box.x2 - box.x1) * double(box.y2 - box.y1) - size) / area_;
    }
    return sum;
  }

  void join(int32_t a, int32_t b, int32_t into) {
    boxes_[into] = hull(boxes_[a], boxes_[b]);
    sizes_[into] = sizes_[a] + sizes_[b];
    for (int64_t i = 0; i < kColorValues; ++i) {
      counts_[into].color[i] = counts_[a].color[i] + counts_[b].color[i];
    }
    for (int64_t i = 0; i < kTextureValues; ++i) {
      counts_[into].texture[i] = counts_[a].texture[i] + counts_[b].texture[i];
    }
    normalize(into);
  }

  int64_t num_;
  double area_;
  std::vector<PixelBox> boxes_;
  std::vector<int64_t> sizes_;
  std::vector<Counts> counts_;
  std::vector<Histograms> histograms_;
};

}  // namespace detector::selective_search
