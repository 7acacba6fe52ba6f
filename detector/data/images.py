"""Image files: from any mode that Pillow reads to uint8 RGB, and sizes from headers alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from detector.utils.errors import DataError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")

# What Pillow raises on files that are not, or only partly, images.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)

ImageSource = str | Path | Image.Image | np.ndarray | Tensor

_TURNED = (5, 6, 7, 8)  # the orientation tags that exchange height and width


def read_image(path: str | Path, *, apply_orientation: bool = False) -> Tensor:
    """Image (3, H, W), uint8 RGB, of a file in any mode.

    Grey, palette, CMYK and 16-bit images are converted; an alpha channel is dropped, as everywhere in the
    field.

    Args:
        apply_orientation: turn the image as its EXIF orientation tag says, as a viewer does. False: the
            pixels as they are stored, which is what the boxes of VOC and COCO files are given on.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be decoded, as when it is truncated.
    """
    with _opened(path) as image:
        return from_pillow(image, apply_orientation=apply_orientation)


def from_pillow(image: Image.Image, *, apply_orientation: bool = False) -> Tensor:
    """Image (3, H, W), uint8 RGB, of a Pillow image in any mode; see :func:`read_image`."""
    if apply_orientation:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip at 255
        grey = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)  # (H, W)
        pixels = np.stack([grey] * 3, axis=2)
    elif image.mode == "P":  # by way of RGBA: Pillow warns of palettes with transparency otherwise
        pixels = np.array(image.convert("RGBA").convert("RGB"))
    else:
        pixels = np.array(image.convert("RGB"))  # (H, W, 3)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()  # (3, H, W)


def open_image(source: ImageSource) -> Tensor:
    """Image (3, H, W), uint8 RGB, of whatever one has at hand.

    Args:
        source: the path of a file; a Pillow image; a numpy array, uint8, (H, W, 3) RGB, (H, W, 4) RGBA, whose
            last channel is dropped, or (H, W) grey; a torch tensor, uint8, (3, H, W) RGB or (1, H, W) grey.
            Files and Pillow images are turned as their EXIF orientation says, as a viewer does. Of an
            animation it is the first frame.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be decoded, has more pixels than Pillow lets files have, or an array is of
            another type or shape, or empty.
        TypeError: it is none of these.
    """
    if isinstance(source, (str, Path)):
        return read_image(source, apply_orientation=True)
    if isinstance(source, Image.Image):
        return from_pillow(source, apply_orientation=True)
    if isinstance(source, np.ndarray):
        expected = "a uint8 array (H, W, 3), (H, W, 4) or (H, W)"
        fits = source.ndim == 2 or (source.ndim == 3 and source.shape[2] in (1, 3, 4))
        dtype, shape, pixels = source.dtype, source.shape, source
        right_type = source.dtype == np.uint8
    elif isinstance(source, Tensor):
        expected = "a uint8 tensor (3, H, W) or (1, H, W)"
        fits = source.ndim == 3 and source.shape[0] in (1, 3)
        dtype, shape, pixels = source.dtype, tuple(source.shape), source
        right_type = source.dtype == torch.uint8
    else:
        raise TypeError(
            f"image is a {type(source).__name__}, expected a path, a Pillow image, a numpy array or a tensor"
        )
    if not (right_type and fits and 0 not in shape):
        raise DataError(f"image is {dtype} {shape}, expected {expected}, not empty")
    if isinstance(pixels, np.ndarray):
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels[:, :, :3]
        # Copied: torch takes no arrays of negative strides, such as image[:, :, ::-1].
        pixels = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)
    return pixels.detach().cpu().expand(3, -1, -1).contiguous()  # (3, H, W)


def read_image_size(path: str | Path, *, apply_orientation: bool = False) -> tuple[int, int]:
    """(height, width) of :func:`read_image`'s image, from the file's header alone: 0.05 ms.

    Raises:
        FileNotFoundError, ValueError: as :func:`read_image`, where the header shows it.
    """
    with _opened(path) as image:
        width, height = image.size
        if apply_orientation and image.getexif().get(ExifTags.Base.Orientation) in _TURNED:
            return width, height
        return height, width


def find_image(folder: str | Path, image_id: str) -> Path:
    """The file of an image in a folder, whichever of the suffixes it has.

    Raises:
        FileNotFoundError: there is none.
    """
    for suffix in IMAGE_SUFFIXES:
        path = Path(folder, f"{image_id}{suffix}")
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"image {Path(folder, image_id)} does not exist, as any of {', '.join(IMAGE_SUFFIXES)}"
    )


@contextmanager
def _opened(path: str | Path) -> Iterator[Image.Image]:
    """An image whose header has been read; whatever goes wrong with it names the file."""
    try:
        with Image.open(path) as image:
            yield image
    except FileNotFoundError:
        raise FileNotFoundError(f"image {path} does not exist") from None
    except _DECODE_ERRORS as error:
        raise DataError(f"image {path} cannot be read: {error}") from error
