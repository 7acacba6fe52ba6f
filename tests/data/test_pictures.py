"""data/pictures.py: files, folders and videos by name."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from detector.data.pictures import count_frames, find_pictures, nearest_picture, video_frames
from detector.utils.errors import DataError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folders_are_searched_and_files_taken_as_they_are(tmp_path):
    folder, found = tmp_path / "in", tmp_path / "in" / "found"
    touch(folder / "b.JPG", folder / "deep" / "a.tiff", folder / "notes.txt", found / "b.jpg")
    touch(folder / "._b.JPG", tmp_path / "scan")
    names = find_pictures([folder, tmp_path / "scan"], outside=found)
    assert names == {
        "b.JPG": folder / "b.JPG",
        "deep/a.tiff": folder / "deep" / "a.tiff",
        "scan": tmp_path / "scan",
    }


def test_hidden_folders_and_files_that_are_no_images_are_left_out(tmp_path):
    touch(tmp_path / "a.avif", tmp_path / ".thumbnails" / "a.jpg", tmp_path / "Thumbs.db")
    touch(tmp_path / "deep" / "b.HEIC", tmp_path / "deep" / "c.heic", tmp_path / "clip.mp4")
    touch(tmp_path / "deep" / "@eaDir" / "b.jpg" / "SYNOPHOTO_THUMB_M.jpg", tmp_path / "#recycle" / "c.jpg")
    touch(tmp_path / "a.HEIC", tmp_path / "a.mov")  # converted already; filmed with the picture
    with pytest.warns(UserWarning, match=r"that are not read: 2 \.heic, 1 \.mp4; convert"):
        assert list(find_pictures([tmp_path])) == ["a.avif"]


def test_linked_folders_are_searched_once(tmp_path):
    touch(tmp_path / "elsewhere" / "a.jpg", tmp_path / "in" / "deep" / "b.jpg")
    (tmp_path / "in" / "cats").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "deep" / "up").symlink_to(tmp_path / "in")
    assert list(find_pictures([tmp_path / "in"])) == ["cats/a.jpg", "deep/b.jpg"]


def test_folders_that_link_to_one_another_have_an_end(tmp_path):
    names = [f"f{number}" for number in range(14)]
    touch(*(tmp_path / "in" / name / "a.jpg" for name in names), tmp_path / "out" / "deep" / "b.jpg")
    for name in names:
        for other in names:
            (tmp_path / "in" / name / f"to_{other}").symlink_to(tmp_path / "in" / other)
    (tmp_path / "in" / "one").symlink_to(tmp_path / "out" / "deep")
    (tmp_path / "in" / "two").symlink_to(tmp_path / "out")  # has deep, which is searched by then
    (tmp_path / "out" / "back").symlink_to(tmp_path / "in")
    found = find_pictures([tmp_path / "in"])
    assert list(found) == sorted([*(f"{name}/a.jpg" for name in names), "one/b.jpg"])


def test_a_file_with_several_names_is_read_once(tmp_path):
    touch(tmp_path / "in" / "m.jpg", tmp_path / "in" / "z.jpg", tmp_path / "out" / "b.jpg")
    (tmp_path / "in" / "a.jpg").symlink_to("z.jpg")  # what is no link has the name
    (tmp_path / "in" / "n.jpg").hardlink_to(tmp_path / "in" / "m.jpg")
    for name in ("x", "y"):
        (tmp_path / "in" / f"{name}.jpg").symlink_to(tmp_path / "out" / "b.jpg")
    with pytest.warns(
        UserWarning, match=r"^3 pictures are links to another .*: \S*a\.jpg \(is \S*z\.jpg\), "
    ):
        assert list(find_pictures([tmp_path / "in"])) == ["m.jpg", "x.jpg", "z.jpg"]


def test_what_cannot_be_named_apart_or_is_not_there(tmp_path):
    touch(tmp_path / "a" / "x.jpg", tmp_path / "b" / "x.png")
    with pytest.raises(ValueError, match=r"x\.jpg and .*x\.png"):
        find_pictures([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        find_pictures([tmp_path / "nowhere"])
    with pytest.raises(
        FileNotFoundError, match=r"^http://example\.org/a\.jpg is an address, expected a local file"
    ):
        find_pictures([Path("http://example.org/a.jpg")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no images in .*empty: looked for \.jpg"):
        find_pictures([tmp_path / "empty"])
    with pytest.raises(ValueError, match=r"a/x\.jpg is given more than once"):
        find_pictures([tmp_path / "a", tmp_path / "a" / "x.jpg"])
    for outside in (tmp_path / "a", tmp_path):
        with pytest.raises(ValueError, match=r"a is in the folder to write to, .*name another folder"):
            find_pictures([tmp_path / "a"], outside=outside)


def test_the_picture_that_a_wrong_path_may_mean(tmp_path):
    touch(tmp_path / "a" / "x.JPG", tmp_path / "a" / "y.2.png", tmp_path / "a" / "y.txt")
    assert nearest_picture(tmp_path / "a" / "X.png") == tmp_path / "a" / "x.JPG"
    assert nearest_picture(tmp_path / "a" / "y.2") == tmp_path / "a" / "y.2.png"
    assert nearest_picture(tmp_path / "a\\x.JPG") == tmp_path / "a" / "x.JPG"
    assert nearest_picture(tmp_path / "a" / "y.jpg") is None
    assert nearest_picture(tmp_path / "b" / "x.jpg") is None


def test_frames_of_a_video(tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for red in range(0, 250, 50):  # 5 frames
        writer.write(np.full((48, 64, 3), (0, 0, red), dtype=np.uint8))  # OpenCV's BGR
    writer.release()
    frames = dict(video_frames(path, 2))
    assert list(frames) == [0, 2, 4]
    assert count_frames(path, 2) == 3
    assert frames[4].shape == (48, 64, 3)
    assert abs(frames[4].mean(axis=(0, 1)) - (200, 0, 0)).max() < 4
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(ValueError, match=r"text\.mp4 cannot be read: OpenCV finds no frame"):
        list(video_frames(tmp_path / "text.mp4"))


def test_blanks_around_a_name_are_a_hint(tmp_path):
    touch(tmp_path / " a.jpg", tmp_path / "b.jpg")
    assert nearest_picture(tmp_path / "a.jpg") == tmp_path / " a.jpg"
    assert nearest_picture(tmp_path / "b.jpg ") == tmp_path / "b.jpg"
    assert nearest_picture(tmp_path / "c.jpg") is None


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"two\nlines.png", b"a\tb.png", b"below\xff/a.png"])
def test_names_that_no_table_can_hold_are_refused_at_once(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    for each in (path, tmp_path / "good.png"):
        each.touch()
    for paths in ([tmp_path], [path]):
        if path.parent == tmp_path or paths == [tmp_path]:
            with pytest.raises(DataError, match=r"the names of 1 picture are not UTF-8 or .*rename") as error:
                find_pictures(paths)
            assert str(error.value).isascii()
            assert ascii(os.fsdecode(name)) in str(error.value)


def test_odd_names_that_files_can_hold_are_taken(tmp_path):
    names = ["-a.png", "x" * 251 + ".png", "a b.png", "é.png"]
    for name in names:
        (tmp_path / name).touch()
    assert sorted(find_pictures([tmp_path])) == sorted(names)
