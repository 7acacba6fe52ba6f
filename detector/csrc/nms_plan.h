// Which kernels compute nms, batched_nms and nms_mask on a GPU: one that orders the boxes, then one that
// tells which are kept.
#pragma once

#include "plan.h"

namespace detector::nms {

struct Request {
  int64_t size;  // boxes
  bool grouped;
};

constexpr int kFew = 4096;  // boxes, of which all pairs may be looked at
constexpr int kOrderThreads = 256;
constexpr int kRowsABlock = 8;   // of nms_rank_kernel
constexpr int kTileBoxes = 128;  // whose pairs with as many others a block of nms_scan_kernel finds
constexpr int kTileWords = kTileBoxes / kWarp;
constexpr int kScanThreads = kTileBoxes * kTileWords;
constexpr int kChunk = 256;  // boxes
constexpr int kParts = 4;    // threads of a box, each with a part of what it is tested against
constexpr int kChunkThreads = kChunk * kParts;
static_assert(kRowsABlock <= kOrderThreads && kFew % kTileBoxes == 0 && kChunk % kWarp == 0);
static_assert(kScanThreads <= 1024 && kChunkThreads <= 1024, "a block has no more threads");

inline bool is_few(const Request& r) { return r.size <= kFew; }
inline bool is_few_of_one_group(const Request& r) { return is_few(r) && !r.grouped; }

inline Launch rank_launch(const Request& r) {
  return {ceil_div(r.size, kRowsABlock), 1, 1, kOrderThreads, 0};
}
inline Launch sort_launch(const Request& r) {
  return {ceil_div(r.size, kOrderThreads), 1, 1, kOrderThreads, 0};
}
inline Launch scan_launch(const Request& r) {
  const int64_t tiles = ceil_div(r.size, kTileBoxes);
  return {tiles, tiles, 1, kScanThreads, 0};
}
inline Launch chunks_launch(const Request& r) { return {ceil_div(r.size, kChunk), 1, 1, kChunkThreads, 0}; }

enum class OrderKernel { kRank, kSort };

constexpr Candidate<Request> kOrderTable[] = {
    {"rank", is_few, "up to 4,096 boxes",
     "in one launch: nms_mask of 2,000 boxes 27 us, by sort 34; in 20 groups 23 and 43 (H200)", rank_launch},
    {"sort", always<Request>, "all",
     "cub's radix sort: a merge sort of our own took 0.15 instead of 0.31 ms for 40,000 boxes in 20 groups "
     "(H100)",
     sort_launch},
};

static_assert(is_table_of(int(OrderKernel::kSort) + 1, kOrderTable));

enum class KeepKernel { kScan, kChunks };

constexpr Candidate<Request> kKeepTable[] = {
    {"scan", is_few_of_one_group, "up to 4,096 boxes without groups",
     "all pairs at once, a bit each: 2,000 boxes 27 us, by chunks 56 (H200)", scan_launch},
    {"chunks", always<Request>, "all", "memory linear in the boxes; groups run side by side", chunks_launch},
};

static_assert(is_table_of(int(KeepKernel::kChunks) + 1, kKeepTable));

}  // namespace detector::nms
