// Work around the backward kernels: a change of layout before, the sum of their parts after.
#pragma once

#include "../launch.cuh"
#include "../pack.cuh"

namespace detector::roi {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;

// (P, B, M, N) in any strides to (B, N, M), summed over the parts P in order.
template <typename From>
struct Strided {
  const From* data;
  int64_t part_stride, batch_stride, row_stride, column_stride;
  int parts;
  int64_t rows, columns;
};

// A block takes a tile of kTile x kTile: it reads along columns and writes along rows.
template <typename From, typename To>
__global__ void __launch_bounds__(kTileThreads)
    transpose_kernel(Strided<From> from, int tiles_of_rows, int tiles_of_columns, To* to) {
  __shared__ From tile[kTile][kTile + 1];  // columns x rows
  constexpr int steps = 8;                 // loads in flight
  const int64_t batch = blockIdx.x / tiles_of_rows / tiles_of_columns;
  const int64_t row = int64_t(blockIdx.x / tiles_of_columns % tiles_of_rows) * kTile;
  const int64_t column = int64_t(blockIdx.x % tiles_of_columns) * kTile;
  const int rows = min(int64_t(kTile), from.rows - row);
  const int columns = min(int64_t(kTile), from.columns - column);
  const From* data =
      from.data + batch * from.batch_stride + row * from.row_stride + column * from.column_stride;
  const unsigned reciprocal = 0xffffffffu / columns + 1;  // i * reciprocal >> 32 is i / columns for small i
  for (int first = threadIdx.x; first < rows * columns; first += steps * kTileThreads) {
    From values[steps];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const int i = first + k * kTileThreads;
      const int r = columns == 1 ? i : __umulhi(i, reciprocal), c = i - r * columns;
      values[k] = From(0);
      for (int part = 0; part < from.parts && i < rows * columns; ++part) {
        values[k] += data[part * from.part_stride + r * from.row_stride + c * from.column_stride];
      }
    }
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const int i = first + k * kTileThreads;
      const int r = columns == 1 ? i : __umulhi(i, reciprocal), c = i - r * columns;
      if (i < rows * columns) {
        tile[c][r] = values[k];
      }
    }
  }
  __syncthreads();
  To* output = to + (batch * from.columns + column) * from.rows + row;
#pragma unroll 4
  for (int i = threadIdx.x; i < columns * kTile; i += kTileThreads) {
    if (i % kTile < rows) {
      output[i / kTile * from.rows + i % kTile] = To(tile[i / kTile][i % kTile]);
    }
  }
}

template <typename From, typename To>
void transpose(const Strided<From>& from, int64_t batch, To* to, cudaStream_t stream) {
  const int64_t rows = ceil_div(from.rows, kTile), columns = ceil_div(from.columns, kTile);
  if (batch * rows * columns > 0) {
    launch_kernel(transpose_kernel<From, To>, batch * rows * columns, kTileThreads, 0, stream, from,
                  int(rows), int(columns), to);
  }
}

// A block takes kTile channels of a box, which lie side by side: (C, bins) to (bins, C).
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    last_kernel(const T* from, int64_t channels, int bins, int groups, T* to) {
  extern __shared__ __align__(16) char shared[];
  constexpr int V = 16 / sizeof(T), W = sizeof(T) < 4 ? 2 : 1;  // elements of a load and of a store
  T* tile = reinterpret_cast<T*>(shared);
  const int64_t box = blockIdx.x / groups, channel = int64_t(blockIdx.x % groups) * kTile;
  const int rows = min(int64_t(kTile), channels - channel), size = rows * bins;
  const T* data = from + (box * channels + channel) * bins;
  const int whole = is_aligned(data) ? size / V : 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < whole; i += kTileThreads) {
    reinterpret_cast<uint4*>(tile)[i] = reinterpret_cast<const uint4*>(data)[i];
  }
  for (int i = whole * V + threadIdx.x; i < size; i += kTileThreads) {
    tile[i] = data[i];
  }
  __syncthreads();
  T* output = to + box * bins * channels + channel;
  if (channels % W == 0) {
#pragma unroll 4
    for (int i = threadIdx.x; i < bins * (kTile / W); i += kTileThreads) {
      const int row = i % (kTile / W) * W, bin = i / (kTile / W);
      if (row < rows) {
        Pack<T, W> pack;
#pragma unroll
        for (int k = 0; k < W; ++k) {
          pack.values[k] = tile[(row + k) * bins + bin];
        }
        store_pack(output + bin * channels + row, pack);
      }
    }
  } else {
    for (int i = threadIdx.x; i < size; i += kTileThreads) {
      output[i / rows * channels + i % rows] = tile[i % rows * bins + i / rows];
    }
  }
}

