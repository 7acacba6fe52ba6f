"""All ops raise if their tensors are on several devices, including the meta device."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from detector import _C
from detector.layers import assign_to_seeds, nms, pcl_loss_compat, proposal_clusters, roi_pool

ONES = (1, 1)
PAIRS = (ONES, (0, 0), ONES)  # stride, padding, dilation


def make_arguments() -> dict[str, tuple]:
    """Valid arguments of every op, on the CPU."""
    rows, labels = torch.full((6, 3), 0.2), torch.tensor([1, 0, 2, 0, 1, 2])
    counts = torch.tensor([4, 2])
    boxes = torch.tensor([[0.0, 1, 1, 5, 6]]).repeat(6, 1)
    images, pooled = torch.rand(2, 3, 7, 8), torch.rand(6, 3, 2, 2)
    rotated = torch.tensor([[0.0, 2, 3, 4, 5, 30]]).repeat(6, 1)
    filters = torch.rand(3, 1, 3, 3)
    small = torch.rand(2, 3, 5, 6)  # output of the convolution
    options = (0, 0.4, 5, 0.15, 0.5, 0.1, 0.0, 0.0)
    lltm_inputs = (torch.rand(2, 5), torch.rand(9, 8), torch.rand(9), torch.rand(2, 3), torch.rand(2, 3))
    _, c, _, gates, xh = _C.lltm_forward(*lltm_inputs)
    return {
        "pcl_loss_forward": (rows, labels, rows[:, 0], labels - 1, counts),
        "pcl_loss_backward": (torch.rand(2), rows, labels, rows[:, 0], counts),
        "proposal_clusters": (boxes[:, 1:], rows[None], torch.ones(2, 3), counts, *options),
        "selective_search": ([torch.zeros(3, 4, 5, dtype=torch.uint8)], [0, 50, 15], 20, 0, 0),
        "nms": (boxes[:, 1:], rows[:, 0], labels, 0.5),
        "nms_mask": (boxes[:, 1:], rows[:, 0], labels, 0.5),
        "nms_rotated": (boxes, labels, 0.5),
        "soft_nms": (boxes[:, 1:], rows[:, 0], torch.tensor([0, 6]), True, 0.5, 0.1),
        "quick_gelu_forward": (rows,),
        "quick_gelu_backward": (rows, rows),
        "upsample_bilinear2d_forward": (images, 9, 9, 0, 0.0, 0.0),
        "upsample_bilinear2d_backward": (images, 9, 9, 0, 0.0, 0.0),
        "trilinear_interpolate_forward": (torch.rand(4, 8, 2), torch.rand(4, 3)),
        "trilinear_interpolate_backward": (torch.rand(4, 2), torch.rand(4, 3), torch.rand(4, 8, 2), True),
        "lltm_forward": lltm_inputs,
        "lltm_backward": (c, c, *lltm_inputs[1:3], c, gates, xh, *[True] * 4),
        "roi_pool_forward": (images, boxes, 2, 2, 1.0),
        "roi_pool_backward": (pooled, pooled.int(), boxes, 2, 7, 8, 1.0),
        "roi_align_forward": (images, boxes, 2, 2, 1.0, 2, True, False),
        "roi_align_backward": (pooled, boxes, 2, 7, 8, 1.0, 2, True, False),
        "roi_align_rotated_forward": (images, rotated, 2, 2, 1.0, 2),
        "roi_align_rotated_backward": (pooled, rotated, 2, 7, 8, 1.0, 2),
        "depthwise_conv2d_forward": (images, filters, torch.rand(3), *PAIRS),
        "depthwise_conv2d_grad_input": (small, filters, 3, (7, 8), *PAIRS),
        "depthwise_conv2d_grad_weight": (images, small, (3, 3), *PAIRS),
    }


OPS = sorted(name for name, op in vars(_C).items() if isinstance(op, torch._ops.OpOverloadPacket))


def moved(arguments: tuple, device: str) -> tuple:
    return tree_map_only(Tensor, lambda a: a.to(device), arguments)


def assert_mixed_devices_raise(name: str, arguments: tuple, device: str) -> None:
    """Move one tensor at a time to another device."""
    places = [i for i, argument in enumerate(arguments) if isinstance(argument, Tensor)]
    names = [argument.name for argument in getattr(_C, name).default._schema.arguments]
    for place in places if len(places) > 1 else []:
        if device == "cpu" and names[place] == "counts" and name == "proposal_clusters":
            continue  # allowed on the CPU
        mixed = list(arguments)
        mixed[place] = mixed[place].to(device)
        with pytest.raises(RuntimeError, match=r" is on (cpu|meta|cuda).*, but .* is on (cpu|meta|cuda)"):
            getattr(_C, name)(*mixed)


@pytest.mark.parametrize("name", OPS)
def test_mixed_meta_and_real_tensors_raise(name: str, device: torch.device) -> None:
    if name == "selective_search" and device.type != "cpu":
        pytest.skip("runs on the CPU only")
    arguments = moved(make_arguments()[name], device)
    getattr(_C, name)(*arguments)  # valid
    assert_mixed_devices_raise(name, arguments, "meta")


@pytest.mark.parametrize(
    "name", [name for name in OPS if name not in ("nms", "selective_search")]
)  # the size of their outputs depends on values
def test_meta_tensors_give_meta_tensors(name: str) -> None:
    outputs = getattr(_C, name)(*moved(make_arguments()[name], "meta"))
    assert all(output.is_meta for output in (outputs if isinstance(outputs, tuple) else [outputs]))


@pytest.mark.cuda
@pytest.mark.parametrize("name", OPS)
def test_cuda_mixed_devices_raise(name: str) -> None:
    assert_mixed_devices_raise(name, moved(make_arguments()[name], "cuda"), "cpu")


BOXES, SCORES = torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([0.5])
MIXED: dict[str, Callable[[], object]] = {
    "roi_pool": lambda: roi_pool(torch.rand(1, 1, 3, 3), [BOXES.to("meta")], 2),
    "roi_pool, input": lambda: roi_pool(torch.rand(1, 1, 3, 3, device="meta"), [BOXES], 2),
    "nms": lambda: nms(BOXES, SCORES.to("meta"), 0.5),
    "proposal_clusters": lambda: proposal_clusters(
        BOXES, SCORES[None].to("meta"), torch.ones(1, 1), torch.tensor([1]), method="pcl"
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_public_functions_raise_too(name: str) -> None:
    with pytest.raises(RuntimeError, match="is on"):
        MIXED[name]()


def test_values_of_fake_tensors_are_not_checked() -> None:
    with FakeTensorMode():
        ones, rows = torch.ones(2), torch.tensor([0, 1])
        loss = pcl_loss_compat(torch.ones(2, 3), ones, ones, rows, *[ones] * 4, torch.ones(3))
        assert loss.shape == ()
        assert assign_to_seeds(torch.ones(5, 4), rows, rows, ones).labels.shape == (5,)
