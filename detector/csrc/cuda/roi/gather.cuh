// The forward pass of roi_pool and roi_align. A block keeps a few channels of one image in shared memory,
// the channels of a cell side by side, and walks the boxes of the image; a thread computes one bin for all
// these channels. Of an image of up to 14,528 cells 16 bytes of channels fit (227 KiB of shared memory in a
// block; with 99 KiB up to 6,336), for roi_align of larger ones 8; the largest are read where they are.
#pragma once

#include "../../roi_plan.h"
#include "../pack.cuh"
#include "boxes.cuh"

namespace detector::roi {

template <typename T>
struct Features {
  const T* data;
  int64_t image_stride, channel_stride, row_stride, column_stride;

  explicit Features(const Tensor& input)
      : data(input.const_data_ptr<T>()),
        image_stride(input.stride(0)),
        channel_stride(input.stride(1)),
        row_stride(input.stride(2)),
        column_stride(input.stride(3)) {}
};

// The cells of V channels of one image, staged or not.
template <typename T, int V, bool kStaged>
struct CellReader {
  const Pack<T, V>* staged;
  const T* data;  // the first channel
  int64_t channel_stride, row_stride, column_stride;
  int width, channels;  // that there are, V at most

  // Image sizes.images is none: nothing is read.
  __device__ CellReader(const Features<T>& input, const Sizes& sizes, int image, int64_t channel,
                        const Pack<T, V>* staged)
      : staged(staged),
        data(input.data +
             (image == sizes.images ? 0 : image * input.image_stride + channel * input.channel_stride)),
        channel_stride(input.channel_stride),
        row_stride(input.row_stride),
        column_stride(input.column_stride),
        width(int(sizes.width)),
        channels(min(int64_t(V), sizes.channels - channel)) {}

  __device__ void load(int y, int x, Accumulate<T> (&cell)[V]) const {
    if constexpr (kStaged) {
      const Pack<T, V> pack = staged[y * width + x];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        cell[v] = Accumulate<T>(pack.values[v]);
      }
    } else {
      const T* from = data + y * row_stride + x * column_stride;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        cell[v] = v < channels ? Accumulate<T>(from[v * channel_stride]) : Accumulate<T>(0);
      }
    }
  }

  __device__ void stage(Pack<T, V>* to, int height) const {
    const int cells = height * width;
    const bool dense = row_stride == width * column_stride;
    const bool vector = channels == V && channel_stride == 1 && dense && column_stride % V == 0 &&
                        is_aligned(data, sizeof(Pack<T, V>));
#pragma unroll 4
    for (int i = threadIdx.x; i < cells; i += blockDim.x) {
      const T* from = data + (dense ? i * column_stride : i / width * row_stride + i % width * column_stride);
      Pack<T, V> pack;
      if (vector) {
        pack = *reinterpret_cast<const Pack<T, V>*>(from);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          pack.values[v] = v < channels ? from[v * channel_stride] : T(0);
        }
      }
      to[i] = pack;
    }
    __syncthreads();
  }
};

// Writes V channels of a bin to (R, C, PH, PW), or with channels_last to (R, PH, PW, C).
template <int V, typename To, typename From>
__device__ void store(To* to, bool channels_last, int64_t box, int bin, int bins, int64_t channel,
                      int64_t channels, const From (&values)[V]) {
  if (channels_last && channels % V == 0) {  // new tensors are aligned
    constexpr int most = V * sizeof(To) > 16 ? 16 / sizeof(To) : V;
#pragma unroll
    for (int v = 0; v < V; v += most) {
      Pack<To, most> pack;
#pragma unroll
      for (int i = 0; i < most; ++i) {
        pack.values[i] = To(values[v + i]);
      }
      *reinterpret_cast<Pack<To, most>*>(to + (box * bins + bin) * channels + channel + v) = pack;
    }
    return;
  }
  to += channels_last ? (box * bins + bin) * channels + channel : (box * channels + channel) * bins + bin;
  const int stride = channels_last ? 1 : bins;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (channel + v < channels) {
      to[int64_t(v) * stride] = To(values[v]);
    }
  }
}

template <typename T>
struct Output {
  T* values;
  int32_t* argmax;  // the cell that a maximum was found in; null without
  bool channels_last;
};

// Op::pool(reader, box, ph, pw, sizes, values, where) computes a bin.
template <typename T, int V, bool kStaged, typename Op>
__global__ void __launch_bounds__(1024)
    roi_gather_kernel(Features<T> input, BoxesByImage<Accumulate<T>> boxes, Sizes sizes, int groups,
                      int chunks, Op op, Output<T> output) {
  using A = Accumulate<T>;
  extern __shared__ char shared[];
  const int chunk = blockIdx.x % chunks, group = blockIdx.x / chunks % groups;
  const int image = blockIdx.x / chunks / groups;
  const int start = boxes.starts[image], count = boxes.starts[image + 1] - start;
  const int first = start + int64_t(count) * chunk / chunks;
  const int end = start + int64_t(count) * (chunk + 1) / chunks;
  if (first == end) {
    return;
  }
  const int64_t channel = int64_t(group) * V;
  auto* staged = reinterpret_cast<Pack<T, V>*>(shared);
  const bool impossible = image == sizes.images;
  const CellReader<T, V, kStaged> reader(input, sizes, image, channel, staged);
  if (kStaged && !impossible) {
    reader.stage(staged, sizes.height);
  }
  const int bins = sizes.bins();
  int position = first + threadIdx.x / bins, bin = threadIdx.x % bins;
  const int step = blockDim.x / bins, bin_step = blockDim.x % bins;
  while (position < end) {
    A values[V];
    int32_t where[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values[v] = 0;
      where[v] = -1;
    }
    if (!impossible) {
      op.pool(reader, boxes.row(position), bin / sizes.pooled_width, bin % sizes.pooled_width, sizes, values,
              where);
    }
    const int64_t box = boxes.order[position];
    store(output.values, output.channels_last, box, bin, bins, channel, sizes.channels, values);
    if (output.argmax != nullptr) {
      store(output.argmax, output.channels_last, box, bin, bins, channel, sizes.channels, where);
    }
    position += step;
    bin += bin_step;
    if (bin >= bins) {
      bin -= bins;
      ++position;
    }
  }
}

template <typename T, int V, bool kStaged, typename Op>
void launch_gather(const Request& request, const Tensor& input, const BoxesByImage<Accumulate<T>>& boxes,
                   const Op& op, const Output<T>& output) {
  const auto [groups, chunks, launch] = gather_blocks(request, V * sizeof(T), kStaged);
  launch_kernel(roi_gather_kernel<T, V, kStaged, Op>, launch, current_stream(input), Features<T>(input),
                boxes, request.sizes, groups, chunks, op, output);
}

}  // namespace detector::roi
