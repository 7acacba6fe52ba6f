// Which kernels compute roi_pool on a GPU.
#pragma once

#include "roi_plan.h"

namespace detector::roi_pool {

using roi::Request;

// ---- the forward pass by windows: maxima of windows of cells in shared memory ----

// How windows lie: a row of an odd number, so that bins below each other are in different banks, and of more
// than one, so that `reciprocal` has 32 bits; then a window without a cell and one that is 0, which an empty
// bin has.
struct Grid {
  int height, width;
  C10_HOST_DEVICE int stride() const { return width > 1 ? width | 1 : 3; }
  C10_HOST_DEVICE int nothing() const { return height * stride(); }
  C10_HOST_DEVICE int zero() const { return nothing() + 1; }
  C10_HOST_DEVICE int size() const { return nothing() + 2; }
};

// Bytes of a window of so many channels: values, and ties of which a word holds two.
constexpr int64_t window_bytes(int channels, int element_size) {
  return int64_t(channels) * (element_size + 2);
}

inline int64_t windows_shared(const Request& r, int channels) {
  const int64_t stride = Grid{int(r.sizes.height), int(r.sizes.width)}.stride();
  return (r.sizes.height * stride + 2) * window_bytes(channels, r.element_size);
}

constexpr int64_t kCellsOfBin = 16;  // with fewer, making the windows takes longer than they save

template <int kChannels>
bool has_windows(const Request& r) {
  const roi::Sizes& s = r.sizes;
  return r.element_size < 8 && s.cells() >= kCellsOfBin * s.bins() &&
         s.channels * s.bins() <= std::numeric_limits<int32_t>::max() &&
         windows_shared(r, kChannels) <= r.gpu.most_shared;
}

template <int kChannels>
constexpr int kMostThreads = kChannels > 2 ? 768 : 1024;  // for the registers

template <int kChannels>
roi::BlocksOfBoxes windows_blocks(const Request& r) {
  const int64_t shared = windows_shared(r, kChannels);
  const int parts = shared > roi::kLargeShared ? 1 : 2;  // of a processor
  return roi::blocks_of_boxes(r, kChannels, kMostThreads<kChannels> / parts, shared, parts, 0.3);
}

template <int kChannels>
Launch windows_launch(const Request& r) {
  return windows_blocks<kChannels>(r).launch;
}

enum class Forward { kWindows4, kWindows2, kWindows1, kStaged16, kDirect };

constexpr Candidate<Request> kForwardTable[] = {
    {"windows_4", has_windows<4>,
     "not float64, at least 16 cells of an image for every bin, windows of 4 channels fit in shared memory",
     "a bin is the maximum of four windows: 16 x 512 x 38 x 50, 16,000 boxes 1.31 ms, with 2 channels 1.57 "
     "(H200)",
     windows_launch<4>},
    {"windows_2", has_windows<2>, "the same, windows of 2 channels fit",
     "512 x 112 x 150, 4,000 boxes 0.58 ms, with 1 channel 0.80 (H200)", windows_launch<2>},
    {"windows_1", has_windows<1>, "the same, windows of 1 channel fit",
     "the same 0.80 ms, direct 5.19 (H200)", windows_launch<1>},
    roi::kStaged16,
    roi::kDirect,
};

static_assert(is_table_of(int(Forward::kDirect) + 1, kForwardTable));

inline Forward forward_kernel(const Request& request) {
  return Forward(plan("roi_pool", kForwardTable, request));
}

// ---- the backward pass: a block owns a channel of an image, or a band of its cells ----

// Exact sums in shared memory: words of 32 bits for each cell, two bits that tell of infinities, and a cell
// for each lane of a warp for what belongs to none.
constexpr int words_of_sum(int element_size) { return element_size == 8 ? 4 : 2; }
constexpr int64_t sums_bytes(int words, int64_t cells) {
  return (words * (cells + kWarp) + ceil_div(cells + kWarp, 16)) * int64_t(sizeof(uint32_t));
}
constexpr int64_t most_cells(int words, int64_t bytes) { return (bytes - 4) * 4 / (16 * words + 1) - kWarp; }

constexpr int64_t kOwnShared = 64;  // bytes that the kernel keeps for variables of its own

// The cells of an image cut into as few equal bands as there may be.
struct Bands {
  int number, size, chunks;
  Launch launch;
};

inline Bands bands_of(const Request& r) {
  const roi::Sizes& s = r.sizes;
  const int words = words_of_sum(r.element_size);
  const int64_t most = r.gpu.most_shared - kOwnShared;
  const int64_t number = ceil_div(s.cells(), most_cells(words, most)), size = ceil_div(s.cells(), number);
  const int64_t shared = sums_bytes(words, size);
  const int threads = 2 * shared > most ? 1024 : 512;
  const int64_t blocks = s.channels * number * s.images, slots = r.gpu.processors * (1024 / threads);
  const int chunks = roi::chunks_for(blocks, slots, 0.1);
  return {int(number), int(size), chunks, {blocks * chunks, 1, 1, threads, shared}};
}

inline Launch bands_launch(const Request& r) { return bands_of(r).launch; }

constexpr Candidate<Request> kBackwardTable[] = {
    {"exact_sums", always<Request>, "all; a channel whose sums do not fit in shared memory is done in bands",
     "sums of integers, of 64 bits (128 for float64), do not depend on their order: reproducible without "
     "sorting",
     bands_launch},
};

}  // namespace detector::roi_pool
