// The usual number of samples and bins, which the kernels of both passes are made for.
#pragma once

namespace detector::roi_align {

constexpr int kSamples = 2;   // of a bin on each axis
constexpr int kMostBins = 8;  // on each axis: their samples touch no more columns than a warp has lanes

}  // namespace detector::roi_align
