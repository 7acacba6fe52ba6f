// How an op chooses among its kernels: a table of candidates, the fastest first, of which the first that
// takes a problem runs. A choice is a function of the problem and of what is known of the device, so that it
// can be asked for without a GPU (detector.layers.explain) and tested for all of them.
//
// The environment variables DETECTOR_KERNEL and DETECTOR_WITHOUT hold names as depthwise_conv2d.strips, with
// commas between them: kernels that run wherever they can, and kernels that do not run.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tensor.h"

namespace detector {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int kWarp = 32;  // threads

// The GPU that a kernel would run on.
struct Gpu {
  int architecture;             // of the code for it: 90 for compute capability 9.0
  int64_t most_shared;          // bytes of shared memory that a block may have
  int64_t shared_of_processor;  // that the blocks on a multiprocessor have together
  int processors;
};

// Blocks in x, y and z, threads of a block and bytes of dynamic shared memory of a block.
struct Launch {
  int64_t x, y, z;
  int threads;
  int64_t shared;
};

template <typename Request>
struct Candidate {
  const char* name;
  bool (*fits)(const Request&);
  const char* takes;                           // which problems
  const char* why;                             // it is there
  Launch (*launch)(const Request&) = nullptr;  // null where the problem alone does not tell
};

template <typename Request>
bool always(const Request&) {
  return true;
}

// Whether a table has `number` candidates, one for each enumerator, and no two of the same name.
template <typename Request, size_t N>
constexpr bool is_table_of(int number, const Candidate<Request> (&table)[N]) {
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (std::string_view(table[i].name) == table[j].name) {
        return false;
      }
    }
  }
  return number == int(N);
}

// Whether an environment variable lists op.name.
inline bool lists(const char* variable, std::string_view op, std::string_view name) {
  const char* setting = std::getenv(variable);
  std::string_view rest = setting != nullptr ? setting : "";
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    if (entry.size() == op.size() + 1 + name.size() && entry.substr(0, op.size()) == op &&
        entry[op.size()] == '.' && entry.substr(op.size() + 1) == name) {
      return true;
    }
  }
  return false;
}

// The index of the candidate that runs.
template <typename Request, size_t N>
int chosen(const char* op, const Candidate<Request> (&table)[N], const Request& request) {
  const bool usual = std::getenv("DETECTOR_KERNEL") == nullptr && std::getenv("DETECTOR_WITHOUT") == nullptr;
  int first = -1;
  for (int i = 0; i < int(N); ++i) {
    if (!table[i].fits(request) || (!usual && lists("DETECTOR_WITHOUT", op, table[i].name))) {
      continue;
    }
    if (usual || lists("DETECTOR_KERNEL", op, table[i].name)) {
      return i;
    }
    first = first < 0 ? i : first;
  }
  if (first < 0) {
    fail(op, ": DETECTOR_WITHOUT is ", std::getenv("DETECTOR_WITHOUT"),
         ", expected it to leave a kernel that takes this problem; detector.layers.explain lists them");
  }
  return first;
}

// The same, and with DETECTOR_EXPLAIN=1 it is printed.
template <typename Request, size_t N>
int plan(const char* op, const Candidate<Request> (&table)[N], const Request& request) {
  static const char* const setting = std::getenv("DETECTOR_EXPLAIN");
  const int i = chosen(op, table, request);
  if (setting != nullptr && std::string_view(setting) == "1") {
    std::fprintf(stderr, "detector: %s takes %s, which is for: %s\n", op, table[i].name, table[i].takes);
  }
  return i;
}

}  // namespace detector
