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
constexpr int kMostSteps = 32;        // for one box; boxes of few cells look for equal ones instead
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

// A box that reaches a band: which rows of bins do, and how many steps keep its bins apart.
struct alignas(16) Visit {
  int box;
  uint16_t first_row, end_row;
  int period_y, period_x;
};

// The boxes of each image that reach each band, in order. Those of band b and image n begin at b * R +
// boxes.starts[n]; counts: (bands, N). A block writes them, a thread looks at a box at a time.
template <typename A>
__global__ void __launch_bounds__(roi::kOrderThreads)
    visits_kernel(BoxesByImage<A> boxes, A scale, Sizes sizes, roi::Pieces bands, Visit* visits,
                  int* counts) {
  const int image = blockIdx.x % sizes.images, band = blockIdx.x / sizes.images, width = sizes.width;
  const int64_t first_cell = int64_t(band) * bands.size;
  const int first_row = first_cell / width;
  const int end_row = (min(first_cell + bands.size, sizes.cells()) - 1) / width + 1;
  const int begin = boxes.starts[image], number = boxes.starts[image + 1] - begin;
  Visit* to = visits + band * sizes.boxes + begin;
  int written = 0;
  for (int base = 0; base < number; base += roi::kOrderThreads) {
    const int i = base + threadIdx.x, position = begin + min(i, number - 1);
    const PooledBox<A> box(boxes.row(position), scale, sizes.pooled_height, sizes.pooled_width);
    int first = 0;
    while (first < sizes.pooled_height && box.rows(first, sizes.height).end <= first_row) {
      ++first;
    }
    int end = first;
    while (end < sizes.pooled_height && box.rows(end, sizes.height).begin < end_row) {
      ++end;
    }
    const bool reaches = i < number && first < end;
    const roi::Place place = roi::place_of(reaches);
    if (reaches) {
      to[written + place.before] = {
          boxes.order[position], uint16_t(min(first, 0xffff)), uint16_t(min(end, 0xffff)),
          period_of(box.bin_height, sizes.pooled_height), period_of(box.bin_width, sizes.pooled_width)};
    }
    written += place.total;
  }
  if (threadIdx.x == 0) {
    counts[blockIdx.x] = written;
  }
}

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
// other. Out of line: for small boxes and large grids.
template <typename A>
__device__ __noinline__ void add_in_steps(A* sums, int cell0, int cell1, A value0, A value1, LaneBins bins,
                                          int period_y, int period_x) {
  if (period_y * int64_t(period_x) > kMostSteps) {
    add_in_order(sums, cell0, value0);
    add_in_order(sums, cell1, value1);
    return;
  }
  const int turn0 = bins.row[0] % period_y * period_x + bins.column[0] % period_x;
  const int turn1 = bins.row[1] % period_y * period_x + bins.column[1] % period_x;
  for (int step = 0; step < period_y * period_x; ++step) {
    if (cell0 >= 0 && turn0 == step) {
      sums[cell0] += value0;
    }
    if (cell1 >= 0 && turn1 == step) {
      sums[cell1] += value1;
    }
    __syncwarp();
  }
}

