// The forward pass of roi_pool and roi_align. A block keeps a few channels of one image in shared memory,
// the channels of a cell side by side, and walks the boxes of the image; a thread computes one bin for all
// these channels. Of an image of up to 14,528 cells 16 bytes of channels fit (227 KiB of shared memory in a
// block; with 99 KiB up to 6,336), of larger ones 8 or 4; the largest are read where they are.
#pragma once

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
    gather_kernel(Features<T> input, BoxesByImage<Accumulate<T>> boxes, Sizes sizes, int groups, int chunks,
                  Op op, Output<T> output) {
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

// Into how many parts the boxes of an image go so that the blocks fill the last wave too; a part costs a
// fixed share for filling shared memory.
inline int chunks_for(int64_t blocks, int64_t slots, double share = 0.04) {
  int best = 1;
  double least = 1e30;
  for (int chunks = 1; chunks <= 16; ++chunks) {
    const double time = double(ceil_div(blocks * chunks, slots)) * (1.0 / chunks + share);
    if (time < least) {
      least = time;
      best = chunks;
    }
  }
  return best;
}

template <typename T, int V, bool kStaged, typename Op>
void launch_gather(const Tensor& input, const BoxesByImage<Accumulate<T>>& boxes, const Sizes& sizes,
                   const Op& op, const Output<T>& output) {
  const int64_t shared = kStaged ? sizes.cells() * sizeof(Pack<T, V>) : 0;
  const int threads = shared > 100 * 1024 ? 1024 : 512;
  const int64_t blocks_per_processor =
      std::min<int64_t>(1024 / threads, kStaged ? shared_of_processor() / (shared + 1024) : 1024);
  const int64_t groups = ceil_div(sizes.channels, V);
  const int64_t slots =
      std::max<int64_t>(blocks_per_processor, 1) * device_attribute(cudaDevAttrMultiProcessorCount);
  const int chunks = chunks_for(groups * sizes.images, slots);
  const auto kernel = gather_kernel<T, V, kStaged, Op>;
  launch_kernel(kernel, (sizes.images + 1) * groups * chunks, threads, shared, current_stream(input),
                Features<T>(input), boxes, sizes, groups, chunks, op, output);
}

// As many channels at a time as 16 bytes and the shared memory hold.
template <typename T, typename Op>
void gather(const Tensor& input, const Tensor& boxes, const Sizes& sizes, const Op& op,
            const Output<T>& output) {
  const OrderedBoxes<Accumulate<T>> ordered(boxes, sizes);
  constexpr int V = 16 / sizeof(T);
  const int64_t most = compiled_kernel(gather_kernel<T, V, true, Op>).most_shared;
  const auto fits = [&](int channels) { return sizes.cells() * channels * int64_t(sizeof(T)) <= most; };
  if (fits(V)) {
    launch_gather<T, V, true>(input, ordered.view(), sizes, op, output);
  } else if (fits(V / 2)) {
    launch_gather<T, V / 2, true>(input, ordered.view(), sizes, op, output);
  } else if (V >= 4 && fits(V / 4)) {
    launch_gather<T, (V >= 4 ? V / 4 : 1), true>(input, ordered.view(), sizes, op, output);
  } else {
    launch_gather<T, V, false>(input, ordered.view(), sizes, op, output);
  }
}

}  // namespace detector::roi
