"""detector.utils.torch_file: files of torch.save, and the search for NaN."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from detector.utils.errors import DataError
from detector.utils.torch_file import non_finite, read_torch_file


@dataclass(frozen=True)
class Pair:
    first: Tensor
    second: Tensor | None = None


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"a": torch.ones(2), "b": [torch.tensor([1, 2]), "nan", None, 1.0, True]}, None),
        ({"a": torch.ones(2), "b": [0.0, torch.tensor([1.0, math.nan])]}, "b.1"),
        ({"a": {3: (0.0, -math.inf)}}, "a.3.1"),
        (Pair(torch.ones(2), torch.full((2,), math.inf)), "second"),
        (Pair(torch.ones(2)), None),
        ({"a": torch.empty(0), "b": torch.tensor(math.nan, dtype=torch.float16)}, "b"),
    ],
)
def test_the_first_value_that_is_not_finite_is_named(content, name):
    assert non_finite(content) == name
    assert non_finite([content]) == (None if name is None else f"0.{name}")


def test_a_byte_that_changed_is_noticed(tmp_path):
    path, values = tmp_path / "a.pt", torch.arange(50.0)
    torch.save({"a": values}, path)
    assert read_torch_file(path, "checkpoint")["a"].equal(values)
    data = bytearray(path.read_bytes())
    data[data.index(values.numpy().tobytes()) + 99] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=r"checkpoint .*a\.pt is damaged or of another format: the checksum of"
    ):
        read_torch_file(path, "checkpoint")
