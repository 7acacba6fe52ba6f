// RoI align on a GPU, without float atomics or host synchronization.
#include <torch/csrc/stable/library.h>

#include "../../roi_align.h"
#include "../../roi_align_plan.h"
#include "../roi/gather.cuh"
#include "backward.cuh"

namespace detector::roi_align {
namespace {

// One bin: the mean of its samples, of V channels at once.
template <typename A>
struct Mean {
  Sampling<A> sampling;

  template <typename Reader, int V>
  __device__ void pool(const Reader& reader, const A* values, int ph, int pw, const roi::Sizes& sizes,
                       A (&sum)[V], int32_t (&)[V]) const {
    const AlignedBox<A> box = sampling.box(values, sizes);
    const int height = sizes.height, width = sizes.width;
    if (sampling.ratio == 2) {  // the usual number, unrolled
      const Sample<A> y[2] = {box.y.sample(ph, 0, height), box.y.sample(ph, 1, height)};
      const Sample<A> x[2] = {box.x.sample(pw, 0, width), box.x.sample(pw, 1, width)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add(reader, y[i / 2], x[i % 2], sum);
      }
    } else {
      const int end_y = box.y.end_sample(ph, height), end_x = box.x.end_sample(pw, width);
      for (int i = box.y.first_sample(ph, height); i < end_y; ++i) {
        const Sample<A> y = box.y.sample(ph, i, height);
        for (int j = box.x.first_sample(pw, width); j < end_x; ++j) {
          add(reader, y, box.x.sample(pw, j, width), sum);
        }
      }
    }
    const A count = box.count();
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] /= count;
    }
  }

 private:
  // One sum of four products for each sample, as torchvision rounds it.
  template <typename Reader, int V>
  __device__ static void add(const Reader& reader, const Sample<A>& y, const Sample<A>& x, A (&sum)[V]) {
    if (y.inside && x.inside) {
      A cells[4][V];
      reader.load(y.low, x.low, cells[0]);
      reader.load(y.low, x.high, cells[1]);
      reader.load(y.high, x.low, cells[2]);
      reader.load(y.high, x.high, cells[3]);
      const A weights[4] = {y.low_weight * x.low_weight, y.low_weight * x.high_weight,
                            y.high_weight * x.low_weight, y.high_weight * x.high_weight};
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[v] += weights[0] * cells[0][v] + weights[1] * cells[1][v] + weights[2] * cells[2][v] +
                  weights[3] * cells[3][v];
      }
    }
  }
};

struct Cuda {
  template <typename T, typename A>
  static void forward(const Tensor& input, const Tensor& boxes, const Sizes& sizes,
                      const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    const roi::Output<T> to{output.mutable_data_ptr<T>(), nullptr, channels_last};
    const Request request{sizes, sizeof(T), false, current_gpu()};
    const roi::Gather kernel = forward_kernel(request);
    constexpr int V = 16 / sizeof(T);
    constexpr int kFewest = sizeof(T) == 2 ? V / 4 : V / 2;  // only half precision has staged_4
    const roi::OrderedBoxes<A> ordered("roi_align", boxes, sizes);
    const auto gather = kernel == roi::Gather::kStaged16  ? roi::launch_gather<T, V, true, Mean<A>>
                        : kernel == roi::Gather::kStaged8 ? roi::launch_gather<T, V / 2, true, Mean<A>>
                        : kernel == roi::Gather::kStaged4 ? roi::launch_gather<T, kFewest, true, Mean<A>>
                                                          : roi::launch_gather<T, V, false, Mean<A>>;
    gather(request, input, ordered.view(), {sampling}, to);
  }

  template <typename T, typename A>
  static void backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                       const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    launch_backward<T>(grad, boxes, sizes, sampling, channels_last, output);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CUDA, m) {
  m.impl("roi_align_forward", TORCH_BOX(&forward<Cuda>));
  m.impl("roi_align_backward", TORCH_BOX(&backward<Cuda>));
}

}  // namespace detector::roi_align
