"""Times the layers that other projects come for beside what PyTorch has.

python benchmarks/bench_layers.py --device cuda
"""

from cases import trilinear_interpolate
from measure import run_cases

CASES = [trilinear_interpolate]

if __name__ == "__main__":
    run_cases("layers", __doc__, CASES)
