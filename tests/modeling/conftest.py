from collections.abc import Callable

import pytest
import torch

from detector.structures import Batch, boxes_to_rois


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """Batches of random boxes in 64 x 48 images: `make_batch([[1, 0], [0, 1]], [5, 7])`."""

    def make(labels: list[list[int]], counts: list[int], seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        boxes = []
        for count in counts:
            corners = torch.rand(count, 2, generator=generator) * 24  # (R, 2)
            sizes = 4 + torch.rand(count, 2, generator=generator) * 20  # (R, 2)
            boxes.append(torch.cat([corners, corners + sizes], dim=1))
        images = torch.randn(len(counts), 3, 48, 64, generator=generator)
        ids = tuple(f"image{i}" for i in range(len(counts)))
        return Batch(images, boxes_to_rois(boxes), torch.tensor(labels).float(), torch.tensor(counts), ids)

    return make
