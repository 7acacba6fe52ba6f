// Which kernels compute roi_align on a GPU.
#pragma once

#include "roi_plan.h"

namespace detector::roi_align {

using roi::Request;

// Bytes of channels that a block keeps of each cell: 16, or what fits of 8 and in half precision 4; else 0.
// On an H200 512 x 75 x 100 with 2,000 boxes takes 0.28 ms with 16 bytes and 0.42 with 8, and bfloat16 of 512
// x 112 x 150 with 4,000 boxes 0.56 with 8 and 0.92 with 4. With 4 float32 is no faster than `direct`.
inline int staged_bytes(const Request& r) {
  for (int bytes = 16; bytes >= (r.element_size == 2 ? 4 : 8); bytes /= 2) {
    if (roi::has_staged(r, bytes)) {
      return bytes;
    }
  }
  return 0;
}

inline bool has_staged(const Request& r) { return staged_bytes(r) > 0; }
inline Launch staged_launch(const Request& r) { return roi::gather_blocks(r, staged_bytes(r), true).launch; }

enum class Forward { kStaged, kDirect };

constexpr Candidate<Request> kForwardTable[] = {
    {"staged", has_staged,
     "16 or 8 bytes of channels for each cell of an image fit in shared memory; in half precision also 4",
     "reads each cell once: 512 x 75 x 100, 2,000 boxes 0.28 ms, direct 0.56; 512 x 112 x 150, 4,000 boxes "
     "0.80 and 1.34 (H200)",
     staged_launch},
    roi::kDirect,
};

static_assert(is_table_of(int(Forward::kDirect) + 1, kForwardTable));

inline Forward forward_kernel(const Request& request) {
  return Forward(plan("roi_align", kForwardTable, request));
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
