// The backward pass of roi_pool. A warp owns one channel of an image, or a band of its cells, in shared
// memory and walks the image's boxes in order, so the order of a sum is always the same. A lane takes two
// bins of a box; bins that may share a cell add to it in different steps.
#pragma once

#include "../../roi_pool.h"
#include "../roi/gather.cuh"
#include "../roi/parts.cuh"

namespace detector::roi_pool {

using roi::BoxesByImage;
using roi::Sizes;

constexpr int kAhead = 8;             // boxes whose values are on their way
constexpr int kMostSteps = 16;        // for one box; boxes of few cells look for equal ones instead
constexpr int kBandBytes = 17 << 10;  // then a dozen warps fit on a processor
constexpr unsigned kAllLanes = 0xffffffffu;

// Where the values of a channel lie.
struct Values {
  int64_t box_stride, channel_stride, bin_stride;
};

// A whole piece of the grid of bins: two of them a lane. Of a small grid the first is in an even row, the
// second in an odd one, and both are in the same column.
struct LaneBins {
  int bin[2], row[2], column[2];

  __device__ LaneBins(const Sizes& sizes, bool small, int piece) {
    const int lane = lane_of_thread(), width = sizes.pooled_width;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int linear = (2 * piece + k) * kWarp + lane;
      row[k] = small ? lane / width * 2 + k : linear / width;
      column[k] = small ? lane % width : linear % width;
      bin[k] = row[k] < sizes.pooled_height ? row[k] * width + column[k] : -1;
    }
  }
};

inline bool is_small(const Sizes& sizes) {
  return (sizes.pooled_height + 1) / 2 * int64_t(sizes.pooled_width) <= kWarp;
}

// Bins p and p + period of an axis share no cell: what lies between them is at least a cell long.
template <typename A>
__device__ int period_of(A bin_size, int bins) {
  const A period = bin_size >= A(1) ? A(2) : A(1) + ceil(A(1.001) / bin_size);
  return period < A(bins) ? int(period) : bins;
}

// A box on its way to a band of rows: which rows of bins reach the band, and how many steps keep bins apart.
struct Visit {
  int box, first_row, end_row, period_y, period_x;
};

// The visits to a band, in the order of the boxes. Each lane prepares one of 32 boxes, and loads one of the
// next.
template <typename A>
class Visits {
 public:
  __device__ Visits(const BoxesByImage<A>& boxes, A scale, const Sizes& sizes, int begin, int end,
                    int first_cell, int cells)
      : boxes_(boxes),
        scale_(scale),
        pooled_height_(sizes.pooled_height),
        pooled_width_(sizes.pooled_width),
        height_(sizes.height),
        first_(first_cell / int(sizes.width)),
        end_((first_cell + cells - 1) / int(sizes.width) + 1),
        position_(begin + lane_of_thread()),
        last_(end),
        after_(order(position_ + kWarp)) {
    load(order(position_));
  }

  // False after the last.
  __device__ bool next(Visit& visit) {
    while (hits_ == 0) {
      if (position_ - lane_of_thread() >= last_) {
        return false;
      }
      prepare();
    }
    const int from = __ffs(hits_) - 1;
    hits_ &= hits_ - 1;
    visit = {__shfl_sync(kAllLanes, mine_.box, from), __shfl_sync(kAllLanes, mine_.first_row, from),
             __shfl_sync(kAllLanes, mine_.end_row, from), __shfl_sync(kAllLanes, mine_.period_y, from),
             __shfl_sync(kAllLanes, mine_.period_x, from)};
    return true;
  }

 private:
  __device__ int order(int position) const { return position < last_ ? boxes_.order[position] : -1; }

  __device__ void load(int box) {
    mine_next_ = box;
#pragma unroll
    for (int i = 1; i < 5; ++i) {
      row_[i] = box >= 0 ? boxes_.rows[5 * int64_t(box) + i] : A(0);
    }
  }

  __device__ void prepare() {
    const PooledBox<A> box(row_, scale_, pooled_height_, pooled_width_);
    int first = 0;
    while (first < pooled_height_ && box.rows(first, height_).end <= first_) {
      ++first;
    }
    int end = first;
    while (end < pooled_height_ && box.rows(end, height_).begin < end_) {
      ++end;
    }
    mine_ = {mine_next_, first, end, period_of(box.bin_height, pooled_height_),
             period_of(box.bin_width, pooled_width_)};
    hits_ = __ballot_sync(kAllLanes, mine_next_ >= 0 && first < end);
    position_ += kWarp;
    load(after_);
    after_ = order(position_ + kWarp);
  }

