// Which kernel computes a pass of a depthwise convolution. The tables are all that chooses at run time, all
// that detector.layers.explain says, and all that the tables in the READMEs of the kernels hold.
#pragma once

#include "depthwise_conv2d.h"
#include "plan.h"

namespace detector::depthwise_conv2d {

enum class Pass { kForward, kGradInput, kGradWeight };

struct Request {
  Pass pass;
  const Problem& problem;
  int element_size;  // in bytes; 8 is double
  bool channels_last;
  bool aligned;  // all tensors begin at multiples of 16 bytes
  Gpu gpu;
};

// ---- on a GPU ----

constexpr int kMostTaps = 81;   // of the channels-last kernels
constexpr int kMostStride = 4;  // of the same, in both directions
constexpr int kColumns = 4;     // of a strip
constexpr int kVector = 8;      // elements of half precision in 16 bytes

// The problem whose input is the output of p, and reversed: where the stride is 1, its forward pass with the
// turned kernel is grad_input of p.
inline Problem transposed(const Problem& p) {
  Problem t = p;
  t.height = p.out_height, t.width = p.out_width;
  t.out_height = p.height, t.out_width = p.width;
  t.pad_h = p.kernel_h - 1 - p.pad_h, t.pad_w = p.kernel_w - 1 - p.pad_w;
  return t;
}

inline bool is_square(const Problem& p) {
  return p.kernel_h == p.kernel_w && p.stride_h == p.stride_w && p.dilation_h == 1 && p.dilation_w == 1 &&
         (p.kernel_h == 3 || p.kernel_h == 5 || p.kernel_h == 7);
}

inline bool keeps_size(const Problem& p) { return p.pad_h == p.kernel_h / 2 && p.pad_w == p.kernel_w / 2; }

// Whether the number of a strip fits 31 bits, and the coordinates in a plane do with room to spare.
inline bool has_strip_numbers(const Problem& p) {
  const int64_t side = 1 << 14;
  const int64_t strips = p.batch * p.out_channels() * ceil_div(std::max(p.width, p.out_width), kColumns) *
                         std::max(p.height, p.out_height);
  return p.height < side && p.width < side && strips < (int64_t(1) << 31);
}

inline bool has_strips(const Request& r) {
  const Problem& p = r.problem;
  const bool regular = !r.channels_last && r.element_size < 8 && is_square(p) && p.stride_h <= 2 &&
                       p.height > 0 && p.width > 0 && has_strip_numbers(p);
  return regular && (r.pass != Pass::kGradInput || (p.multiplier == 1 && (p.stride_h == 1 || keeps_size(p))));
}

// benchmarks/cases/depthwise_conv2d.py has the times that choose. Of smaller planes too much of the tiles is
// empty.
inline bool has_tensor_cores(const Request& r) {
  const Problem& p = r.problem;
  if (!has_strips(r) || r.element_size != 2 || p.stride_h != 1 || p.kernel_h < 5 || !keeps_size(p) ||
      !r.aligned || r.gpu.architecture < 80) {
    return false;
  }
  const bool small = r.pass != Pass::kGradWeight && p.kernel_h == 5 && std::min(p.height, p.width) < 32;
  return !small && p.height >= 10 && p.width % kVector == 0 && p.out_channels() < (1 << 30);
}

// Offsets within some rows of an image are int, and so is the number of blocks.
inline bool has_stencil(const Request& r) {
  const Problem& p = r.problem;
  const int64_t limit = int64_t(1) << 30;
  const int64_t height = std::max(p.height, p.out_height) + 2 * p.pad_h + p.kernel_h * p.dilation_h;
  const int64_t width = std::max(p.width, p.out_width) + 2 * p.pad_w + p.kernel_w * p.dilation_w;
  return r.channels_last && r.element_size < 8 && r.aligned && p.multiplier == 1 &&
         p.channels % (16 / r.element_size) == 0 && p.taps() <= kMostTaps && p.stride_h <= kMostStride &&
         p.stride_w <= kMostStride && height < limit && width < limit &&
         (p.kernel_h * p.dilation_h + p.pad_h + 1) * width < limit / std::max<int64_t>(p.channels, 1) &&
         p.batch * p.channels * width < limit;
}

inline bool has_rows(const Request& r) {
  const Problem& p = r.problem;
  return has_stencil(r) && is_square(p) &&
         (p.stride_h == 1 || (p.stride_h == 2 && p.kernel_h == 3 && r.pass != Pass::kGradInput));
}

// ---- how the kernels for tensor cores divide their work: tiles of planes, of which a block has two images
// at a time in shared memory ----

constexpr int kTileRows = 16;      // rows of a warp
constexpr int kMostColumns = 128;  // of a block
constexpr int kMostWarps = 8;
constexpr int64_t kTensorCoreBlocks = 1024;  // enough to fill a GPU: each begins alone and ends alone
constexpr int64_t kMostGridY = 65535;        // and z

// Blocks cover a plane by bands of rows and stretches of columns; each goes through several images.
struct TileSizes {
  int height, width, channels, multiplier, batch;
  int bands, warps, columns;    // columns of a block, a multiple of kVector
  int input_pitch, grad_pitch;  // elements from row to row in shared memory; the output has the input's
};

// The next odd number of vectors: then eight rows fall into different banks.
inline int pitch_of(int columns) { return (columns / kVector | 1) * kVector; }

// Blocks of at most so many warps.
inline TileSizes tile_sizes(const Problem& p, int most_warps) {
  const int tiles = int(ceil_div(p.height, kTileRows));
  const int bands = int(ceil_div(tiles, most_warps));
  const int stretches = int(ceil_div(p.width, kMostColumns));
  const int columns = int(ceil_div(ceil_div(p.width, stretches), kVector)) * kVector;
  return {int(p.height),
          int(p.width),
          int(p.channels),
          int(p.multiplier),
          int(p.batch),
          bands,
          int(ceil_div(tiles, bands)),
          columns,
          pitch_of(columns + 2 * kVector),
          pitch_of(columns)};
}

// Bytes of shared memory of a block.
inline int64_t tile_bytes(Pass pass, int64_t kernel, const TileSizes& s) {
  const int64_t rows = s.warps * kTileRows, size = 2;  // of half precision
  if (pass != Pass::kGradWeight) {
    return (2 * (rows + kernel - 1) + rows) * s.input_pitch * size;
  }
  const int64_t tiles = 2 * ((rows + kernel - 1) * s.input_pitch + rows * s.grad_pitch) * size;
  return std::max(tiles, s.warps * (kernel + 1) / 2 * 3 * 128 * int64_t(sizeof(float)));
}

// The grid is (channels, tiles, groups); a group of blocks takes every groups-th image.
struct TileLaunch {
  TileSizes sizes;
  unsigned channels, tiles, groups;
  int64_t shared;  // bytes
};

// With at most `most_shared` bytes a block; blocks of one warp need less than 48 KiB, which every GPU has.
inline TileLaunch tile_launch(Pass pass, const Problem& p, int64_t most_shared) {
  int warps = kMostWarps;
  while (warps > 1 && tile_bytes(pass, p.kernel_h, tile_sizes(p, warps)) > most_shared) {
    warps -= 1;
  }
  const TileSizes sizes = tile_sizes(p, warps);
  const int64_t tiles = sizes.bands * ceil_div(sizes.width, sizes.columns);
  const int64_t images = pass == Pass::kGradWeight ? p.batch : ceil_div(p.batch, 2);
  const int64_t groups = std::clamp<int64_t>(kTensorCoreBlocks / (p.out_channels() * tiles), 1,
                                             std::clamp<int64_t>(images, 1, kMostGridY));
  return {sizes, unsigned(p.out_channels()), unsigned(tiles), unsigned(groups),
          tile_bytes(pass, p.kernel_h, sizes)};
}

inline Launch tensor_core_launch(const Request& r) {
  const TileLaunch launch = tile_launch(r.pass, r.problem, r.gpu.most_shared);
  return {launch.channels, launch.tiles, launch.groups, launch.sizes.warps * 32, launch.shared};
}

enum GpuKernel { kTensorCores, kStrips, kRows, kStencil, kGeneric };

constexpr Candidate<Request> kGpuTable[] = {
    {"tensor_cores", has_tensor_cores,
     "contiguous half precision, 5 x 5 from 32 x 32 pixels on and 7 x 7, stride 1, same padding, width % 8 "
     "== 0, "
     "compute capability 8.0",
     "5 x 5 / 7 x 7 on 32 x 256 x 56 x 56 forward 49 / 47 us, by strips 63 / 107 (H100)", tensor_core_launch},
    {"strips", has_strips,
     "contiguous, 3, 5 and 7 square, stride 1 and 2, one filter for each channel in grad_input",
     "float32 forward 66 / 93 us, torch 417 / 841 (H200)"},
    {"rows", has_rows, "channels-last, 3, 5 and 7 square with stride 1, 3 with stride 2 except grad_input",
     "float32 forward 64 / 81 us, cuDNN 177 / 474 (H200)"},
    {"stencil", has_stencil,
     "channels-last, up to 81 taps, strides up to 4, any dilation, one filter for each channel, 16-byte "
     "vectors "
     "of channels",
     "9 x 9 float32 on 32 x 128 x 28 x 28 142 us, torch 956 (H100)"},
    {"generic", always<Request>, "all", "double precision and whatever no other kernel takes"},
};

static_assert(is_table_of(kGeneric + 1, kGpuTable));

inline GpuKernel gpu_kernel(const Request& request) {
  return GpuKernel(plan("depthwise_conv2d", kGpuTable, request));
}

// ---- on the CPU ----

// The kernels for planes copy each of them with its padding, and the gradient of the input takes a list of
// taps for each phase of the stride. Strides, paddings or dilations that are large beside the image make that
// gigabytes for a few outputs; the kernels for pixels take no more than the tensors do. In double, which no
// product overflows.
inline bool is_sparse(const Problem& p) {
  const double inside = double(p.height) * double(p.width) + double(p.out_height) * double(p.out_width);
  const double padded =
      (double(p.height) + 2.0 * double(p.pad_h)) * (double(p.width) + 2.0 * double(p.pad_w));
  const double phases = double(p.stride_h) * double(p.stride_w) * double(p.taps()) * double(p.multiplier);
  return padded > 16 * inside + (1 << 16) || phases > 16 * inside + (1 << 22);
}

inline bool has_planes(const Request& r) { return !r.channels_last && !is_sparse(r.problem); }

enum CpuKernel { kPlanes, kPixels };

constexpr Candidate<Request> kCpuTable[] = {
    {"planes", has_planes, "contiguous, unless padding, stride or dilation are large beside the image",
     "a plane is copied with zeros around it, then every tap is a constant offset"},
    {"pixels", always<Request>, "all; contiguous tensors are copied",
     "a row is cut into segments whose pixels meet the same taps; channels are the vectors"},
};

static_assert(is_table_of(kPixels + 1, kCpuTable));

inline CpuKernel cpu_kernel(const Request& request) {
  return CpuKernel(chosen("depthwise_conv2d", kCpuTable, request));
}

}  // namespace detector::depthwise_conv2d
