// Which kernel an op would choose, for detector.layers.explain: a C function, which Python calls by ctypes.
#include <bit>
#include <cstring>

#include "depthwise_conv2d_plan.h"
#include "nms_plan.h"
#include "proposal_clusters_plan.h"
#include "quick_gelu_plan.h"
#include "roi_align_plan.h"
#include "roi_pool_plan.h"
#include "trilinear_interpolate_plan.h"
#include "upsample_bilinear2d_plan.h"

namespace detector {
namespace {

// A line for each candidate: whether it runs, whether it takes the problem, then its texts and, where it is
// known, its launch (threads, the grid, bytes of shared memory), with tabs between.
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

// What Python passes, each of the functions below says in which order; they take it from here.
struct Numbers {
  const int64_t* next;
  int64_t operator()() { return *next++; }
  double real() { return std::bit_cast<double>(*next++); }
};

// Pass, bytes of an element, whether channels-last; N, C, H, W, output channels; height and width of kernel,
// stride, padding and dilation.
std::string depthwise(const Gpu& gpu, Numbers number) {
  using namespace depthwise_conv2d;
  const auto pass = Pass(number());
  const int element_size = int(number());
  const bool channels_last = number() != 0;
  const int64_t* n = number.next;
  const Problem p = make_problem("depthwise_conv2d", {n[0], n[1], n[2], n[3]}, n[4], {n[5], n[6]},
                                 {n[7], n[8]}, {n[9], n[10]}, {n[11], n[12]});
  const Request request{pass, p, element_size, channels_last, true, gpu};
  return gpu.architecture != 0 ? described("depthwise_conv2d", kGpuTable, request)
                               : described("depthwise_conv2d", kCpuTable, request);
}

// 0 forward, 1 backward, 2 the order of the boxes; bytes of an element; N, C, H, W, boxes, height and width
// of the output.
std::string roi_op(const std::string& op, const Gpu& gpu, Numbers number) {
  const auto pass = number();
  const bool backward = pass == 1;
  const int element_size = int(number());
  const int64_t* n = number.next;
  roi::check_sizes(op.c_str(), n[2], n[3], n[5], n[6]);
  if (pass == 2) {
    return described(op.c_str(), roi::kOrderTable, n[4]);
  }
  const roi::Request request{{n[0], n[1], n[2], n[3], n[4], int(n[5]), int(n[6])}, element_size, true, gpu};
  if (op == "roi_align") {
    return backward ? described("roi_align", roi_align::kBackwardTable, request)
                    : described("roi_align", roi_align::kForwardTable, request);
  }
  return backward ? described("roi_pool", roi_pool::kBackwardTable, request)
                  : described("roi_pool", roi_pool::kForwardTable, request);
}

// Whether of the boxes that are kept, or of their order; boxes, whether they have groups.
std::string nms_op(Numbers number) {
  const bool keep = number() != 0;
  const nms::Request request{number.next[0], number.next[1] != 0};
  return keep ? described("nms", nms::kKeepTable, request) : described("nms", nms::kOrderTable, request);
}

// Whether backward, bytes of an element, whether channels-last; N, C, H, W, height and width of the output,
// the mode; and as doubles the factors.
std::string upsample(Numbers number) {
  using namespace upsample_bilinear2d;
  const bool backward = number() != 0;
  const int element_size = int(number());
  const bool channels_last = number() != 0;
  const int64_t images = number(), channels = number();
  Resizing sizes{};
  sizes.in_height = number(), sizes.in_width = number();
  sizes.out_height = number(), sizes.out_width = number();
  if (std::min({sizes.in_height, sizes.in_width, sizes.out_height, sizes.out_width}) < 1) {
    fail("upsample_bilinear2d: images of ", sizes.in_height, " x ", sizes.in_width, " and ", sizes.out_height,
         " x ", sizes.out_width, " pixels, expected at least 1 x 1");
  }
  sizes.mode = CoordinateMode(number());
  sizes.scale_height = number.real(), sizes.scale_width = number.real();
  const Request request{sizes, images, channels, channels_last, element_size, true};
  return backward ? described("upsample_bilinear2d", kBackwardTable, request)
                  : described("upsample_bilinear2d", kForwardTable, request);
}

// The method, rows of the largest image, images times streams.
std::string clusters(const Gpu& gpu, Numbers number) {
  using namespace proposal_clusters;
  const auto method = Method(number());
  const Request request{method, number.next[0], number.next[1], gpu, nullptr};
  return described("proposal_clusters", kTable, request);
}

// Bytes of an element, points, channels.
std::string trilinear(Numbers number) {
  const int element_size = int(number());
  const trilinear_interpolate::Request request{number.next[0], number.next[1], element_size};
  return described("trilinear_interpolate", trilinear_interpolate::kFeatsTable, request);
}

// Whether backward, bytes of an element, elements.
std::string gelu(Numbers number) {
  const bool backward = number() != 0;
  const int element_size = int(number());
  return described("quick_gelu", quick_gelu::kTable, {number(), element_size, true, backward});
}

std::string table_of(const std::string& op, Numbers number) {
  Gpu gpu{};
  gpu.architecture = int(number()), gpu.most_shared = number();
  gpu.shared_of_processor = number(), gpu.processors = int(number());
  return op == "depthwise_conv2d"                ? depthwise(gpu, number)
         : op == "roi_align" || op == "roi_pool" ? roi_op(op, gpu, number)
         : op == "proposal_clusters"             ? clusters(gpu, number)
         : op == "nms"                           ? nms_op(number)
         : op == "upsample_bilinear2d"           ? upsample(number)
         : op == "trilinear_interpolate"         ? trilinear(number)
         : op == "quick_gelu"                    ? gelu(number)
                                                 : throw std::runtime_error(op + " has no table");
}

}  // namespace
}  // namespace detector

// `numbers`: of the GPU its architecture (0: the CPU), the bytes of shared memory that a block may have and
// that a multiprocessor has, and the number of these; then those of the op. Writes at most `size` bytes and
// returns 0, or 1 with the text of an error.
extern "C" __attribute__((visibility("default"))) int detector_explain(const char* op, const int64_t* numbers,
                                                                       char* text, size_t size) {
  std::string found;
  int status = 0;
  try {
    found = detector::table_of(op, {numbers});
  } catch (const std::exception& error) {
    found = error.what();
    status = 1;
  }
  std::strncpy(text, found.c_str(), size - 1);
  text[size - 1] = '\0';
  return status;
}
