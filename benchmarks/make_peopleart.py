"""Arranges People-Art, paintings with boxes around people, as a folder in the layout of PASCAL VOC.

git clone --depth 1 https://github.com/BathVisArtData/PeopleArt
python benchmarks/make_peopleart.py PeopleArt datasets/peopleart

The pictures are unchanged. The splits train, val, trainval and test are the official lists. Many pictures are
under copyright; their page offers them for research that is not commercial.
"""

import argparse
import shutil
import sys
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
    from detector.data.images import read_image_size
    from detector.utils.command_line import run_command
    from detector.utils.errors import DataError
    from detector.utils.files import inside, read_text

SPLITS = ("train", "val", "trainval", "test")
_SHOWS = {"1": True, "-1": False}  # as the lists say whether a picture shows a person


def main() -> int:
    return run_command(run)


def run() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the clone of BathVisArtData/PeopleArt")
    parser.add_argument("root", type=Path, help="the folder to make")
    arguments = parser.parse_args()
    sizes = arrange(arguments.source, arguments.root)
    print(f"{arguments.root}: " + ", ".join(f"{count} images in {split}" for split, count in sizes.items()))


def arrange(source: Path, root: Path) -> dict[str, int]:
    """Copy the pictures of the four lists into the new folder `root`; a picture's id is its name.

    Args:
        source: folder with JPEGImages/STYLE/NAME.jpg, Annotations/person_SPLIT.txt, and
            Annotations/STYLE/NAME.jpg.xml of each picture that shows a person.

    Returns:
        the number of images of each split.

    Raises:
        FileExistsError: `root` exists.
        FileNotFoundError: a list, picture or annotation is missing.
        DataError: a line of a list is invalid, or two pictures have the same name.
    """
    lists = {split: read_list(source / f"Annotations/person_{split}.txt") for split in SPLITS}
    pictures = lists["trainval"] | lists["test"]
    ids: dict[str, str] = {}
    for picture in (name for rows in lists.values() for name in rows):
        if ids.setdefault(Path(picture).stem, picture) != picture:
            raise DataError(f"{source}: {picture} and {ids[Path(picture).stem]} have the same name")
        if picture not in pictures:
            raise DataError(f"{source}: {picture} is in train or val, but not in trainval")
    with new_voc_folder(root) as folder:
        for picture, shows in pictures.items():
            image, name = inside(source / "JPEGImages", picture), Path(picture).name
            if shows:
                objects = inside(source / "Annotations", f"{picture}.xml")
                shutil.copyfile(objects, folder / "Annotations" / f"{Path(picture).stem}.xml")
            else:
                write_annotation(folder, name, read_image_size(image), [], folder="PeopleArt")
            shutil.copyfile(image, folder / "JPEGImages" / name)
        for split, rows in lists.items():
            write_split(folder, split, [Path(picture).stem for picture in rows])
    return {split: len(rows) for split, rows in lists.items()}


def read_list(path: Path) -> dict[str, bool]:
    """Whether each picture of an official list shows a person; a line is `STYLE/NAME.jpg 1` or `... -1`.

    Raises:
        FileNotFoundError: the list does not exist.
        DataError: a line is something else, or a picture is listed twice.
    """
    pictures: dict[str, bool] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        picture, _, flag = line.strip().rpartition(" ")
        picture = picture.strip()
        if not picture or flag not in _SHOWS:
            raise DataError(f"{path}, line {number}: found {line!r}, expected STYLE/NAME.jpg and 1 or -1")
        if picture in pictures:
            raise DataError(f"{path}, line {number}: {picture} is listed twice")
        pictures[picture] = _SHOWS[flag]
    return pictures


if __name__ == "__main__":
    sys.exit(main())
