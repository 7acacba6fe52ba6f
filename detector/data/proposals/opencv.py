"""OpenCV's selective search, of its contrib module ximgproc, with which most tables of results were made."""

from typing import Literal

import cv2
import numpy as np

from detector.utils.errors import MissingPackage
from detector.utils.reproducibility import package_version

Mode = Literal["fast", "quality"]

OPENCV_PACKAGES = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",  # the recommended one: it needs no libGL
)


def search_image(image: np.ndarray, *, mode: Mode = "quality", longest_side: int = 300) -> np.ndarray:
    """Proposals (R, 4) float32, half-open xyxy in pixels of `image`, largest first, no two the same.

    The boxes of an image do not depend on earlier searches or on the state of OpenCV's random numbers, which
    only affect the order; boxes are sorted anew. An image of uniform color gives one box.

    Args:
        image: (H, W, 3) uint8 RGB.
        mode: "quality" searches more color spaces and scales than "fast": 3 times the boxes and 3.5
            times the time.
        longest_side: larger images are searched on a copy reduced to so many pixels. Time and the number of
            boxes grow with the pixels, the share of objects found hardly does.

    Raises:
        MissingPackage: OpenCV without ximgproc; names the package to install.
    """
    require_ximgproc()
    height, width = image.shape[:2]
    shrink = min(1.0, longest_side / max(height, width))
    reduced_size = max(1, round(width * shrink)), max(1, round(height * shrink))
    reduced = cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2BGR), reduced_size, interpolation=cv2.INTER_AREA)

    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(reduced)
    if mode == "fast":
        search.switchToSelectiveSearchFast()
    else:
        search.switchToSelectiveSearchQuality()
    x, y, w, h = np.asarray(search.process()).T  # (R,) each, in pixels of the copy
    corners = np.stack([x, y, x + w, y + h], axis=1)  # (R, 4)
    # OpenCV sorts by random numbers of the C library, which depend on earlier calls: sort by area instead.
    corners = np.unique(corners, axis=0)
    areas = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    corners = corners[np.argsort(-areas, kind="stable")]
    scale = np.array([width / reduced_size[0], height / reduced_size[1]] * 2)
    limits = np.array([width, height] * 2)
    return np.minimum(corners * scale, limits).astype(np.float32)


def require_ximgproc() -> None:
    """Raise MissingPackage, which says how to repair it, when OpenCV lacks selective search."""
    if hasattr(cv2, "ximgproc") and hasattr(cv2.ximgproc, "segmentation"):
        return
    found = " ".join(name for name in OPENCV_PACKAGES if package_version(name))
    raise MissingPackage(
        f"OpenCV {cv2.__version__} here has no cv2.ximgproc.segmentation, which selective search needs.\n"
        f"OpenCV's packages overwrite each other's files; installed: {found or 'none that pip knows'}.\n"
        f"To repair it:\n"
        f"  pip uninstall -y {found or ' '.join(OPENCV_PACKAGES)}\n"
        f"  pip install {OPENCV_PACKAGES[-1]}"
    )
