// Which kernels compute roi_pool and roi_align on a GPU, and with how many blocks. The tables are all that
// chooses at run time, all that detector.layers.explain says, and all that the tables in the READMEs hold.
#pragma once

#include "plan.h"
#include "roi.h"

namespace detector::roi {

struct Request {
  Sizes sizes;
  int element_size;  // in bytes; 8 is double
  bool aligned;      // packs of values can be read; the backward pass of roi_align asks
  Gpu gpu;
};

// Into how many parts the boxes of an image go so that the blocks fill the last wave too; a part costs a
// fixed share for filling shared memory.
inline int chunks_for(int64_t blocks, int64_t slots, double share) {
  int best = 1;
  double least = 1e30;
  for (int chunks = 1; chunks <= 16; ++chunks) {
    const double time = double(ceil_div(blocks * chunks, slots)) * (1.0 / chunks + share);
    if (time < least) {
      least = time;
      best = chunks;
    }
  }
  return best;
}

// Blocks of `groups` of channels for each image and the boxes of none, each for one of `chunks` of the boxes.
struct BlocksOfBoxes {
  int groups, chunks;
  Launch launch;
};

inline BlocksOfBoxes blocks_of_boxes(const Request& r, int channels, int threads, int64_t shared,
                                     int64_t blocks_of_processor, double share) {
  const int64_t groups = ceil_div(r.sizes.channels, channels);
  const int chunks = chunks_for(groups * r.sizes.images, blocks_of_processor * r.gpu.processors, share);
  return {int(groups), chunks, {(r.sizes.images + 1) * groups * chunks, 1, 1, threads, shared}};
}

constexpr int64_t kLargeShared = 100 * 1024;  // bytes: two blocks with so much share no multiprocessor

// ---- the order of the boxes, by image ----

constexpr int64_t kFewBoxes = 8192;

inline bool is_few(const int64_t& boxes) { return boxes <= kFewBoxes; }

enum class Order { kCount, kSort };

constexpr Candidate<int64_t> kOrderTable[] = {
    {"count", is_few, "up to 8,192 boxes", "one launch, in which a block for each image reads all boxes"},
    {"sort", always<int64_t>, "all", "cub's radix sort: boxes are read once, however many images there are"},
};

static_assert(is_table_of(int(Order::kSort) + 1, kOrderTable));

// ---- the forward pass by gather_kernel: a block keeps so many bytes of channels of each cell of an image
// ----

template <int kBytes>
bool has_staged(const Request& r) {
  return r.element_size <= kBytes && r.sizes.cells() * kBytes <= r.gpu.most_shared;
}

inline BlocksOfBoxes gather_blocks(const Request& r, int bytes, bool staged) {
  const int64_t shared = staged ? r.sizes.cells() * bytes : 0;
  const int threads = shared > kLargeShared ? 1024 : 512;
  int64_t blocks_of_processor = 1024 / threads;
  if (staged) {
    blocks_of_processor = std::min(blocks_of_processor, r.gpu.shared_of_processor / (shared + 1024));
  }
  return blocks_of_boxes(r, bytes / r.element_size, threads, shared,
                         std::max<int64_t>(blocks_of_processor, 1), 0.04);
}

template <int kBytes, bool kStaged>
Launch gather_launch(const Request& r) {
  return gather_blocks(r, kBytes, kStaged).launch;
}

enum class Gather { kStaged16, kStaged8, kStaged4, kDirect };  // of roi_align

constexpr Candidate<Request> kStaged16{
    "staged_16", has_staged<16>, "16 bytes of channels for each cell of an image fit in shared memory",
    "reads each cell once: roi_align of 512 x 75 x 100, 2,000 boxes 0.28 ms, with 8 bytes 0.42; roi_pool of "
    "25 x 20 cells 0.26, direct 0.41 (H200)",
    gather_launch<16, true>};
constexpr Candidate<Request> kStaged8{
    "staged_8", has_staged<8>, "8 bytes of channels for each cell of an image fit in shared memory",
    "larger images: 512 x 112 x 150, 4,000 boxes 0.80 ms, direct 1.34 (H200)", gather_launch<8, true>};
constexpr Candidate<Request> kDirect{"direct", always<Request>, "all", "images that fit no shared memory",
                                     gather_launch<16, false>};

}  // namespace detector::roi
