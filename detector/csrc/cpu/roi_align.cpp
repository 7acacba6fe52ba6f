// RoI align on the CPU. The samples of a bin weigh cells by (weights of rows) x (weights of columns), so each
// axis is summed up first; then the channels of a cell go side by side. Forward: a thread takes boxes.
// Backward: a thread takes channels and walks all boxes in order, so the bits never depend on the number of
// threads.
#include "../roi_align.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "multiversion.h"
#include "roi_layout.h"

namespace detector::roi_align {
namespace {

using roi::Sizes;

template <typename A>
struct Weight {
  int64_t at;
  A weight;
};

// The weights of an axis: those of bin i are from starts[i] to starts[i + 1].
template <typename A>
struct AxisWeights {
  std::vector<Weight<A>> weights;
  std::vector<int64_t> starts;

  void fill(const Axis<A>& axis, int bins, int size) {
    weights.clear();
    starts.assign(1, 0);
    for (int bin = 0; bin < bins; ++bin) {
      for (int i = axis.first_sample(bin, size), end = axis.end_sample(bin, size); i < end; ++i) {
        const Sample<A> sample = axis.sample(bin, i, size);
        if (sample.inside) {
          add(sample.low, sample.low_weight);
          add(sample.high, sample.high_weight);
        }
      }
      starts.push_back(weights.size());
    }
  }

 private:
  // Neighboring samples share cells, which are among the last two.
  void add(int64_t at, A weight) {
    const int64_t end = weights.size();
    for (int64_t i = end - 1; i >= std::max(starts.back(), end - 2); --i) {
      if (weights[i].at == at) {
        weights[i].weight += weight;
        return;
      }
    }
    weights.push_back({at, weight});
  }
};

template <typename A>
struct BoxWeights {
  AxisWeights<A> y, x;
  A count;

  void fill(const AlignedBox<A>& box, const Sizes& sizes) {
    y.fill(box.y, sizes.pooled_height, sizes.height);
    x.fill(box.x, sizes.pooled_width, sizes.width);
    count = box.count();
  }
};

template <typename A>
DETECTOR_MULTIVERSION void gather_box(const A* cells, int64_t row_stride, int64_t column_stride,
                                      const BoxWeights<A>& box, roi::Stretch bins, int64_t count, A* values) {
  A* __restrict sum = values;
  const int64_t pooled_width = box.x.starts.size() - 1;
  for (int64_t bin = bins.begin; bin < bins.end; ++bin, sum += count) {
    const int64_t ph = bin / pooled_width, pw = bin % pooled_width;
    std::fill(sum, sum + count, A(0));
    for (int64_t i = box.y.starts[ph]; i < box.y.starts[ph + 1]; ++i) {
      const A* row = cells + box.y.weights[i].at * row_stride;
      for (int64_t j = box.x.starts[pw]; j < box.x.starts[pw + 1]; ++j) {
        const A* __restrict cell = row + box.x.weights[j].at * column_stride;
        const A weight = box.y.weights[i].weight * box.x.weights[j].weight;
        for (int64_t c = 0; c < count; ++c) {
          sum[c] += weight * cell[c];
        }
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      sum[c] /= box.count;
    }
  }
}

template <typename A>
DETECTOR_MULTIVERSION void scatter_box(const A* values, const BoxWeights<A>& box, int64_t width,
                                       int64_t count, A* cells) {
  const A* __restrict value = values;
  for (size_t ph = 0; ph + 1 < box.y.starts.size(); ++ph) {
    for (size_t pw = 0; pw + 1 < box.x.starts.size(); ++pw, value += count) {
      for (int64_t i = box.y.starts[ph]; i < box.y.starts[ph + 1]; ++i) {
        for (int64_t j = box.x.starts[pw]; j < box.x.starts[pw + 1]; ++j) {
          A* __restrict cell = cells + (box.y.weights[i].at * width + box.x.weights[j].at) * count;
          const A weight = box.y.weights[i].weight * box.x.weights[j].weight / box.count;
          for (int64_t c = 0; c < count; ++c) {
            cell[c] += weight * value[c];
          }
        }
      }
    }
  }
}

// The gradients of all images for channels first..end, each image summed up by itself.
template <typename T, typename A>
void backward_channels(const roi::Gradient<T>& grad, const A* boxes, const Sampling<A>& sampling,
                       const Sizes& sizes, int64_t first, int64_t end, bool channels_last, T* output) {
  const int64_t count = end - first, places = sizes.cells() * count;
  std::vector<A> sums(sizes.images * places), values(sizes.bins() * count);
  BoxWeights<A> weights;
  for (int64_t r = 0; r < sizes.boxes; ++r) {
    weights.fill(sampling.box(boxes + 5 * r, sizes), sizes);
    grad.load(r, sizes, first, end, values.data());
    scatter_box(values.data(), weights, sizes.width, count, sums.data() + int64_t(boxes[5 * r]) * places);
  }
  for (int64_t n = 0; n < sizes.images; ++n) {
    roi::store_channels(sums.data() + n * places, roi::Stretch{0, sizes.cells()}, sizes.cells(),
                        roi::Stretch{first, end}, sizes.channels, channels_last,
                        output + n * sizes.cells() * sizes.channels);
  }
}

struct Cpu {
  template <typename T, typename A>
  static void forward(const Tensor& input, const Tensor& boxes, const Sizes& sizes,
                      const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    const Tensor rows = as_contiguous(boxes);
    const int64_t bins = sizes.bins(), channels = sizes.channels;
    const auto cells = roi::cells_of<T>(input, sizes);
    const auto* box = rows.const_data_ptr<A>();
    auto* to = output.mutable_data_ptr<T>();
    parallel_for(sizes.boxes, 1, [&](int64_t first_box, int64_t end_box) {
      std::vector<A> values(roi::stretch_values(sizes));
      BoxWeights<A> weights;
      for (int64_t r = first_box; r < end_box; ++r) {
        weights.fill(sampling.box(box + 5 * r, sizes), sizes);
        const A* image = cells.image(int64_t(box[5 * r]));
        roi::for_each_stretch(sizes, [&](roi::Stretch some_bins, roi::Stretch some_channels) {
          gather_box(image + some_channels.begin, cells.row_stride, cells.column_stride, weights, some_bins,
                     some_channels.size(), values.data());
          roi::store_channels(values.data(), some_bins, bins, some_channels, channels, channels_last,
                              to + r * bins * channels);
        });
      }
    });
  }

  template <typename T, typename A>
  static void backward(const Tensor& grad, const Tensor& boxes, const Sizes& sizes,
                       const Sampling<A>& sampling, bool channels_last, const Tensor& output) {
    const Tensor rows = as_contiguous(boxes);
    const roi::Gradient<T> gradient(grad, channels_last);
    constexpr int64_t part = 16;  // channels: few, so that the sums of an image stay in the cache
    parallel_for((sizes.channels + part - 1) / part, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        backward_channels(gradient, rows.const_data_ptr<A>(), sampling, sizes, i * part,
                          std::min((i + 1) * part, sizes.channels), channels_last,
                          output.mutable_data_ptr<T>());
      }
    });
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(detector, CPU, m) {
  m.impl("roi_align_forward", TORCH_BOX(&forward<Cpu>));
  m.impl("roi_align_backward", TORCH_BOX(&backward<Cpu>));
}

}  // namespace detector::roi_align
