// Which kernel an op would choose, for detector.layers.explain: C functions, which Python calls by ctypes.
#include <cstring>

#include "depthwise_conv2d_plan.h"

namespace detector {
namespace {

// A line for each candidate: whether it runs, whether it takes the problem, then its texts, with tabs
// between.
template <typename Request, size_t N>
std::string described(const char* op, const Candidate<Request> (&table)[N], const Request& request) {
  const int running = chosen(op, table, request);
  std::string text;
  for (int i = 0; i < int(N); ++i) {
    const auto& [name, fits, takes, why, launch] = table[i];
    text += joined(i == running ? 1 : 0, "\t", fits(request) ? 1 : 0, "\t", name, "\t", takes, "\t", why);
    if (launch != nullptr && fits(request)) {
      const auto [x, y, z, threads, shared] = launch(request);
      text += joined("\t", threads, "\t", x, "\t", y, "\t", z, "\t", shared);
    }
    text += "\n";
  }
  return text;
}

// The launch of the kernels for tensor cores, if they take the problem: threads, the grid, bytes of shared
// memory.
std::string described_launch(const depthwise_conv2d::Request& request, int64_t most_shared) {
  using namespace depthwise_conv2d;
  if (!has_tensor_cores(request)) {
    return "";
  }
  const TileLaunch launch = tile_launch(request.pass, request.problem, most_shared);
  return joined("launch\ttensor_cores\t", launch.sizes.warps * 32, "\t", launch.channels, "\t", launch.tiles,
                "\t", launch.groups, "\t", launch.shared, "\n");
}

}  // namespace
}  // namespace detector

// `numbers`: whether on a GPU, its architecture and the bytes of shared memory that a block may have there;
// pass, bytes of an element, whether channels-last; N, C, H, W, output channels; height and width of kernel,
// stride, padding and dilation. Writes at most `size` bytes and returns 0, or 1 with the text of an error.
extern "C" __attribute__((visibility("default"))) int detector_explain_depthwise_conv2d(
    const int64_t* numbers, char* text, size_t size) {
  using namespace detector::depthwise_conv2d;
  std::string found;
  int status = 0;
  try {
    const int64_t* n = numbers + 6;
    const Problem p = make_problem("depthwise_conv2d", {n[0], n[1], n[2], n[3]}, n[4], {n[5], n[6]},
                                   {n[7], n[8]}, {n[9], n[10]}, {n[11], n[12]});
    const Request request{Pass(numbers[3]), p, int(numbers[4]), numbers[5] != 0, true, int(numbers[1])};
    found = numbers[0] != 0 ? detector::described("depthwise_conv2d", kGpuTable, request) +
                                  detector::described_launch(request, numbers[2])
                            : detector::described("depthwise_conv2d", kCpuTable, request);
  } catch (const std::exception& error) {
    found = error.what();
    status = 1;
  }
  std::strncpy(text, found.c_str(), size - 1);
  text[size - 1] = '\0';
  return status;
}
