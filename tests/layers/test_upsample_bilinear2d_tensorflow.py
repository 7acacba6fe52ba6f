"""upsample_bilinear2d compared with TensorFlow. Requires `pip install 'detector[tensorflow]'`."""

import pytest
import torch
from op_contract import random
from torch import Tensor

from detector.layers import upsample_bilinear2d

tf = pytest.importorskip("tensorflow")

FLAGS = {
    "asymmetric": {"align_corners": False, "half_pixel_centers": False},
    "align_corners": {"align_corners": True, "half_pixel_centers": False},
    "tf_half_pixel": {"align_corners": False, "half_pixel_centers": True},
}
# Input and output (height, width): up, down, both; integer and other factors; to and from one pixel
SIZES = [
    ((4, 6), (8, 12)),
    ((3, 5), (7, 4)),
    ((5, 7), (5, 7)),
    ((13, 9), (4, 25)),
    ((10, 7), (13, 9)),
    ((10, 7), (3, 16)),
    ((1, 1), (3, 5)),
    ((6, 1), (1, 4)),
    ((2, 31), (70, 1)),
    ((40, 33), (17, 71)),
    ((64, 48), (128, 96)),
]


def to_tensorflow(image: Tensor):
    return tf.constant(image.detach().permute(0, 2, 3, 1).contiguous().numpy())


def from_tensorflow(image) -> Tensor:
    return torch.from_numpy(image.numpy()).permute(0, 3, 1, 2)


@pytest.mark.parametrize(("old", "new"), SIZES)
@pytest.mark.parametrize("mode", FLAGS)
def test_values_and_gradients(mode: str, old: tuple[int, int], new: tuple[int, int]) -> None:
    image = random(2, 3, *old, dtype=torch.float32)
    upstream = random(2, 3, *new, dtype=torch.float32, seed=1, requires_grad=False)
    with tf.GradientTape() as tape:
        theirs_image = to_tensorflow(image)
        tape.watch(theirs_image)
        theirs = tf.raw_ops.ResizeBilinear(images=theirs_image, size=new, **FLAGS[mode])
    theirs_grad = tape.gradient(theirs, theirs_image, to_tensorflow(upstream))
    ours = upsample_bilinear2d(image, size=new, coordinate_mode=mode)
    (ours_grad,) = torch.autograd.grad(ours, image, upstream)
    torch.testing.assert_close(ours, from_tensorflow(theirs), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours_grad, from_tensorflow(theirs_grad), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("mode", ["asymmetric", "align_corners", "tf_half_pixel"])
def test_tensorflow_1(mode: str) -> None:
    image = random(1, 2, 7, 10, dtype=torch.float32, requires_grad=False)
    theirs = tf.compat.v1.image.resize_bilinear(to_tensorflow(image), (15, 4), **FLAGS[mode])
    ours = upsample_bilinear2d(image, size=(15, 4), coordinate_mode=mode)
    torch.testing.assert_close(ours, from_tensorflow(theirs), rtol=1e-5, atol=1e-5)


def test_tensorflow_2() -> None:
    image = random(1, 2, 7, 10, dtype=torch.float32, requires_grad=False)
    theirs = tf.image.resize(to_tensorflow(image), (15, 4), method="bilinear")
    ours = upsample_bilinear2d(image, size=(15, 4), coordinate_mode="tf_half_pixel")
    torch.testing.assert_close(ours, from_tensorflow(theirs), rtol=1e-5, atol=1e-5)


def test_golden_image() -> None:
    image = torch.tensor([[64.0, 32], [32, 64], [50, 100]])[None, None]
    theirs = tf.compat.v1.image.resize_bilinear(to_tensorflow(image), (6, 4))
    ours = upsample_bilinear2d(image, size=(6, 4), coordinate_mode="asymmetric")
    assert torch.equal(ours, from_tensorflow(theirs))
