"""Inputs of prediction: image files, folders of images and frames of videos."""

import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import numpy as np

from detector.utils.errors import DataError, counted, missing_path_message, shortened
from detector.utils.files import check_printable, check_regular

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"),
    ".avif",
)
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")
_NO_PICTURES = ("@eaDir", "#recycle")  # folders that a Synology NAS adds: thumbnails, and what was deleted
_OTHER_SUFFIXES = (  # of pictures that are not supported
    *(".heic", ".heif", ".hif", ".jxl", ".psd", ".svg", ".tga"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2"),
)


def stem_key(name: str) -> str:
    """The name of a picture without its suffix, in one Unicode form, by which to find its annotation."""
    path = PurePosixPath(unicodedata.normalize("NFC", name))
    return path.as_posix().removesuffix(path.suffix)


def flat_name(name: str) -> str:
    """The name of a picture in a folder without folders: pictures__a.jpg for pictures/a.jpg."""
    return name.replace("/", "__")


def find_pictures(paths: Iterable[Path], *, outside: Path | None = None) -> dict[str, Path]:
    """Image files by name: the path relative to the given folder, or the name of a given file.

    A folder is searched by :func:`images_below`. A given file may have any name.

    Args:
        outside: a folder whose files are skipped, such as the output folder of an earlier run.

    Raises:
        FileNotFoundError: a path does not exist.
        DataError: a folder holds no image, two files have the same name but for the suffix, or a file is
            given twice.
    """
    found: dict[str, Path] = {}
    stems: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(missing_path_message(path))
        below = images_below(path, outside) if path.is_dir() else [path]
        if not path.is_dir():
            check_names([path.name], path.parent)
        if not below:
            place = path.resolve()
            if outside is not None and outside.resolve() in (place, *place.parents):
                raise DataError(
                    f"{path} is in the folder to write to, {outside}, where no images are looked for: name "
                    "another folder to write to"
                )
            raise DataError(f"no images in {path}: looked for {', '.join(IMAGE_SUFFIXES)}")
        for file in below:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            stem = str(Path(name).with_suffix(""))
            if stem in stems:
                if stems[stem].samefile(file):
                    raise DataError(f"{file} is given more than once: name it, or a folder with it, once")
                raise DataError(f"{stems[stem]} and {file} have the same name {stem}: rename one of them")
            found[name] = stems[stem] = file
    return found


def images_below(folder: Path, outside: Path | None) -> list[Path]:
    """The images of :func:`files_below`, each real file once.

    One warning counts links to others of them, another one videos and pictures in other formats.
    Files beside an image of the same name are not counted: they are other versions of it.
    """
    files = files_below(folder, (*IMAGE_SUFFIXES, *_OTHER_SUFFIXES, *VIDEO_SUFFIXES), outside=outside)
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    stems = {file.with_suffix("") for file in images}
    others = Counter(file.suffix.lower() for file in files if file.with_suffix("") not in stems)
    if others:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common())
        warnings.warn(
            f"{folder}: files in formats that are not read: {counts}; convert pictures to .jpg or .png",
            stacklevel=3,
        )
    images = _each_once(images)
    check_names([file.relative_to(folder).as_posix() for file in images], folder)
    return images


def check_names(names: Sequence[str], place: Path) -> None:
    """Raise a DataError that counts and shows the names that no table, list or JSON file can hold.

    Args:
        place: where they are, for the message.
    """
    wrong = []
    for name in names:
        try:
            check_printable(name)
        except DataError:
            wrong.append(ascii(name))
    if wrong:
        number = counted(len(wrong), "picture", "pictures")
        shown = ascii(str(place))[1:-1]
        raise DataError(
            f"{shown}: the names of {number} are not UTF-8 or have control characters: "
            f"{shortened(wrong, 3)}; rename them (convmv -f latin1 -t utf8 -r --notest FOLDER does so for "
            "names of other encodings)"
        )