  BoxesByImage<A> boxes_;
  A scale_;
  int pooled_height_, pooled_width_, height_;
  int first_, end_;  // rows of cells
  int position_, last_, after_, mine_next_;
  A row_[5];
  Visit mine_;
  unsigned hits_ = 0;
};

// Adds value to sums[cell] for each lane with a cell of at least 0. Lanes of one cell first sum up among
// themselves, neighbours by neighbours.
template <typename A>
__device__ void add_in_order(A* sums, int cell, A value) {
  const unsigned lower = (1u << lane_of_thread()) - 1;
  unsigned same = __match_any_sync(kAllLanes, cell);
  int turn = __popc(same & lower);
  const bool adds = cell >= 0 && turn == 0;
  same &= ~lower & ~(1u << lane_of_thread());  // those after this lane
  while (__any_sync(kAllLanes, cell >= 0 && same != 0)) {
    const int next = __ffs(same);
    const A other = __shfl_sync(kAllLanes, value, next > 0 ? next - 1 : 0);
    value += next > 0 ? other : A(0);
    same &= ~__ballot_sync(kAllLanes, turn & 1);  // they are in the sum of the one before
    turn >>= 1;
  }
  if (adds) {
    sums[cell] += value;
  }
  __syncwarp();
}

// Adds the two values of each lane where the cell is at least 0, those that may share a cell one after the
// other.
template <bool kSmall, typename A>
__device__ void add_box(A* sums, const int (&cell)[2], const A (&value)[2], const LaneBins& bins,
                        const Visit& visit) {
  const int steps = visit.period_y * visit.period_x;
  if (kSmall && visit.period_y <= 2 && visit.period_x <= 2) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      if (cell[step / 2] >= 0 && bins.column[0] % 2 == step % 2) {
        sums[cell[step / 2]] += value[step / 2];
      }
      __syncwarp();
    }
  } else if (steps <= kMostSteps) {
    int turn[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      turn[k] = bins.row[k] % visit.period_y * visit.period_x + bins.column[k] % visit.period_x;
    }
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (cell[k] >= 0 && turn[k] == step) {
          sums[cell[k]] += value[k];
        }
      }
      __syncwarp();
    }
  } else {
    add_in_order(sums, cell[0], value[0]);
    add_in_order(sums, cell[1], value[1]);
  }
}

// Of `parts` and `output` the one that is not null is written.
template <typename T, bool kSmall>
__global__ void backward_kernel(const T* grad, const int32_t* argmax, Values values,
                                BoxesByImage<Accumulate<T>> boxes, Accumulate<T> scale, Sizes sizes,
                                int groups, int chunks, roi::Pieces bands, Accumulate<T>* parts, T* output) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  const int warps = blockDim.x / kWarp, lane = lane_of_thread();
  int rest = blockIdx.x / groups;
  const int64_t channel = int64_t(blockIdx.x % groups) * warps + warp_of_thread();
  const int band = rest % bands.number * bands.size;
  rest /= bands.number;
  const int chunk = rest % chunks, image = rest / chunks;
  const int cells = min(int64_t(bands.size), sizes.cells() - band);
  if (channel >= sizes.channels) {
    return;
  }
  A* sums = reinterpret_cast<A*>(shared) + int64_t(warp_of_thread()) * bands.size;
  for (int i = lane; i < cells; i += kWarp) {
    sums[i] = 0;
  }
  __syncwarp();
  const int start = boxes.starts[image], count = boxes.starts[image + 1] - start;
  Visits<A> visits(boxes, scale, sizes, start + int64_t(count) * chunk / chunks,
                   start + int64_t(count) * (chunk + 1) / chunks, band, cells);
  const int pieces = kSmall ? 1 : int(ceil_div(sizes.bins(), 2 * kWarp));
  const LaneBins small_bins(sizes, kSmall, 0);
  const auto bins_of = [&](int piece) { return kSmall ? small_bins : LaneBins(sizes, false, piece); };
  grad += channel * values.channel_stride;
  argmax += channel * values.channel_stride;

  Visit visit[kAhead], last;
  int cell[kAhead][2], piece[kAhead], next_piece = 0;
  T value[kAhead][2];
  bool more = true;
  const auto load = [&](int k) {
    if (kSmall || next_piece == 0) {
      more = more && visits.next(last);
    }
    visit[k] = last;
    piece[k] = more ? next_piece : -1;
    const LaneBins bins = bins_of(next_piece);
    next_piece = next_piece + 1 < pieces ? next_piece + 1 : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      cell[k][i] = -1;
      if (more && bins.bin[i] >= 0 && bins.row[i] >= last.first_row && bins.row[i] < last.end_row) {
        const int64_t at = last.box * values.box_stride + bins.bin[i] * values.bin_stride;
        cell[k][i] = argmax[at];
        value[k][i] = grad[at];
      }
    }
  };
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    load(k);
  }
  while (piece[0] >= 0) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (piece[k] < 0) {
        break;
      }
      int to[2];
      A from[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool inside = cell[k][i] >= band && cell[k][i] < band + cells;
        to[i] = inside ? cell[k][i] - band : -1;
        from[i] = inside ? A(value[k][i]) : A(0);
      }
      const Visit now = visit[k];
      const LaneBins bins = bins_of(piece[k]);
      load(k);
      add_box<kSmall>(sums, to, from, bins, now);
    }
  }
  const int64_t at =
      ((int64_t(chunk) * sizes.images + image) * sizes.channels + channel) * sizes.cells() + band;
  for (int i = lane; i < cells; i += kWarp) {
    if (output != nullptr) {
      output[at + i] = T(sums[i]);
    } else {
      parts[at + i] = sums[i];
    }
  }
}

