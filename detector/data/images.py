"""Reading images of any mode as uint8 RGB, and their sizes from headers alone."""

import os
import threading
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from detector.utils.errors import DataError, UserError, is_out_of_memory
from detector.utils.files import reading

VOC_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
TIFF_SUFFIXES = (".tif", ".tiff", ".TIF", ".TIFF")

# Pillow supports more formats, but some of them start another program: EPS starts Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")

ImageSource = str | Path | Image.Image | np.ndarray | Tensor

# How Pillow makes an image upright, by its EXIF orientation. From 5 on, height and width are swapped.
_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LONGEST_SIDE = 1_000_000  # pixels of an image: more in a file of annotations is a mistake

# If no value of a 16-bit image is larger, it has 12 bits. Converted, its brightest pixel would be 15 of 255.
_NEARLY_BLACK = 4095
_SUBFILE = 254  # a tag of TIFF: odd for a reduced copy of another page
_PHOTOMETRIC = 262  # another: 0 if white is zero, as in scans and radiographs
_DECODER_BYTES = 24  # per pixel, as JPEG 2000 needs: eight times the decoded pixel
_LEAST_BYTES = 2**26  # if the size is not known yet
_LIMIT = threading.Lock()  # held while Pillow's limit of pixels is off
_CONVERT = "scale its values to 0 to 255 and save it with 8 bits"


def read_image(path: str | Path, *, apply_orientation: bool = False) -> Tensor:
    """Read an image file of any mode as (3, H, W), uint8 RGB.

    Grayscale, palette, CMYK, 16-bit and floating-point images are converted, see :func:`from_pillow`; an
    alpha channel is dropped.

    Args:
        apply_orientation: rotate the image by its EXIF orientation, as a viewer does. False: the pixels as
            stored, to which the boxes of VOC and COCO refer.

    Raises:
        FileNotFoundError: the file does not exist.
        DataError: it cannot be decoded, is in none of the formats JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, JPEG
            2000 and AVIF, or would be nearly black with 8 bits.
    """
    with _opened(path) as image:
        if image.format == "PNG":
            _check_png(Path(path))
        return from_pillow(image, apply_orientation=apply_orientation)


def decoded_image(path: str | Path, *, apply_orientation: bool) -> Image.Image:
    """The whole image of a file, however large it is, decoded as 8 bits a channel, to be cut.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`; or it has more than 8 bits.
    """
    with _opened(path, limited=False) as image:
        if image.format == "PNG":
            _check_png(Path(path))
        turn = _TO_UPRIGHT.get(_orientation(image)) if apply_orientation else None
        if image.mode[0] in "IF" or ";16" in str(getattr(image, "tile", "")):
            raise DataError(f"it has the mode {image.mode}, expected 8 bits a channel: {_CONVERT}")
        with _without_limit():  # TIFF files are compared with it again
            image.load()
        return image.transpose(turn) if turn is not None else image


def _check_png(path: Path) -> None:
    """Raise a DataError if pixels of a PNG file are damaged, which Pillow 13 ignores.

    A chunk has its length, its type, its content and their CRC-32. A type in lower case marks a chunk that
    decoding does not need.
    """
    with open(path, "rb") as file:
        file.seek(8)  # the signature
        while len(head := file.read(8)) == 8:
            length, kind = int.from_bytes(head[:4], "big"), head[4:]
            found, stated = zlib.crc32(file.read(length), zlib.crc32(kind)), file.read(4)
            if len(stated) < 4:
                raise OSError("image file is truncated")
            if kind[:1].isupper() and found != int.from_bytes(stated, "big"):
                raise DataError(f"it is damaged: the checksum of its part {kind.decode('latin-1')} is wrong")
            if kind == b"IEND":
                return


def from_pillow(image: Image.Image, *, apply_orientation: bool = False) -> Tensor:
    """Image (3, H, W), uint8 RGB, of a Pillow image in any mode; see :func:`read_image`.

    16-bit values keep their upper 8 bits, as do the values of a 12-bit TIFF. Floating-point values are
    multiplied by 255 if they are all in [0, 1], and rounded if they are all in [0, 255].

    Raises:
        DataError: the image is empty; values are outside of these ranges; or all 16-bit values are less than
            4096, as those of a 12-bit camera are: the image would be nearly black.
    """
    # Contains "I;12" or "RGB;16B", for example, until pixels are read.
    raw_mode = str(getattr(image, "tile", ""))
    white_is_zero = getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0
    if 0 in image.size:
        raise DataError("the image is empty")
    if apply_orientation and (turn := _TO_UPRIGHT.get(_orientation(image))) is not None:
        image = image.transpose(turn)  # ImageOps.exif_transpose writes all tags anew, and fails if one is odd
    if image.mode == "F":
        pixels = np.stack([_from_floats(np.asarray(image))] * 3, axis=2)
    elif image.mode.startswith("I"):  # grayscale with more than 8 bits, which Pillow would clip at 255
        white = 4095 if "I;12" in raw_mode else 65535
        gray = _from_integers(np.asarray(image), white)
        # Of those with 8 bits Pillow inverts the values itself.
        pixels = np.stack([255 - gray if white_is_zero else gray] * 3, axis=2)
    elif image.mode == "P":  # via RGBA, since Pillow warns of palettes with transparency
        pixels = np.array(image.convert("RGBA").convert("RGB"))
    else:
        pixels = np.array(image.convert("RGB"))  # (H, W, 3)
        if ";16" in raw_mode and pixels.max() <= _NEARLY_BLACK >> 8:  # Pillow has dropped the lower bits
            raise _nearly_black()
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()  # (3, H, W)


