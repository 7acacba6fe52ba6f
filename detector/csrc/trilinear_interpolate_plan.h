// Which kernel computes the gradient of the features of trilinear interpolation on a GPU.
#pragma once

#include "plan.h"
#include "trilinear_interpolate.h"

namespace detector::trilinear_interpolate {

struct Request {
  int64_t points, channels;
  int element_size;  // in bytes
};

constexpr int kThreads = 256;
constexpr int64_t kFewBytes = 64;  // of channels, up to which they are few

inline bool has_few(const Request& r) { return r.channels * r.element_size <= kFewBytes; }

// Threads x have the corners of a point, 16 bytes each, threads y several points.
inline Launch few_launch(const Request& r) {
  const int64_t corners = kCorners * r.channels * r.element_size / 16;
  const int64_t points = kThreads / corners;
  return {ceil_div(r.points, points), 1, 1, int(corners * points), 0};
}

enum class FeatsKernel { kFew, kRows };

constexpr Candidate<Request> kFeatsTable[] = {
    {"few", has_few, "at most 64 bytes of channels",
     "threads write whole lines of memory: 4,194,304 x 4 0.18 ms, by rows 0.67 (H200)", few_launch},
    {"rows", always<Request>, "all", "a thread writes a pack of channels of all corners"},
};

static_assert(is_table_of(int(FeatsKernel::kRows) + 1, kFeatsTable));

}  // namespace detector::trilinear_interpolate
