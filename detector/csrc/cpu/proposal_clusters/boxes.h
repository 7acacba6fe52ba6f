// Boxes column after column, so that one is compared with many at once.
#pragma once

#include <vector>

#include "../../proposal_clusters.h"
#include "../multiversion.h"

namespace detector::proposal_clusters {

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

}  // namespace detector::proposal_clusters