def _from_integers(values: np.ndarray, white: int) -> np.ndarray:
    """(H, W) uint8 from integers (H, W) in [0, white]."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > white:
        raise DataError(f"its values are {low} to {high}, expected 0 to {white}: {_CONVERT}")
    if white > _NEARLY_BLACK >= high > 0:
        raise _nearly_black()
    return (values.astype(np.int64) * 256 // (white + 1)).astype(np.uint8)


def _from_floats(values: np.ndarray) -> np.ndarray:
    """(H, W) uint8 from numbers (H, W) that are all in [0, 1] or all in [0, 255]."""
    low, high = float(values.min()), float(values.max())  # nan if any value is
    if not (low >= 0 and high <= 255):
        raise DataError(f"its values are {low:g} to {high:g}, expected 0 to 1 or 0 to 255: {_CONVERT}")
    return (values * (255 if high <= 1 else 1)).round().astype(np.uint8)


def _nearly_black() -> DataError:
    return DataError(
        f"it has 16 bits, but no value is larger than {_NEARLY_BLACK} of 65535, so it would be nearly black "
        f"(do its values have 12 bits?): {_CONVERT}"
    )


def open_image(source: ImageSource) -> Tensor:
    """Convert an image of one of several types to (3, H, W), uint8 RGB.

    Args:
        source: the path of a file; a Pillow image; a numpy array, uint8, (H, W, 3) RGB, (H, W, 4) RGBA, whose
            last channel is dropped, or (H, W) gray; a torch tensor, uint8, (3, H, W) RGB or (1, H, W) gray.
            Files and Pillow images are rotated by their EXIF orientation. Of an animation, the first frame
            is used.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it cannot be decoded or has more pixels than Pillow allows; or the array has another dtype
            or shape, or is empty.
        TypeError: it is of another type.
    """
    if isinstance(source, (str, Path)):
        return read_image(source, apply_orientation=True)
    if isinstance(source, Image.Image):
        return from_pillow(source, apply_orientation=True)
    if isinstance(source, np.ndarray):
        expected = "a uint8 array (H, W, 3), (H, W, 4) or (H, W)"
        fits = source.ndim == 2 or (source.ndim == 3 and source.shape[2] in (1, 3, 4))
    elif isinstance(source, Tensor):
        expected = "a uint8 tensor (3, H, W) or (1, H, W)"
        fits = source.ndim == 3 and source.shape[0] in (1, 3)
    else:
        raise TypeError(
            f"image is a {type(source).__name__}, expected a path, a Pillow image, a numpy array or a "
            "tensor; several images are a list or tuple of these"
        )
    if not fits or source.dtype not in (np.uint8, torch.uint8) or 0 in source.shape:
        raise DataError(f"image is {source.dtype} {tuple(source.shape)}, expected {expected}, not empty")
    if isinstance(source, np.ndarray):
        rgb = source[:, :, None] if source.ndim == 2 else source[:, :, :3]
        # Copied, since torch does not support negative strides, such as those of image[:, :, ::-1].
        source = torch.from_numpy(np.array(rgb)).permute(2, 0, 1)
    return source.detach().cpu().expand(3, -1, -1).contiguous()  # (3, H, W)


def read_image_size(path: str | Path, *, apply_orientation: bool = False) -> tuple[int, int]:
    """(height, width) of :func:`read_image`'s image, from the file's header alone: 0.05 ms.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`, where the header shows it.
    """
    with _opened(path, limited=False) as image:
        width, height = image.size
        return (width, height) if apply_orientation and _orientation(image) >= 5 else (height, width)


def read_size_and_orientation(path: str | Path) -> tuple[tuple[int, int], int]:
    """(height, width) of the pixels as stored, and :func:`read_orientation`, in one reading of the header.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`, where the header shows it.
    """
    with _opened(path, limited=False) as image:
        width, height = image.size
        return (height, width), _orientation(image)


def read_orientation(path: str | Path) -> int:
    """The EXIF orientation, 1 to 8, by which a viewer turns the image; 1 if it does not.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`, where the header shows it.
    """
    with _opened(path, limited=False) as image:
        return _orientation(image)


def count_pages(path: str | Path) -> int:
    """The pages of a TIFF file, or the frames of an animation, of which :func:`read_image` reads the first.

    Reduced copies of a page, and those that a camera adds to a JPEG file, do not count.

    Raises:
        FileNotFoundError, DataError: as :func:`read_image`, where the headers show it.
    """
    with _opened(path, limited=False) as image:
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
        if image.format != "TIFF" or frames == 1:
            return frames
        copies = 0
        for frame in range(1, frames):
            image.seek(frame)
            copies += image.tag_v2.get(_SUBFILE, 0) & 1  # type: ignore[attr-defined]
        return frames - copies


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":
        return 1  # Pillow turns TIFF files itself
    try:
        found = image.getexif().get(ExifTags.Base.Orientation)
        return int(found) if found in _TO_UPRIGHT else 1
    except Exception:  # of many kinds, if tags are damaged; the pixels need none of them
        return 1


def find_image(folder: str | Path, image_id: str) -> Path:
    """The file of an image in a folder, with any of VOC_SUFFIXES or TIFF_SUFFIXES.

    Raises:
        FileNotFoundError: there is none.
    """
    suffixes = *VOC_SUFFIXES, *TIFF_SUFFIXES
    for suffix in suffixes:
        path = in_any_form(Path(folder, f"{image_id}{suffix}"))
        if path.is_file():
            return path
    raise FileNotFoundError(f"image {Path(folder, image_id)} does not exist, as any of {', '.join(suffixes)}")


def in_any_form(path: Path) -> Path:
    """A path, or the file of that name in another Unicode form: "é" is one character, or two as on macOS."""
    if str(path).isascii() or os.path.exists(path):
        return path
    folder = in_any_form(path.parent)
    forms = (folder / unicodedata.normalize(form, path.name) for form in ("NFC", "NFD"))
    return next((form for form in forms if os.path.exists(form)), path)  # False of a name that is too long


@contextmanager
def _opened(path: str | Path, *, limited: bool = True) -> Iterator[Image.Image]:
    """Open an image and read its header; all errors, also of the block, name the file.

    Args:
        limited: refuse an image with more pixels than Pillow allows, which may be an attack.
    """
    with reading(path, "image"):
        size = 0, 0
        try:
            with _open_header(path, limited) as image:
                size = image.size
                yield image
        except UserError:
            raise
        except Exception as error:  # decoders raise many kinds
            # Without enough memory a decoder may call a valid picture broken.
            if (lacks := is_out_of_memory(error)) or not _can_allocate(_DECODER_BYTES * size[0] * size[1]):
                told = f"{str(error).strip() or type(error).__name__}{'' if lacks else ', or it is damaged'}"
                raise MemoryError(f"too little memory to read image {path} ({told})") from error
            if isinstance(error, UnidentifiedImageError):
                if Path(path).stat().st_size == 0:
                    error = DataError("the file is empty; copy it again")
                else:
                    error = DataError(
                        f"it is in none of the formats {', '.join(_FORMATS)}, or of a kind that Pillow does "
                        f"not read; it begins with {_first_bytes(path)}"
                    )
            if isinstance(error, (OSError, SyntaxError, Image.DecompressionBombError, DataError)):
                raise DataError(f"image {path} cannot be read: {error}") from error
            raise


def _first_bytes(path: str | Path) -> str:
    """The first bytes of a file, which tell what it is: a page of an error, a pointer of Git LFS, a TIFF."""
    with open(path, "rb") as file:
        return repr(file.read(40))[1:]


def _open_header(path: str | Path, limited: bool) -> Image.Image:
    with _LIMIT if limited else _without_limit():
        return Image.open(path, formats=_FORMATS)


@contextmanager
def _without_limit() -> Iterator[None]:
    """Let Pillow read images of any size; meanwhile other threads do not open any."""
    with _LIMIT:  # Pillow has one limit for the whole process
        most = Image.MAX_IMAGE_PIXELS
        try:
            Image.MAX_IMAGE_PIXELS = None
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = most


def _can_allocate(count: int) -> bool:
    """Whether a decoder has enough memory.

    With too little, those of WebP, JPEG 2000, TIFF, AVIF and progressive JPEG report a broken picture.
    """
    try:
        np.empty(max(count, _LEAST_BYTES), dtype=np.uint8)
    except MemoryError:
        return False
    return True
