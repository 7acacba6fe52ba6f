// What is counted of the pixels of regions: boxes, sizes, and histograms of color and texture. The pixels are
// read once for all segmentations of a color space.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "../multiversion.h"
#include "buffer.h"
#include "color.h"
#include "segmentation.h"

namespace detector::selective_search {

constexpr int64_t kColorBins = 25;                         // of each plane
constexpr int64_t kSlopes = 8;                             // 4 directions of 2 signs
constexpr int64_t kColorValues = 80, kTextureValues = 32;  // of a region: filled up for the vectors
constexpr int32_t kSteepest = 63;                          // derivatives are clipped to it

struct PixelBox {
  int32_t x1, y1, x2, y2;  // half-open
};

inline PixelBox hull(const PixelBox& a, const PixelBox& b) {
  return {std::min(a.x1, b.x1), std::min(a.y1, b.y1), std::max(a.x2, b.x2), std::max(a.y2, b.y2)};
}

// What is counted of the pixels of a region.
struct Counts {
  PixelBox box{INT32_MAX, INT32_MAX, 0, 0};
  int64_t size = 0;
  uint32_t color[kColorValues] = {};
  // [slope][plane of 4]; the fourth of the first slopes is the flatness of plane 0, 1 and 2: what remains to
  // the steepest slopes
  uint32_t texture[kTextureValues] = {};

  void add(const Counts& other) {
    box = hull(box, other.box);
    size += other.size;
    for (int64_t i = 0; i < kColorValues; ++i) {
      color[i] += other.color[i];
    }
    for (int64_t i = 0; i < kTextureValues; ++i) {
      texture[i] += other.texture[i];
    }
  }
};

// The slopes of a row of the smoothed planes in gray levels: [slope][x][plane of 4]. All fits into 16 bits.
DETECTOR_MULTIVERSION inline void differentiate(const uint16_t* above, const uint16_t* row,
                                                const uint16_t* below, int64_t width,
                                                uint16_t* __restrict slopes) {
  constexpr std::array<int16_t, kSlopes> kRight{1, -1, 0, 0, 1, -1, 1, -1}, kDown{0, 0, 1, -1, 1, -1, -1, 1};
  for (int64_t s = 0; s < kSlopes; ++s) {
    const int16_t right = kRight[s], down = kDown[s];
    const uint16_t scale = right != 0 && down != 0 ? 724 : 1024;  // 1 / sqrt(2), or 1; over 64 * 65536
    for (int64_t i = 0; i < 4 * width; ++i) {
      const auto slope =
          static_cast<int16_t>(right * (row[i + 4] - row[i - 4]) + down * (below[i] - above[i]));
      const auto size = static_cast<uint16_t>(uint32_t(std::max<int16_t>(slope, 0)) * scale >> 16);
      slopes[4 * width * s + i] = std::min<uint16_t>(size, kSteepest);
    }
  }
}

// The smoothed planes as (H, W + 2, 4): the fourth is 0, and border pixels repeat at the left and the right.
inline Buffer<uint16_t> interleave(const Buffer<uint16_t>& smoothed, int64_t height, int64_t width) {
  Buffer<uint16_t> out(height * (width + 2) * 4);
  for (int64_t y = 0; y < height; ++y) {
    uint16_t* row = out.data() + y * (width + 2) * 4;
    for (int64_t p = 0; p < kPlanes; ++p) {
      const uint16_t* from = smoothed.data() + (p * height + y) * width;
      for (int64_t x = 0; x < width; ++x) {
        row[4 * (x + 1) + p] = from[x];
      }
      row[p] = from[0];
      row[4 * (width + 1) + p] = from[width - 1];
    }
  }
  return out;
}

// Sums of four numbers of 16 bits each, which are added as one of 64 bits.
DETECTOR_MULTIVERSION inline void add_slopes(const uint16_t* slopes, int64_t width, int64_t begin,
                                             int64_t end, uint32_t* texture) {
  constexpr int64_t kLongest = 0xffff / kSteepest;  // so many fit into 16 bits
  for (int64_t from = begin; from < end; from += kLongest) {
    const int64_t to = std::min(from + kLongest, end);
    for (int64_t s = 0; s < kSlopes; ++s) {
      uint64_t sum = 0;
      for (int64_t x = from; x < to; ++x) {
        uint64_t four;
        std::memcpy(&four, slopes + (s * width + x) * 4, sizeof four);
        sum += four;
      }
      std::array<uint16_t, 4> sums;
      std::memcpy(sums.data(), &sum, sizeof sum);
      for (int64_t p = 0; p < kPlanes; ++p) {
        texture[4 * s + p] += sums[p];
      }
    }
  }
}

// The parts into which several segmentations together cut the image: what is counted of the pixels of a part
// adds up to that of the regions.
struct Parts {
  int64_t count = 0;
  Buffer<int32_t> labels;  // the part of each fragment

  explicit Parts(const Buffer<Segmentation>& segmentations) : labels(segmentations[0].labels.size()) {
    for (const Segmentation& segmentation : segmentations) {
      std::unordered_map<uint64_t, int32_t> numbers;  // by the part so far and the region
      for (size_t i = 0; i < labels.size(); ++i) {
        const uint64_t pair = uint64_t(labels[i]) << 32 | uint64_t(segmentation.labels[i]);
        labels[i] = numbers.emplace(pair, static_cast<int32_t>(numbers.size())).first->second;
      }
      count = std::ssize(numbers);
    }
  }
};

// Counts the pixels of each part.
inline Buffer<Counts> count(const Image& image, const Buffer<uint16_t>& smoothed, const Fragments& fragments,
                            const Parts& parts) {
  const int64_t width = image.width, stride = 4 * (width + 2);
  const Buffer<uint16_t> planes = interleave(smoothed, image.height, width);
  Buffer<Counts> counts(parts.count);
  Buffer<int32_t> label(width);
  Buffer<uint16_t> slopes(kSlopes * 4 * width);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint16_t* row = planes.data() + y * stride + 4;
    differentiate(y > 0 ? row - stride : row, row, y + 1 < image.height ? row + stride : row, width,
                  slopes.data());
    for (int64_t x = 0; x < width; ++x) {
      label[x] = parts.labels[fragments.labels[y * width + x]];
    }
    for (int64_t x = 0; x < width;) {
      const int64_t begin = x;
      while (x < width && label[x] == label[begin]) {
        ++x;
      }
      Counts& of = counts[label[begin]];
      of.box = hull(of.box, {int32_t(begin), int32_t(y), int32_t(x), int32_t(y + 1)});
      of.size += x - begin;
      add_slopes(slopes.data(), width, begin, x, of.texture);
      for (int64_t p = 0; p < kPlanes; ++p) {
        const uint8_t* plane = image.plane(p) + y * width;
        for (int64_t i = begin; i < x; ++i) {
          ++of.color[p * kColorBins + (plane[i] * kColorBins >> 8)];
        }
      }
    }
  }
  for (Counts& of : counts) {
    for (int64_t p = 0; p < kPlanes; ++p) {
      uint32_t steep = 0;
      for (int64_t s = 0; s < kSlopes; ++s) {
        steep += of.texture[4 * s + p];
      }
      of.texture[4 * p + 3] = 4 * kSteepest * static_cast<uint32_t>(of.size) - steep;
    }
  }
  return counts;
}

}  // namespace detector::selective_search
