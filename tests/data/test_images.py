"""Image files as they come: any mode, any orientation tag, broken or not there."""

import warnings

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from detector.data.images import find_image, read_image, read_image_size

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


def test_transparency_is_dropped_without_a_word(tmp_path):
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


def test_images_that_are_not_there(tmp_path):
    for read in (read_image, read_image_size):
        with pytest.raises(FileNotFoundError, match=r"gone\.jpg does not exist"):
            read(tmp_path / "gone.jpg")


def test_a_file_that_is_no_image(tmp_path):
    (tmp_path / "text.jpg").write_text("not an image")
    for read in (read_image, read_image_size):
        with pytest.raises(ValueError, match=r"text\.jpg cannot be read"):
            read(tmp_path / "text.jpg")


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