template <typename T>
void launch_backward(const Tensor& grad, const Tensor& argmax, const Tensor& boxes, double scale,
                     const Sizes& sizes, bool channels_last, const Tensor& output) {
  using A = Accumulate<T>;
  const cudaStream_t stream = current_stream(grad);
  const roi::OrderedBoxes<A> ordered(boxes, sizes);
  const Tensor dense = torch::stable::contiguous(grad), where = torch::stable::contiguous(argmax);
  const int64_t channels = sizes.channels, cells = sizes.cells();
  const int64_t of_box = sizes.bins() * channels;
  const Values values = channels_last ? Values{of_box, 1, channels} : Values{of_box, sizes.bins(), 1};
  const int64_t most = roi::device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const roi::Pieces bands(cells, kBandBytes / int64_t(sizeof(A)));
  const int64_t of_warp = bands.size * sizeof(A);
  // Neighbouring channels share the sectors of a channels-last tensor, so their warps go together.
  const int warps = channels_last ? std::min<int64_t>({most / of_warp, 8, channels}) : 1;
  const int64_t groups = ceil_div(channels, warps), blocks = groups * bands.number * sizes.images;
  const int64_t shared = warps * of_warp;
  const int64_t slots = roi::device_attribute(cudaDevAttrMultiProcessorCount) *
                        std::clamp<int64_t>(most / (shared + 1024), 1, 32);
  const int chunks = int(std::clamp<int64_t>(slots / blocks, 1, 16));
  const bool direct = chunks == 1 && !channels_last;
  const Tensor parts = direct ? output
                              : torch::stable::new_empty(grad, {chunks, sizes.images, channels, cells},
                                                         accumulate_type(grad.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());
  auto* to = static_cast<T*>(output.mutable_data_ptr());
  const auto kernel = is_small(sizes) ? backward_kernel<T, true> : backward_kernel<T, false>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  kernel<<<blocks * chunks, warps * kWarp, shared, stream>>>(
      static_cast<const T*>(dense.const_data_ptr()), static_cast<const int32_t*>(where.const_data_ptr()),
      values, ordered.view(), A(scale), sizes, int(groups), chunks, bands, direct ? nullptr : sums,
      direct ? to : nullptr);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  const int64_t of_image = channels * cells;
  if (channels_last) {
    roi::transpose(
        roi::Strided<A>{sums, sizes.images * of_image, of_image, cells, 1, chunks, channels, cells},
        sizes.images, to, stream);
  } else if (!direct) {
    roi::sum_parts(sums, chunks, sizes.images * of_image, to, stream);
  }
}

}  // namespace detector::roi_pool
