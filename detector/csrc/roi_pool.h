// The bins of roi_pool (Girshick, Fast R-CNN, arXiv 1504.08083), value for value as in torchvision: corners
// rounded to cells, both included, at least one cell; bins that share border cells where they do not divide.
#pragma once

#include "roi.h"

namespace detector::roi_pool {

// What a maximum starts from: a NaN is never above it, and neither is minus infinity.
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Span {
  int begin, end;
  C10_HOST_DEVICE bool empty() const { return end <= begin; }
};

template <typename A>
struct PooledBox {
  int start_y, start_x;
  A bin_height, bin_width;

  C10_HOST_DEVICE PooledBox(const A* box, A scale, int pooled_height, int pooled_width)
      : start_y(cell(box[2] * scale)), start_x(cell(box[1] * scale)) {
    const int height = cell(box[4] * scale) - start_y + 1, width = cell(box[3] * scale) - start_x + 1;
    bin_height = A(height < 1 ? 1 : height) / A(pooled_height);
    bin_width = A(width < 1 ? 1 : width) / A(pooled_width);
  }

  C10_HOST_DEVICE Span rows(int bin, int height) const { return span(bin, bin_height, start_y, height); }
  C10_HOST_DEVICE Span columns(int bin, int width) const { return span(bin, bin_width, start_x, width); }

 private:
  // Bounded so that differences fit an int. A NaN, which only a GPU lets through, becomes the lower bound:
  // the cast of a NaN to an int is undefined.
  C10_HOST_DEVICE static int cell(A coordinate) {
    const A bound = 1e9;
    const A rounded = std::round(coordinate);
    return int(rounded >= -bound ? (rounded <= bound ? rounded : bound) : -bound);
  }

  C10_HOST_DEVICE static Span span(int bin, A size, int start, int limit) {
    const auto clip = [limit](int at) { return at < 0 ? 0 : at > limit ? limit : at; };
    return {clip(int(std::floor(A(bin) * size)) + start), clip(int(std::ceil(A(bin + 1) * size)) + start)};
  }
};

}  // namespace detector::roi_pool
