"""detector.utils.torch_file: files of torch.save, and the search for NaN."""

import math
import pickle
import zipfile
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


def nested(depth, step):
    value = [1.0]
    for _ in range(depth):
        value = step(value)
    return value


def cycle():
    value = {}
    value["own"] = value
    return value


def views():
    values = torch.ones(100_000)
    return [values[i:] for i in range(20)]


class Code:
    def __reduce__(self):
        return print, ("code runs",)


@pytest.mark.filterwarnings("ignore:Validating sparse")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (nested(200, lambda value: [value, value]), "lists more than 32 deep in one another"),
        (nested(25, lambda value: [value, value]), "more than 200000 values"),
        (nested(100, lambda value: (value,)), "lists more than 32 deep"),
        (cycle(), "lists more than 32 deep"),
        (list(range(200_001)), "more than 200000 values"),
        (torch.ones(1).expand(10**10), "other is a view that repeats values"),
        (torch.ones(100).as_strided((10**6, 50), (0, 1)), "other is a view that repeats values"),
        (views(), "its tensors would have .* bytes or more, but the file has"),
        (torch.eye(3).to_sparse(), "other is a sparse or nested tensor, expected a dense"),
        (torch.empty(3, device="meta"), "other has no values"),
        (torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "other is a tensor of torch.bits8"),
        (Code(), "it refers to print; expected tensors and plain values alone. Nothing in it has run"),
    ],
)
def test_what_no_weights_need_is_refused_at_once(tmp_path, capsys, value, message):
    path = tmp_path / "a.pt"
    torch.save({"model": {"a": torch.ones(2)}, "other": value}, path)
    with pytest.raises(DataError, match=rf"checkpoint .*a\.pt is damaged.*: .*{message}") as caught:
        read_torch_file(path, "checkpoint")
    assert "weights_only" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "code runs" not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage")
def test_a_quantized_tensor_is_refused(tmp_path):
    torch.save({"a": torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)}, tmp_path / "a.pt")
    with pytest.raises(DataError, match=r"a\.pt is damaged: a is a quantized tensor"):
        read_torch_file(tmp_path / "a.pt", "checkpoint")


@pytest.mark.parametrize("opcodes", [b"]" * 100_000 + b"a" * 99_999, b"(" * 100_000 + b"t" * 100_000])
def test_lists_that_python_cannot_write_are_refused(tmp_path, opcodes):
    path = tmp_path / "a.pt"
    torch.save([], path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, pickle.PROTO + b"\2" + opcodes + b"." if "data.pkl" in name else content)
    with pytest.raises(DataError, match=r"checkpoint .*a\.pt is damaged: it holds .* deep in one another"):
        read_torch_file(path, "checkpoint")


def test_shared_weights_and_lists_are_fine(tmp_path):
    values, numbers = torch.ones(1000), (0.9, 0.999)
    content = {"a": values, "b": values, "groups": [{"betas": numbers}, {"betas": numbers}]}
    torch.save(content, tmp_path / "a.pt")
    assert read_torch_file(tmp_path / "a.pt", "checkpoint")["groups"] == content["groups"]
