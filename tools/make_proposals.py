"""Makes the proposals file of a folder of images or of a data set in the VOC layout, by selective search.

    python tools/make_proposals.py --voc datasets/toybox --mode fast --output datasets/toybox/proposals.npz
    python tools/make_proposals.py --voc VOCdevkit/VOC2007 --split trainval --split test --output voc07.npz
    python tools/make_proposals.py --images my_pictures --output my_pictures.npz

Image ids are file names without suffix, with the folders below --images if there are any. It can be
interrupted: the same command goes on where it stopped. Photographs need --mode quality; for drawings fast is
enough.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from detector.data.images import IMAGE_SUFFIXES
from detector.data.propose import propose


def find_images(folder: Path) -> dict[str, Path]:
    """The images below a folder by id, in the order of their ids."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder of images at {folder}")
    images: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in IMAGE_SUFFIXES or not path.is_file():
            continue
        image_id = path.relative_to(folder).with_suffix("").as_posix()
        if image_id in images:
            raise ValueError(f"two images of one id, {image_id!r}: {images[image_id]} and {path}")
        images[image_id] = path
    if not images:
        raise ValueError(f"no images in {folder}: looked for {', '.join(IMAGE_SUFFIXES)}")
    return dict(sorted(images.items()))


def find_voc_images(root: Path, splits: Sequence[str]) -> dict[str, Path]:
    """The images of the splits of a VOC folder by id, or all of JPEGImages when no split is named."""
    images = find_images(root / "JPEGImages")
    if not splits:
        return images
    listed: dict[str, Path] = {}
    for split in splits:
        path = root / "ImageSets" / "Main" / f"{split}.txt"
        if not path.is_file():
            raise FileNotFoundError(f"no split {split!r}: {path} is missing")
        for image_id in filter(None, map(str.strip, path.read_text(encoding="utf-8").splitlines())):
            if image_id not in images:
                raise FileNotFoundError(
                    f"{path} lists {image_id!r}, of which {root / 'JPEGImages'} has no image"
                )
            listed[image_id] = images[image_id]
    return listed


def main() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--images", type=Path, help="folder of images, searched with the folders in it")
    source.add_argument("--voc", type=Path, help="folder with JPEGImages and ImageSets")
    parser.add_argument(
        "--split",
        action="append",
        default=[],
        help="with --voc: a list in ImageSets/Main; may be repeated (default: all images)",
    )
    parser.add_argument("--output", type=Path, required=True, help="the .npz file to make")
    parser.add_argument(
        "--mode", choices=("quality", "fast"), default="quality", help="thoroughness (default: quality)"
    )
    parser.add_argument(
        "--longest-side",
        type=int,
        default=300,
        help="larger images are searched on a copy of this many pixels (default: 300)",
    )
    parser.add_argument("--workers", type=int, default=cores, help="processes (default: one a core)")
    arguments = parser.parse_args()
    if arguments.split and not arguments.voc:
        parser.error("--split goes with --voc")

    started = time.perf_counter()
    try:
        if arguments.output.exists():
            raise FileExistsError(f"{arguments.output} exists: delete it to make it anew")
        if arguments.voc:
            images = find_voc_images(arguments.voc, arguments.split)
        else:
            images = find_images(arguments.images)
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        counts = propose(
            images,
            arguments.output,
            mode=arguments.mode,
            longest_side=arguments.longest_side,
            workers=arguments.workers,
        )
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"make_proposals: {error}")
    except KeyboardInterrupt:
        sys.exit("make_proposals: interrupted; the same command goes on from here")
    least, median, most = min(counts), statistics.median(counts), max(counts)
    seconds = time.perf_counter() - started
    boxes = f"{least}/{median:.0f}/{most} boxes (min/median/max)"
    print(f"{arguments.output}: {len(counts)} images, {boxes}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
