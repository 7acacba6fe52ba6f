// How many blocks of a GPU work together, as a team, on the centers of an image and stream.
#pragma once

#include <functional>

#include "plan.h"
#include "proposal_clusters.h"

namespace detector::proposal_clusters {

C10_HOST_DEVICE inline int64_t num_words(int64_t rows) { return (rows + 31) / 32; }  // a bit a row

// Bytes of arrays that take `bytes_a_row`, for all rows of `images` images, each image's aligned and with
// room for what is longer by one.
C10_HOST_DEVICE inline int64_t array_bytes(int64_t bytes_a_row, int64_t rows, int64_t images) {
  constexpr int64_t alignment = 64;
  return (rows * bytes_a_row + images * 2 * alignment) / alignment * alignment;
}

// Of the sets in shared memory: three, and one for what each block of a team has found.
C10_HOST_DEVICE inline int64_t sets_bytes(int64_t rows, int64_t team_size) {
  return array_bytes((3 + team_size) * 4, num_words(rows), 1);
}

struct Request {
  Method method;
  int64_t largest;  // rows of the largest image
  int64_t teams;    // one for each image and stream
  Gpu gpu;
  // Whether all teams of so many blocks run at the same time, which a GPU can tell; without one it is taken
  // for granted where there are as many multiprocessors as blocks.
  std::function<bool(int64_t)> all_run;
};

template <int kBlocks>
bool has_team(const Request& r) {
  return r.gpu.architecture >= 90 && r.method != Method::oicr && r.teams * kBlocks <= r.gpu.processors &&
         sets_bytes(r.largest, kBlocks) <= r.gpu.most_shared && (!r.all_run || r.all_run(kBlocks));
}

constexpr int kMostBlocks = 8;  // of a team: as many as every GPU that has clusters can have

constexpr Candidate<Request> kTable[] = {
    {"team_8", has_team<8>,
     "PCL and MIST, all teams on the GPU at the same time, compute capability 9.0 (thread block clusters)",
     "three streams of 2,000 proposals at the first step 0.34 ms, by four blocks 0.39, by one 0.67 (H200)"},
    {"team_4", has_team<4>, "the same", "8 images of them 0.50 ms, by one block 0.80 (H200)"},
    {"one_block", always<Request>, "all", "OICR, which has little to share, large batches and older GPUs"},
};

// The blocks of a team.
inline int64_t team_size(const Request& request) {
  constexpr int64_t sizes[] = {8, 4, 1};
  static_assert(is_table_of(std::size(sizes), kTable) && sizes[0] == kMostBlocks);
  return sizes[plan("proposal_clusters", kTable, request)];
}

}  // namespace detector::proposal_clusters