// Pooled values (R, C, bins), contiguous, to (R, bins, C).
template <typename T>
void channels_to_last(const T* from, int64_t boxes, int64_t channels, int64_t bins, T* to,
                      cudaStream_t stream) {
  const int64_t shared = kTile * bins * int64_t(sizeof(T)), groups = ceil_div(channels, kTile);
  if (shared > 48 * 1024) {
    transpose(Strided<T>{from, 0, bins * channels, bins, 1, 1, channels, bins}, boxes, to, stream);
  } else if (boxes * groups > 0) {
    launch_kernel(last_kernel<T>, boxes * groups, kTileThreads, shared, stream, from, channels, int(bins),
                  int(groups), to);
  }
}

// The same back: (bins, C) to (C, bins).
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    first_kernel(const T* from, int64_t channels, int bins, int groups, T* to) {
  extern __shared__ __align__(16) char shared[];
  constexpr int V = 16 / sizeof(T), W = sizeof(T) < 4 ? 2 : 1;  // elements of a store and of a load
  T* tile = reinterpret_cast<T*>(shared);
  const int64_t box = blockIdx.x / groups, channel = int64_t(blockIdx.x % groups) * kTile;
  const int rows = min(int64_t(kTile), channels - channel), size = rows * bins;
  const T* data = from + box * bins * channels + channel;
  if (channels % W == 0 && is_aligned(data, W * sizeof(T))) {
#pragma unroll 8
    for (int i = threadIdx.x; i < bins * (kTile / W); i += kTileThreads) {
      const int row = i % (kTile / W) * W, bin = i / (kTile / W);
      if (row < rows) {
        const Pack<T, W> pack = load_once<W>(data + bin * channels + row);
#pragma unroll
        for (int k = 0; k < W; ++k) {
          tile[(row + k) * bins + bin] = pack.values[k];
        }
      }
    }
  } else {
    for (int i = threadIdx.x; i < size; i += kTileThreads) {
      tile[i % rows * bins + i / rows] = data[i / rows * channels + i % rows];
    }
  }
  __syncthreads();
  T* output = to + (box * channels + channel) * bins;
  const int whole = is_aligned(output) ? size / V : 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < whole; i += kTileThreads) {
    reinterpret_cast<uint4*>(output)[i] = reinterpret_cast<const uint4*>(tile)[i];
  }
  for (int i = whole * V + threadIdx.x; i < size; i += kTileThreads) {
    output[i] = tile[i];
  }
}

// (R, bins, C), contiguous, to (R, C, bins).
template <typename T>
void channels_to_first(const T* from, int64_t boxes, int64_t channels, int64_t bins, T* to,
                       cudaStream_t stream) {
  const int64_t shared = kTile * bins * int64_t(sizeof(T)), groups = ceil_div(channels, kTile);
  if (shared > 48 * 1024) {
    transpose(Strided<T>{from, 0, bins * channels, channels, 1, 1, bins, channels}, boxes, to, stream);
  } else if (boxes * groups > 0) {
    launch_kernel(first_kernel<T>, boxes * groups, kTileThreads, shared, stream, from, channels, int(bins),
                  int(groups), to);
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kTileThreads)
    sum_kernel(const From* parts, int number, int64_t size, To* sum) {
  for (int64_t i = int64_t(blockIdx.x) * kTileThreads + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * kTileThreads) {
    From total = parts[i];
#pragma unroll 4
    for (int part = 1; part < number; ++part) {
      total += parts[part * size + i];
    }
    sum[i] = To(total);
  }
}

// (P, size) to (size,), in the order of the parts.
template <typename From, typename To>
void sum_parts(const From* parts, int number, int64_t size, To* sum, cudaStream_t stream) {
  if (size > 0) {
    launch_kernel(sum_kernel<From, To>, blocks_for(size, kTileThreads), kTileThreads, 0, stream, parts,
                  number, size, sum);
  }
}

// A length cut into as few equal pieces of at most `most` as there may be.
struct Pieces {
  int number, size;
  Pieces(int64_t length, int64_t most)
      : number(int(ceil_div(length, most))), size(int(ceil_div(length, number))) {}
};

}  // namespace detector::roi
