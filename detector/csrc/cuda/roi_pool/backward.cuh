// The backward pass of roi_pool. A warp owns one channel of an image, or a band of its cells, in shared
// memory and walks the image's boxes in order, so the order of a sum is always the same. A lane takes two
// bins of a box; bins that may share a cell add to it in different steps.
#pragma once

#include "../roi/gather.cuh"
#include "../roi/parts.cuh"
#include "ring.cuh"

namespace detector::roi_pool {

constexpr int kMostSteps = 24;        // for one box; boxes of few cells look for equal ones instead
constexpr int kBandBytes = 17 << 10;  // then a dozen warps fit on a processor
constexpr unsigned kAllLanes = 0xffffffffu;

// Where the values of a channel lie.
struct Values {
  int64_t box_stride, channel_stride, bin_stride;
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
template <typename A>
__device__ void add_in_steps(A* sums, const int (&cell)[2], const A (&value)[2], const LaneBins& bins,
                             const Visit& visit) {
  const int steps = visit.period_y * visit.period_x;
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
}

// The same for bins of at least a cell in a small grid: four steps, by the parity of row and column.
template <typename A>
__device__ void add_by_parity(A* sums, const int (&cell)[2], const A (&value)[2], const LaneBins& bins) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if (cell[step / 2] >= 0 && bins.column[0] % 2 == step % 2) {
      sums[cell[step / 2]] += value[step / 2];
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
  extern __shared__ __align__(16) char shared[];
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
  Ring<T>& ring = reinterpret_cast<Ring<T>*>(shared)[warp_of_thread()];
  A* sums = reinterpret_cast<A*>(shared + warps * sizeof(Ring<T>)) + int64_t(warp_of_thread()) * bands.size;
  for (int i = lane; i < cells; i += kWarp) {
    sums[i] = 0;
  }
  __syncwarp();
  const int64_t count = counts[band * sizes.images + image];
  const int begin = count * chunk / chunks, number = int(count * (chunk + 1) / chunks) - begin;
  visits += band * sizes.boxes + starts[image] + begin;
  const int pieces = kSmall ? 1 : int(ceil_div(sizes.bins(), 2 * kWarp));
  for (int piece = 0; piece < pieces; ++piece) {
    const LaneBins bins(sizes, kSmall, piece);
    const int64_t start = channel * values.channel_stride;
    const auto place_of = [&](const Visit& visit, int k) {
      return start + visit.box * values.box_stride + bins.bin[k] * values.bin_stride;
    };
    const auto has = [&](const Visit& visit, int k) {
      return bins.bin[k] >= 0 && bins.row[k] >= visit.first_row && bins.row[k] < visit.end_row;
    };
    const auto copy_visit = [&](int i) {
      if (i < number && lane == 0) {
        copy_async<sizeof(Visit)>(&ring.visits[i % (2 * kAhead)], visits + i);
      }
    };
    const auto copy_values = [&](int i) {
      if (i < number) {
        const Visit visit = ring.visits[i % (2 * kAhead)];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          if (has(visit, k)) {
            const int64_t at = place_of(visit, k);
            ring.copy(i % kAhead, k, grad + at, argmax + at);
          }
        }
      }
    };
    // Group g brings the values of visit g, and visit g + kAhead itself.
    for (int i = 0; i < kAhead; ++i) {
      copy_visit(i);
    }
    end_group();
    await_groups<0>();
    __syncwarp();
    for (int i = 0; i < kAhead; ++i) {
      copy_values(i);
      copy_visit(i + kAhead);
      end_group();
    }
    for (int i = 0; i < number; ++i) {
      await_groups<kAhead - 1>();
      __syncwarp();
      const Visit visit = ring.visits[i % (2 * kAhead)];
      int cell[2];
      A value[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        cell[k] = has(visit, k) ? ring.cells[i % kAhead][k][lane] - first : -1;
        cell[k] = unsigned(cell[k]) < unsigned(cells) ? cell[k] : -1;
        value[k] = cell[k] >= 0 ? ring.value(i % kAhead, k, grad + place_of(visit, k)) : A(0);
      }
      __syncwarp();
      copy_values(i + kAhead);
      copy_visit(i + 2 * kAhead);
      end_group();
      if (kSmall && visit.period_y <= 2 && visit.period_x <= 2) {
        add_by_parity(sums, cell, value, bins);
      } else if (visit.period_y * int64_t(visit.period_x) <= kMostSteps) {
        add_in_steps(sums, cell, value, bins, visit);
      } else {
        add_in_order(sums, cell[0], value[0]);
        add_in_order(sums, cell[1], value[1]);
      }
    }
    await_groups<0>();
    __syncwarp();
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
  const int64_t of_warp = bands.size * sizeof(A) + sizeof(Ring<T>);
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
