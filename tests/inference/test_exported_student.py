"""The exported student resizes every image to the size that the student itself resizes it to."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from detector.inference import exported_student
from detector.inference.export import load_program, save_program
from detector.self_training.random_sizes import resized_size

# The shorter side and the greatest length of the longer one: Toybox, photographs, torchvision, and others.
LIMITS = [(160, 213), (480, 800), (600, 1000), (800, 1333), (64, 96), (333, 500)]


def many_sizes(count: int = 25_000) -> Tensor:
    """Sizes (N, 2): of cameras and data sets, thin ones, and drawn evenly."""
    torch.manual_seed(0)
    known = torch.tensor([(768, 1024), (375, 500), (480, 640), (160, 213), (1, 1), (1, 1333)])
    thin = torch.stack([torch.randint(1, 12, (count // 5,)), torch.randint(1, 9000, (count // 5,))], dim=1)
    drawn = torch.randint(1, 5000, (count, 2))
    return torch.cat([known, known.flip(1), thin, drawn])[:count]


class Resized(nn.Module):
    """The arithmetic of the exported student alone, for many sizes (N, 2) float64 at once."""

    def forward(self, sizes: Tensor) -> Tensor:
        return torch.stack([exported_student.resized_size(sizes, *limits) for limits in LIMITS])


@pytest.mark.parametrize("form", ["eager", "torch_export", "onnx"])  # tests/chaos tries aot_inductor
def test_25000_sizes_are_those_of_eager_in_every_format(form, tmp_path):
    sizes = many_sizes()
    network = Resized()
    if form != "eager":
        for package in ("onnxscript", "onnxruntime") if form == "onnx" else ():
            pytest.importorskip(package)
        program = torch.export.export(network, (sizes[:7].double(),), dynamic_shapes=({0: Dim("count")},))
        path = tmp_path / ("sizes.onnx" if form == "onnx" else "sizes.pt2")
        save_program(program, form, path)
        network = load_program(form, path)
    found = network(sizes.double())
    found = found if isinstance(found, Tensor) else found[0]
    expected = torch.tensor([[resized_size(size, *limits) for size in sizes.tolist()] for limits in LIMITS])
    assert found.long().equal(expected)


@pytest.mark.parametrize("limits", LIMITS)
def test_sizes_are_those_of_torchvision(limits):
    """Except for images of which it leaves no pixel."""
    transform = GeneralizedRCNNTransform(*limits, [0.0] * 3, [1.0] * 3).eval()
    for size in many_sizes(60).clamp(max=400).tolist():
        expected = resized_size(size, *limits)
        if min(size) * limits[1] >= max(size):
            assert transform.resize(torch.zeros(3, *size))[0].shape[1:] == expected, size
        else:
            assert min(expected) == 1
