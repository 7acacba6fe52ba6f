"""Times the layers that other projects come for beside what PyTorch has.

python benchmarks/bench_layers.py --device cuda
"""

from cases import quick_gelu, upsample_bilinear2d
from measure import run_cases

CASES = [quick_gelu, upsample_bilinear2d]
from cases import (
    lltm,
    trilinear_interpolate,
)
from measure import run_cases

CASES = [
    lltm,
    trilinear_interpolate,
]
from cases import depthwise_conv2d
from measure import run_cases

CASES = [depthwise_conv2d]

if __name__ == "__main__":
    run_cases("layers", __doc__, CASES)
