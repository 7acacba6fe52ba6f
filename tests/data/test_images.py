"""Image files as they come: any mode, any orientation tag, broken or not there."""

import io
import os
import struct
import subprocess
import sys
import warnings

import cv2
import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, TiffImagePlugin

from detector.data.images import count_pages, find_image, in_any_form, read_image, read_image_size
from detector.utils.errors import DataError

RAMP = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK", "LA"])
def test_any_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.fromarray(RAMP).convert("RGB").convert(mode).save(path)
    image = read_image(path)
    assert image.shape == (3, 4, 6)
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    if mode in ("L", "RGBA", "CMYK", "LA"):
        assert torch.equal(image, torch.from_numpy(RAMP).expand(3, 4, 6))


def test_16_bit_images_keep_their_upper_bits(tmp_path):
    levels = np.array([[0, 256, 40000, 65535]], dtype=np.uint16)
    Image.fromarray(levels).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").tolist() == [[[0, 1, 156, 255]]] * 3


def test_transparency_is_dropped_without_a_warning(tmp_path):
    picture = Image.fromarray(RAMP).convert("RGB")
    picture.convert("P").save(tmp_path / "palette.png", transparency=bytes(range(0, 250, 10)))
    half = Image.fromarray(np.dstack([RAMP] * 3 + [np.full_like(RAMP, 128)]))
    half.save(tmp_path / "alpha.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opaque = read_image(tmp_path / "palette.png")
        assert torch.equal(read_image(tmp_path / "alpha.png"), torch.from_numpy(RAMP).expand(3, 4, 6))
    picture.convert("P").save(tmp_path / "palette.png")
    assert torch.equal(read_image(tmp_path / "palette.png"), opaque)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_only_when_asked_for(tmp_path, orientation):
    path = tmp_path / "image.png"
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(RAMP).save(path, exif=exif)
    stored = torch.from_numpy(RAMP)  # (4, 6)
    # Where row 0 and column 0 of the stored image are shown, as the EXIF standard lists it.
    shown = {
        1: stored,
        2: stored.flip(1),
        3: stored.flip(0, 1),
        4: stored.flip(0),
        5: stored.t(),
        6: stored.flip(0).t(),
        7: stored.flip(0, 1).t(),
        8: stored.flip(1).t(),
    }[orientation]
    assert torch.equal(read_image(path)[0], stored)
    assert torch.equal(read_image(path, apply_orientation=True)[0], shown)
    assert read_image_size(path) == (4, 6)
    assert read_image_size(path, apply_orientation=True) == tuple(shown.shape)


@pytest.mark.parametrize(("height", "width"), [(1, 50), (50, 1), (1, 1)])
def test_an_image_one_pixel_high_or_wide(tmp_path, height, width):
    Image.new("RGB", (width, height), "red").save(tmp_path / "line.jpg")
    assert read_image(tmp_path / "line.jpg").shape == (3, height, width)
    assert read_image_size(tmp_path / "line.jpg") == (height, width)


def other_format(form):
    Image.new("RGB", (6, 4)).save(file := io.BytesIO(), format=form)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"not an image", "cannot be read: .* it begins with 'not an image'"),
        (b"", "cannot be read: the file is empty; copy it again"),  # as an interrupted copy leaves it
        *((other_format(form), "cannot be read: .*none of the formats JPEG, PNG") for form in ("EPS", "PDF")),
    ],
    ids=["none", "words", "empty", "eps", "pdf"],
)
def test_what_is_no_picture_is_named_and_no_other_program_is_started_for_it(tmp_path, content, message):
    if content is not None:
        (tmp_path / "cat.jpg").write_bytes(content)
    for read in (read_image, read_image_size):
        with pytest.raises((DataError, FileNotFoundError), match=rf"cat\.jpg {message}"):
            read(tmp_path / "cat.jpg")


