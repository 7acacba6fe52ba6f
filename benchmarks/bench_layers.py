"""Times the general-purpose layers, compared with PyTorch.

python benchmarks/bench_layers.py --device cuda
"""

from cases import (
    depthwise_conv2d,
    lltm,
    quick_gelu,
    trilinear_interpolate,
    upsample_bilinear2d,
)
from measure import run_cases

CASES = [
    depthwise_conv2d,
    lltm,
    quick_gelu,
    trilinear_interpolate,
    upsample_bilinear2d,
]

if __name__ == "__main__":
    run_cases("layers", __doc__, CASES)
