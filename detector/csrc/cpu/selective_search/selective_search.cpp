// Selective search on the CPU (Uijlings et al., IJCV 2013). Its steps are in color.h, segmentation.h,
// counts.h and grouping.h, in this order; here are the arguments, the strategies and the order of the boxes.
#include <torch/csrc/stable/library.h>

#include <atomic>
#include <unordered_set>

#include "../../memory.h"
#include "../no_contraction.h"  // similarities must not depend on the machine
#include "../parallel.h"
#include "color.h"
#include "counts.h"
#include "grouping.h"
#include "segmentation.h"

namespace detector::selective_search {
namespace {

constexpr int64_t kMaxPixels = 1 << 24;  // with 100 bytes each: 1.6 GB
constexpr int64_t kMaxSide = 32767;      // four coordinates are one number of 64 bits

struct Strategy {
  ColorSpace color_space;
  int64_t k, measures;
};

struct Ranked {
  uint64_t rank;
  PixelBox box;
};

// Sebastiano Vigna's splitmix64: a number of 64 random bits for each (seed, strategy, region).
uint64_t random_bits(uint64_t seed, uint64_t strategy, uint64_t region) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + (strategy << 32) + region + 1;
  z *= 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Image copy_image(const Tensor& tensor) {
  Image image(tensor.size(1), tensor.size(2));
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  const int64_t plane = tensor.stride(0), row = tensor.stride(1), column = tensor.stride(2);
  uint8_t* to = image.values.data();
  for (int64_t p = 0; p < kPlanes; ++p) {
    for (int64_t y = 0; y < image.height; ++y) {
      for (int64_t x = 0; x < image.width; ++x) {
        *to++ = data[p * plane + y * row + x * column];
      }
    }
  }
  return image;
}

// The boxes of all regions of all strategies. `strategies` are sorted, so that what they share is done once.
std::vector<Ranked> search(const Image& rgb, const std::vector<Strategy>& strategies, int64_t min_size,
                           int64_t seed) {
  std::vector<Ranked> found;
  for (size_t i = 0; i < strategies.size();) {
    const ColorSpace space = strategies[i].color_space;
    const Image image = convert(rgb, space);
    const Buffer<uint16_t> smoothed = smooth(image);
    size_t end = i;
    while (end < strategies.size() && strategies[end].color_space == space) {
      ++end;
    }
    const Fragments fragments(PixelGraph(smoothed, image.height, image.width), strategies[i].k,
                              strategies[end - 1].k);
    Buffer<Segmentation> segmentations;
    for (size_t j = i; j < end; ++j) {
      if (j == i || strategies[j].k != strategies[j - 1].k) {
        segmentations.push_back(segment(fragments, strategies[j].k, min_size));
      }
    }
    const Parts parts(segmentations);
    const Buffer<Counts> counts = count(image, smoothed, fragments, parts);
    for (const Segmentation& segmentation : segmentations) {
      const Regions initial(segmentation, parts, counts, image.pixels());
      for (const int64_t k = strategies[i].k; i < end && strategies[i].k == k; ++i) {
        Regions regions = initial;
        const int64_t total = regions.group(segmentation.neighbors, strategies[i].measures);
        for (int64_t r = 0; r < total; ++r) {
          const uint64_t position = total - r;  // 1: the whole image
          found.push_back({position * (random_bits(seed, i, r) >> 32), regions.box(r)});
        }
      }
    }
  }
  return found;
}

// The boxes, best first, no two the same.
std::vector<PixelBox> in_order(std::vector<Ranked> found, size_t max_boxes) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
  std::vector<PixelBox> boxes;
  std::unordered_set<uint64_t> seen;
  for (const auto& [_, box] : found) {
    const uint64_t key = uint64_t(box.x1) << 48 | uint64_t(box.y1) << 32 | uint64_t(box.x2) << 16 | box.y2;
    if (seen.insert(key).second) {
      boxes.push_back(box);
      if (boxes.size() == max_boxes) {
        break;
      }
    }
  }
  return boxes;
}

// (R, 4) float32.
Tensor as_tensor(const std::vector<PixelBox>& boxes, const Tensor& like) {
  const Tensor tensor = allocate(like, {std::ssize(boxes), 4}, ScalarType::Float);
  auto* to = static_cast<float*>(tensor.mutable_data_ptr());
  for (const PixelBox& box : boxes) {
    for (const int32_t value : {box.x1, box.y1, box.x2, box.y2}) {
      *to++ = static_cast<float>(value);
    }
  }
  return tensor;
}

void check_image(size_t index, const Tensor& image) {
  const std::string name = joined("images[", index, "]");
  check_dtype("selective_search", name.c_str(), image, ScalarType::Byte);
  if (image.dim() != 3 || image.size(0) != kPlanes || image.size(1) < 1 || image.size(2) < 1) {
    fail("selective_search: ", name, " has shape ", shape_text(image),
         ", expected (3, H, W) of at least one pixel");
  }
  if (image.size(1) * image.size(2) > kMaxPixels || std::max(image.size(1), image.size(2)) > kMaxSide) {
    fail("selective_search: ", name, " has shape ", shape_text(image), ", expected at most ", kMaxPixels,
         " pixels, ", kMaxSide, " a side: search a smaller copy and scale the boxes");
  }
}

std::vector<Strategy> read_strategies(const std::vector<int64_t>& numbers) {
  if (numbers.empty() || numbers.size() % 3 != 0) {
    fail("selective_search: strategies has ", numbers.size(), " numbers, expected three of each strategy");
  }
  std::vector<Strategy> strategies;
  for (size_t i = 0; i < numbers.size(); i += 3) {
    const int64_t space = numbers[i], k = numbers[i + 1], measures = numbers[i + 2];
    if (space < 0 || space >= kColorSpaces || k < 0 || k > 100000 || measures < 1 ||
        measures > kAllMeasures) {
      fail("selective_search: strategies[", i / 3, "] is (", space, ", ", k, ", ", measures,
           "), expected a color space of 0..3, k of 0..100000 and measures of 1..15");
    }
    strategies.push_back({ColorSpace{space}, k, measures});
  }
  std::stable_sort(strategies.begin(), strategies.end(), [](const Strategy& a, const Strategy& b) {
    return std::pair(a.color_space, a.k) < std::pair(b.color_space, b.k);
  });
  return strategies;
}

std::vector<Tensor> selective_search(const std::vector<Tensor>& images,
                                     const std::vector<int64_t>& strategies, int64_t min_size,
                                     int64_t max_boxes, int64_t seed) {
  const std::vector<Strategy> sorted = read_strategies(strategies);
  if (min_size < 0 || max_boxes < 0) {
    fail("selective_search: min_size is ", min_size, " and max_boxes ", max_boxes, ", expected at least 0");
  }
  for (size_t i = 0; i < images.size(); ++i) {
    check_image(i, images[i]);
  }
  std::vector<std::vector<PixelBox>> boxes(images.size());
  std::atomic<size_t> next{0};  // a thread takes the next image when it is done with one: their times differ
  parallel_for(std::ssize(images), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < images.size(); i = next++) {
      boxes[i] = in_order(search(copy_image(images[i]), sorted, min_size, seed), max_boxes);
    }
  });
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < images.size(); ++i) {
    tensors.push_back(as_tensor(boxes[i], images[i]));
  }
  return tensors;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) { m.impl("selective_search", TORCH_BOX(&selective_search)); }

}  // namespace detector::selective_search
