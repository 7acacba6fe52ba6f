"""Warns of long images, to which all images of a batch are padded."""

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.transforms import resized_size
from detector.utils.errors import counted, shortened

_LONG = 4.0  # aspect ratio: more is unusual
_ENLARGED = 3.0  # times the pixels of a batch without long images: no warning below


def padding_findings(dataset: AnnotatedImages, size: int, side: str, max_size: int) -> list[str]:
    """One message where a few long images may make padded batches much larger than all others do, else none.

    Args:
        size, side, max_size: of :func:`resized_size`.
    """
    sizes = np.array(
        [resized_size(*dataset.image_size(i), size, side, max_size) for i in range(len(dataset))]
    )  # (N, 2) height, width
    is_long = sizes.max(axis=1) > _LONG * sizes.min(axis=1)
    if not 0 < 2 * is_long.sum() < len(is_long):
        return []
    others = sizes[~is_long].max(axis=0)  # what a batch of all others is padded to
    times = sizes.max(axis=0).prod() / others.prod()
    if times < _ENLARGED:
        return []
    names = [str(dataset.image_path(i)) for i in np.flatnonzero(is_long).tolist()]
    return [
        f"{dataset.name}: {counted(len(names), 'image is', 'images are')} over {_LONG:g} times as long as "
        f"wide or high, {shortened(names, 3)}: padded to them, a batch has up to {times:.0f} times the "
        f"pixels and of the memory; leave them out, cut them, or set INPUT.MAX_SIZE {others.max()}"
    ]
