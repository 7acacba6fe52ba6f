"""Times the RoI ops and non-maximum suppression, compared with torchvision.

python benchmarks/bench_roi.py --device cuda
"""

from cases import nms, roi_align, roi_pool
from measure import run_cases

CASES = [roi_pool, roi_align, nms]

if __name__ == "__main__":
    run_cases("roi", __doc__, CASES)
