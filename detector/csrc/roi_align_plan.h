// Which kernels compute roi_align on a GPU.
#pragma once

#include "roi_plan.h"

namespace detector::roi_align {

using roi::Request;

inline bool has_staged_halves(const Request& r) { return r.element_size == 2 && roi::has_staged<4>(r); }

constexpr Candidate<Request> kStaged4{
    "staged_4", has_staged_halves, "half precision, 4 bytes of channels for each cell of an image fit",
    "the largest: bfloat16 512 x 112 x 150, 4,000 boxes 0.92 ms, direct 1.62; float32 1.41 and 1.34 (H200)",
    roi::gather_launch<4, true>};

constexpr Candidate<Request> kForwardTable[] = {roi::kStaged16, roi::kStaged8, kStaged4, roi::kDirect};

static_assert(is_table_of(int(roi::Gather::kDirect) + 1, kForwardTable));

inline roi::Gather forward_kernel(const Request& request) {
  return roi::Gather(plan("roi_align", kForwardTable, request));
}

// ---- the backward pass: a block owns a tile of cells, a warp a row of it, a lane some channels ----

constexpr int kSide = 8;       // cells of a tile, on both axes
constexpr int kWarps = kSide;  // of a block, one for each row of a tile
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlocks = 3;  // on a processor

// Channels of a lane: 16 bytes of sums.
constexpr int vector_of(int element_size) { return 16 / std::max(element_size, 4); }

inline bool has_vectors(const Request& r) {
  return r.aligned && r.sizes.channels % vector_of(r.element_size) == 0;
}

struct TileBlocks {
  int groups, chunks;
  Launch launch;
};

inline TileBlocks tile_blocks(const Request& r, int vector) {
  const roi::Sizes& s = r.sizes;
  const int64_t groups = ceil_div(s.channels, kWarp * vector);
  const int64_t blocks = s.images * ceil_div(s.height, kSide) * ceil_div(s.width, kSide) * groups;
  // Most boxes meet in the middle of an image: several waves even that out.
  const int64_t slots = int64_t(r.gpu.processors) * kBlocks;
  const int64_t chunks = std::clamp<int64_t>(ceil_div(3 * slots, std::max<int64_t>(blocks, 1)), 1, 8);
  return {int(groups), int(chunks), {blocks * chunks, 1, 1, kThreads, 0}};
}

inline Launch vectors_launch(const Request& r) { return tile_blocks(r, vector_of(r.element_size)).launch; }
inline Launch single_launch(const Request& r) { return tile_blocks(r, 1).launch; }

enum class Backward { kVectors, kSingle };

constexpr Candidate<Request> kBackwardTable[] = {
    {"vectors", has_vectors, "channels are a multiple of 4 (float64: 2)",
     "weights are shared by more sums: 512 x 75 x 100, 2,000 boxes 0.54 ms, single 0.94 (H200)",
     vectors_launch},
    {"single", always<Request>, "all", "any number of channels", single_launch},
};

static_assert(is_table_of(int(Backward::kSingle) + 1, kBackwardTable));

inline Backward backward_kernel(const Request& request) {
  return Backward(plan("roi_align", kBackwardTable, request));
}

}  // namespace detector::roi_align
