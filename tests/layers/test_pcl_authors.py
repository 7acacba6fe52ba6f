"""Comparison with the outputs of the PCL authors' PyTorch code (branch 0.4.0), in data/pcl_authors.npz.

The file has 36 random images. Clusters were computed by the authors' Python code with an exact k-means and
stable sorts; the loss (divided by the number of proposals) and its gradient by their C code.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from detector.layers import pcl_loss, proposal_clusters

IMAGES = 36
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(scope="module")
def golden() -> list[dict[str, Tensor]]:
    with np.load(Path(__file__).parent / "data/pcl_authors.npz") as arrays:
        names = ("boxes", "scores", "image_labels", "probs", "labels", "weights", "clusters", "loss", "grad")
        return [
            {name: torch.from_numpy(arrays[f"{image:02d}_{name}"]) for name in names}
            for image in range(IMAGES)
        ]


@pytest.mark.parametrize("device", DEVICES)
def test_clusters_equal_authors_code(golden: list[dict[str, Tensor]], device: str) -> None:
    for image in golden:
        boxes = image["boxes"] + torch.tensor([0.0, 0.0, 1.0, 1.0])  # the authors' corners are inclusive
        found = proposal_clusters(
            boxes.to(device),
            image["scores"].to(device),
            image["image_labels"][None].to(device),
            torch.tensor([len(boxes)]),
            method="pcl",
        )
        for name in ("labels", "weights", "clusters"):
            assert torch.equal(getattr(found, name).cpu(), image[name]), name


@pytest.mark.parametrize("device", DEVICES)
def test_loss_and_gradient_equal_authors_code(golden: list[dict[str, Tensor]], device: str) -> None:
    for image in golden:
        probs = image["probs"].to(device).requires_grad_()
        rows = (image[name].to(device) for name in ("labels", "weights", "clusters"))
        loss = pcl_loss(probs, *rows)
        (gradient,) = torch.autograd.grad(loss, probs)
        torch.testing.assert_close(loss.cpu().double(), image["loss"], rtol=1e-6, atol=0)
        torch.testing.assert_close(gradient.cpu(), image["grad"], rtol=1e-6, atol=1e-7)
