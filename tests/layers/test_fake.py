"""All ops raise if their tensors are on several devices, including the meta device."""

from collections.abc import Callable

import pytest
import torch
from op_samples import NAMES, op_arguments
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from detector import _C
from detector.layers import assign_to_seeds, nms, pcl_loss_compat, proposal_clusters, roi_pool


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


@pytest.mark.parametrize("name", NAMES)
def test_mixed_meta_and_real_tensors_raise(name: str, device: torch.device) -> None:
    if name == "selective_search" and device.type != "cpu":
        pytest.skip("runs on the CPU only")
    arguments = moved(op_arguments(name)[0], device)
    getattr(_C, name)(*arguments)  # valid
    assert_mixed_devices_raise(name, arguments, "meta")


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("nms", "selective_search")]
)  # the size of their outputs depends on values
def test_meta_tensors_give_meta_tensors(name: str) -> None:
    outputs = getattr(_C, name)(*moved(op_arguments(name)[0], "meta"))
    assert all(output.is_meta for output in (outputs if isinstance(outputs, tuple) else [outputs]))


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_cuda_mixed_devices_raise(name: str) -> None:
    assert_mixed_devices_raise(name, moved(op_arguments(name)[0], "cuda"), "cpu")


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