// Of `parts` and `output` the one that is not null is written.
template <typename T, bool kSmall>
__global__ void backward_kernel(const T* grad, const int32_t* argmax, Values values, const Visit* visits,
                                const int* counts, const int* starts, Sizes sizes, int groups, int chunks,
                                roi::Pieces bands, Accumulate<T>* parts, T* output) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  const int warps = blockDim.x / kWarp, lane = lane_of_thread();
  int rest = blockIdx.x / groups;
  const int64_t channel = int64_t(blockIdx.x % groups) * warps + warp_of_thread();
  const int band = rest % bands.number, first = band * bands.size;
  rest /= bands.number;
  const int chunk = rest % chunks, image = rest / chunks;
  const int cells = min(int64_t(bands.size), sizes.cells() - first);
  if (channel >= sizes.channels) {
    return;
  }
  A* sums = reinterpret_cast<A*>(shared) + int64_t(warp_of_thread()) * bands.size;
  for (int i = lane; i < cells; i += kWarp) {
    sums[i] = 0;
  }
  __syncwarp();
  const int64_t count = counts[band * sizes.images + image];
  const int end = count * (chunk + 1) / chunks;
  const int pieces = kSmall ? 1 : int(ceil_div(sizes.bins(), 2 * kWarp));
  const LaneBins small_bins(sizes, kSmall, 0);
  const auto bins_of = [&](int piece) { return kSmall ? small_bins : LaneBins(sizes, false, piece); };
  grad += channel * values.channel_stride;
  argmax += channel * values.channel_stride;
  visits += band * sizes.boxes + starts[image];
  // A step is a visit, or a piece of one; the next to load is `piece` of `visit`.
  int position = count * chunk / chunks, piece = 0;
  Visit visit = position < end ? visits[position] : Visit{};
  int cell[kAhead][2], piece_of[kAhead], period_y[kAhead], period_x[kAhead];
  T value[kAhead][2];
  const auto load = [&](int k) {
    const bool exists = position < end;
    const LaneBins bins = bins_of(piece);
    piece_of[k] = exists ? piece : -1;
    period_y[k] = visit.period_y;
    period_x[k] = visit.period_x;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      cell[k][i] = -1;
      value[k][i] = T(0);
      if (exists && bins.bin[i] >= 0 && bins.row[i] >= visit.first_row && bins.row[i] < visit.end_row) {
        const int64_t at = visit.box * values.box_stride + bins.bin[i] * values.bin_stride;
        cell[k][i] = argmax[at];
        value[k][i] = grad[at];
      }
    }
    piece = piece + 1 < pieces ? piece + 1 : 0;
    if (piece == 0 && ++position < end) {
      visit = visits[position];
    }
  };
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    load(k);
  }
  while (piece_of[0] >= 0) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (piece_of[k] < 0) {
        break;
      }
      int to[2];
      A from[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[i] = unsigned(cell[k][i] - first) < unsigned(cells) ? cell[k][i] - first : -1;
        from[i] = A(value[k][i]);
      }
      const LaneBins bins = bins_of(piece_of[k]);
      const int y = period_y[k], x = period_x[k];
      load(k);
      if (kSmall && y <= 2 && x <= 2) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          if (to[step / 2] >= 0 && bins.column[0] % 2 == step % 2) {
            sums[to[step / 2]] += from[step / 2];
          }
          __syncwarp();
        }
      } else {
        add_in_steps(sums, to[0], to[1], from[0], from[1], bins, y, x);
      }
    }
  }
  const int64_t at =
      ((int64_t(chunk) * sizes.images + image) * sizes.channels + channel) * sizes.cells() + first;
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
  const int chunks = int(std::clamp<int64_t>(ceil_div(3 * slots, 2 * blocks), 1, 16));
  const bool direct = chunks == 1 && !channels_last;
  const Tensor parts = direct ? output
                              : torch::stable::new_empty(grad, {chunks, sizes.images, channels, cells},
                                                         accumulate_type(grad.scalar_type()));
  auto* sums = static_cast<A*>(parts.mutable_data_ptr());
  auto* to = static_cast<T*>(output.mutable_data_ptr());
  const Tensor visits = torch::stable::new_empty(
      boxes, {bands.number, sizes.boxes, int64_t(sizeof(Visit) / sizeof(int))}, ScalarType::Int);
  const Tensor counts = torch::stable::new_empty(boxes, {bands.number, sizes.images}, ScalarType::Int);
  auto* first_visit = static_cast<Visit*>(visits.mutable_data_ptr());
  auto* number = static_cast<int*>(counts.mutable_data_ptr());
  visits_kernel<A><<<bands.number * sizes.images, roi::kOrderThreads, 0, stream>>>(
      ordered.view(), A(scale), sizes, bands, first_visit, number);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  const auto kernel = is_small(sizes) ? backward_kernel<T, true> : backward_kernel<T, false>;
  STD_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  kernel<<<blocks * chunks, warps * kWarp, shared, stream>>>(
      static_cast<const T*>(dense.const_data_ptr()), static_cast<const int32_t*>(where.const_data_ptr()),
      values, first_visit, number, ordered.view().starts, sizes, int(groups), chunks, bands,
      direct ? nullptr : sums, direct ? to : nullptr);
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