def test_gray_with_16_bits_of_which_the_least_is_white(tmp_path):
    """As radiographs are stored: Pillow inverts only those with 8 bits."""
    values = np.array([[0, 65535, 0x8000]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.tif", tiffinfo={262: 0})
    for turned in (False, True):
        assert read_image(tmp_path / "a.tif", apply_orientation=turned)[0].tolist() == [[255, 0, 127]]


def test_pages_and_frames_but_no_copies_are_counted(tmp_path):
    first, second = (Image.new("RGB", (8, 6), color) for color in ("white", "black"))
    for suffix, pages in {"tif": 2, "gif": 2, "webp": 2, "png": 2, "mpo": 1}.items():
        first.save(tmp_path / f"a.{suffix}", save_all=True, append_images=[second])
        assert count_pages(tmp_path / f"a.{suffix}") == pages
        assert read_image(tmp_path / f"a.{suffix}").float().mean() > 250  # of the first
    with TiffImagePlugin.AppendingTiffWriter(tmp_path / "b.tif", True) as file:
        for picture, copy in ((first, 0), (second.resize((4, 3)), 1)):
            picture.save(file, format="TIFF", tiffinfo={254: copy})
            file.newFrame()
    assert count_pages(tmp_path / "b.tif") == 1
    first.save(tmp_path / "c.jpg")
    assert count_pages(tmp_path / "c.jpg") == 1


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_truncated_image(tmp_path, suffix):
    path = tmp_path / f"image{suffix}"
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[:3000])
    assert read_image_size(path) == (200, 200)  # its header is whole
    with pytest.raises(ValueError, match=rf"image{suffix} cannot be read: .*truncated"):
        read_image(path)


def test_finding_an_image_by_its_id(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("a.PNG", "b.c.jpeg", "below/a.jpg"):
        (tmp_path / name).touch()
    for image_id, name in {"a": "a.PNG", "b.c": "b.c.jpeg", "below/a": "below/a.jpg"}.items():
        assert find_image(tmp_path, image_id) == tmp_path / name
    with pytest.raises(FileNotFoundError, match=r"b does not exist, as any of \.jpg"):
        find_image(tmp_path, "b")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000"])
def test_formats(tmp_path, form):
    Image.new("RGB", (6, 4), "white").save(tmp_path / "image", format=form)
    assert read_image(tmp_path / "image").min() >= 250


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "cat.jpg")  # opening it would block forever
    with pytest.raises(DataError, match=r"image .*cat\.jpg is not a regular file"):
        read_image_size(tmp_path / "cat.jpg")


def test_decompression_bombs_are_refused(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30_000)
    with pytest.raises(DataError, match=r"bomb\.png cannot be read: .*exceeds limit"):
        read_image(tmp_path / "bomb.png")
    assert read_image_size(tmp_path / "bomb.png") == (300, 300)  # which the header says


def tiff_12_bits(values):
    """A TIFF of one row of four pixels, which Pillow cannot write."""
    data = int("".join(f"{value:012b}" for value in values), 2).to_bytes(6, "big")
    tags = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 6}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 14) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_a_tiff_of_12_bits_keeps_its_upper_bits(tmp_path):
    (tmp_path / "image.tif").write_bytes(tiff_12_bits([0, 16, 2048, 4095]))
    assert read_image(tmp_path / "image.tif").tolist() == [[[0, 1, 128, 255]]] * 3


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
def test_12_bit_values_in_a_file_of_16_bits_do_not_turn_black(tmp_path, suffix, shape):
    path = tmp_path / f"image{suffix}"
    cv2.imwrite(str(path), np.full(shape, 4095, dtype=np.uint16))
    with pytest.raises(DataError, match=rf"image{suffix}: .*nearly black.* save it with 8 bits"):
        read_image(path, apply_orientation=True)
    cv2.imwrite(str(path), np.full(shape, 4096, dtype=np.uint16))
    assert read_image(path).unique().tolist() == [16]


def test_an_image_of_16_bits_may_be_black(tmp_path):
    Image.fromarray(np.zeros((4, 6), dtype=np.uint16)).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").max() == 0


@pytest.mark.parametrize(
    ("values", "expected"), [([0, 0.5, 1], [0, 128, 255]), ([0, 0.5, 254.7], [0, 0, 255])]
)
def test_floats_are_those_of_0_to_1_or_of_0_to_255(tmp_path, values, expected):
    Image.fromarray(np.array([values], dtype=np.float32)).save(tmp_path / "image.tif")
    assert read_image(tmp_path / "image.tif")[0].tolist() == [expected]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        *(
            (values, np.float32, "expected 0 to 1 or 0 to 255")
            for values in ([-1.0, 1], [0, 300.0], [0, np.nan])
        ),
        *(([9000, value], np.int32, rf"{value}.* expected 0 to 65535") for value in (-1, 70_000)),
    ],
)
def test_other_floats_and_integers_are_refused(tmp_path, values, kind, message):
    Image.fromarray(np.array([values], dtype=kind)).save(tmp_path / "image.tif")
    with pytest.raises(DataError, match=rf"image\.tif: .*{message}"):
        read_image(tmp_path / "image.tif")


READ_WITH_LITTLE_MEMORY = """
import os, re, resource, sys
from detector.data.images import read_image
for large, small in zip(sys.argv[1::2], sys.argv[2::2]):
    read_image(small)  # loads the decoder
    for extra in range(0, 24, 2):
        child = os.fork()
        if child == 0:
            used = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1])
            resource.setrlimit(resource.RLIMIT_AS, (used + (extra << 20),) * 2)
            try:
                read_image(large)
            except MemoryError as error:
                os._exit(3 if str(error).startswith("too little memory to read image") else 5)
            except BaseException as error:
                os.write(1, f"{large}: {error}".encode())
                os._exit(4)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_picture_is_not_called_damaged_where_memory_is_short(tmp_path):
    """One process for all formats, as starting it takes seconds."""
    noise = np.random.default_rng(0).integers(0, 255, (1500, 1500, 3), dtype=np.uint8)
    words = [sys.executable, "-c", READ_WITH_LITTLE_MEMORY]
    for number, (suffix, options) in enumerate(
        [
            (".jpg", {}),
            (".jpg", {"progressive": True}),
            (".png", {"compress_level": 0}),
            (".webp", {"method": 0}),
            (".jp2", {}),
            (".tiff", {"compression": "tiff_lzw"}),
        ]
    ):
        for size, side in (("large", 1500), ("small", 8)):
            path = tmp_path / f"{size}{number}{suffix}"
            Image.fromarray(noise[:side, :side]).save(path, **options)
            words.append(path)
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
    assert {*found} - {"0", ""} == {"3"}


@pytest.mark.parametrize("start", [b"IDAT", b"PLTE"])
def test_a_png_file_with_other_pixels_than_were_written_is_damaged(tmp_path, start):
    """Also where the decoder has all that it wants, as of one color."""
    path = tmp_path / "image.png"
    Image.new("P", (64, 48), 1).save(path)
    content = bytearray(path.read_bytes())
    for place in range(content.index(start) + 4, content.index(start) + 12):
        changed = content.copy()
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"image\.png.*(damaged|cannot be read)"):
            read_image(path)


def test_a_name_that_is_too_long_in_another_unicode_form_does_not_exist(tmp_path):
    path = tmp_path / ("ü" * 120 + ".png")
    assert in_any_form(path) == path