def files_below(folder: Path, suffixes: Sequence[str], *, outside: Path | None = None) -> list[Path]:
    """The files of a folder with one of the suffixes in any case, sorted.

    Linked folders are searched as well, each real folder once, by its own name if it is below `folder`.
    Hidden folders, such as .thumbnails, and those that a NAS adds, such as @eaDir, are not searched. Files
    that macOS adds to other disks and to archives, "._" and the name of a file, are left out.

    Args:
        outside: as for :func:`find_pictures`.
    """
    left_out = None if outside is None else outside.resolve()
    found, searched, linked = [], set[object](), [folder]
    while linked:  # links come last, when all real folders are known
        start = linked.pop(0)
        if not start.is_dir() or _identity(start) in searched:
            continue
        for place, folders, names in os.walk(start):
            here = Path(place)
            searched.add(_identity(here))
            around = here.resolve()
            if left_out in (around, *around.parents):  # where links to pictures outside are left out, too
                folders.clear()
                continue
            paths = [here / name for name in sorted(folders) if name[0] != "." and name not in _NO_PICTURES]
            links = [path for path in paths if path.is_symlink()]
            # A link to a parent folder would lead to an endless search.
            linked += [path for path in links if path.resolve() not in (around, *around.parents)]
            folders[:] = [
                path.name for path in paths if path not in links and _identity(path) not in searched
            ]
            found += [
                file
                for file in (here / name for name in names)
                if file.suffix.lower() in suffixes
                and not file.name.startswith("._")
                and file.is_file()
                and not (left_out and left_out in file.resolve().parents)
            ]
    return sorted(found)


def runs_folder(pictures: Path) -> Path | None:
    """The folder `runs`, to which detector writes pictures; None if the given folder is in it."""
    root, runs = pictures.resolve(), Path("runs").resolve()
    return None if runs in (root, *root.parents) else runs


def _each_once(files: Sequence[Path]) -> list[Path]:
    """The files without links to others of them; one warning counts the links."""
    first: dict[object, Path] = {}
    for file in sorted(files, key=Path.is_symlink):  # stable: files that are not links come first
        first.setdefault(_identity(file), file)
    kept = set(first.values())
    left_out = [f"{file} (is {first[_identity(file)]})" for file in files if file not in kept]
    if left_out:
        warnings.warn(
            f"{counted(len(left_out), 'picture is a link', 'pictures are links')} to another one that is "
            f"read, too, and left out: {shortened(left_out, 3)}",
            stacklevel=4,
        )
    return [file for file in files if file in kept]


def _identity(path: Path) -> object:
    """A key that is equal for all paths to the same file or folder."""
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


def nearest_picture(path: Path, below: Path | None = None) -> Path | None:
    """The image that a wrong path may mean: it has other capitals, another suffix or other blanks.

    The path may have "\\" instead of "/", or "%20" for a blank, as addresses do.

    Args:
        below: a folder to search, with its subfolders, if the folder of the path has no such image. If
            there are several, the result is None.
    """
    path = Path(str(path).replace("\\", "/"))
    texts = (path.name, path.stem, unquote(path.name), unquote(path.stem))
    names = {text.casefold().strip() for text in texts}

    def fits(file: Path) -> bool:
        return file.stem.casefold().strip() in names

    if path.parent.is_dir():
        beside = [file for file in path.parent.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES]
        if near := min(filter(fits, beside), default=None):
            return near
    found = [*filter(fits, files_below(below, IMAGE_SUFFIXES))] if below else []
    return found[0] if len(found) == 1 else None


def is_video(path: Path) -> bool:
    return path.suffix.lower() in VIDEO_SUFFIXES


def video_frames(path: Path, stride: int = 1) -> Iterator[tuple[int, np.ndarray]]:
    """Every `stride`-th frame of a video, (H, W, 3) uint8 RGB, with its number from 0.

    Raises:
        FileNotFoundError: the file does not exist.
        DataError: it is not a regular file, a frame cannot be decoded, or OpenCV finds no frame at all.
    """
    import cv2  # here, because the search of proposals uses this module without OpenCV

    check_regular(path, "video")
    video = cv2.VideoCapture(str(path))
    number = 0
    try:
        while video.grab():
            if number % stride == 0:
                decoded, frame = video.retrieve()
                if not decoded:
                    raise DataError(f"video {path}: frame {number} cannot be decoded")
                yield number, cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
            number += 1
    finally:
        video.release()
    if number == 0:
        raise DataError(f"video {path} cannot be read: OpenCV finds no frame in it")


def count_frames(path: Path, stride: int = 1) -> int:
    """The number of frames of :func:`video_frames` according to the header of the video; 0: unknown."""
    import cv2

    check_regular(path, "video")
    video = cv2.VideoCapture(str(path))
    frames = video.get(cv2.CAP_PROP_FRAME_COUNT)
    video.release()
    return -(-max(0, int(frames)) // stride)
