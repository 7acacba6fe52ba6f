"""Image files: from any mode that Pillow reads to uint8 RGB, and sizes from headers alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")

# What Pillow raises on files that are not, or only partly, images.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)

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
        raise ValueError(f"image {path} cannot be read: {error}") from error
