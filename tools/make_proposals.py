"""Makes the proposals file of a data set or of a folder of images: selective search, or a grid of boxes.

    python tools/make_proposals.py --config-file configs/toybox_pcl.yaml [KEY VALUE ...]
    python tools/make_proposals.py --voc VOCdevkit/VOC2007 --split trainval --split test --output voc07.npz
    python tools/make_proposals.py --images my_pictures --output my_pictures.npz

With --config-file the images are those of both splits; PROPOSALS.MODE and PROPOSALS.LONGEST_SIDE hold, and
the file is DATASETS.PROPOSALS, unless options say otherwise. Without it, image ids are file names without
suffix, with the folders below --images if there are any; the images of --images are turned as their EXIF
orientation says, as one's own pictures are. It can be interrupted: the same command goes on where it stopped.
Photographs need quality; for drawings fast is enough.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from yacs.config import CfgNode

    from detector.config import load_cfg
    from detector.data.pictures import find_pictures
    from detector.data.proposals.search import Mode, make_finder, propose
    from detector.data.voc import find_split
    from detector.utils.command_line import run_command, usable_cores


def find_images(folder: Path) -> dict[str, Path]:
    """The images below a folder by id, their name without suffix, in the order of their ids."""
    images = find_pictures([folder])
    return dict(sorted((Path(name).with_suffix("").as_posix(), path) for name, path in images.items()))


def find_voc_images(root: Path, splits: Sequence[str]) -> dict[str, Path]:
    """The images of the splits of a VOC folder by id, or all of JPEGImages when no split is named."""
    if not splits:
        return find_images(root / "JPEGImages")
    return {image_id: path for split in splits for image_id, path in find_split(root, split).items()}


def find_config_images(cfg: CfgNode) -> tuple[dict[str, Path], bool]:
    """The images of both splits of a config's data set by id, and whether their orientation tags count."""
    # Here, as every worker process imports this file, and has no use for networks.
    from detector.build_data import build_dataset, name_classes

    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    test_set = build_dataset(name_classes(cfg, train_set), cfg.DATASETS.TEST_SPLIT)
    images = {
        image_id: dataset.image_path(i)
        for dataset in (train_set, test_set)
        for i, image_id in enumerate(dataset.image_ids)
    }
    return images, train_set.apply_orientation


def main() -> int:
    return run_command(run)


def run() -> None:
    arguments = parse_arguments()
    started = time.perf_counter()
    try:
        counts = make(arguments)
    except KeyboardInterrupt:
        print("rerun the same command to resume", file=sys.stderr)
        raise
    least, median, most = min(counts), statistics.median(counts), max(counts)
    seconds = time.perf_counter() - started
    boxes = f"{least}/{median:.0f}/{most} boxes (min/median/max)"
    print(f"{arguments.output}: {len(counts)} images, {boxes}, {seconds:.0f} s")


def make(arguments: argparse.Namespace) -> list[int]:
    """Write the proposals file; the number of boxes of each image. The config fills in missing options."""
    if arguments.config_file:
        cfg = load_cfg(arguments.config_file, arguments.overrides)
        arguments.output = arguments.output or Path(cfg.DATASETS.PROPOSALS)
        arguments.mode = arguments.mode or cfg.PROPOSALS.MODE
        arguments.longest_side = arguments.longest_side or cfg.PROPOSALS.LONGEST_SIDE
    if arguments.output.exists():
        raise FileExistsError(f"{arguments.output} exists: delete it to make it anew")
    if arguments.config_file:
        images, apply_orientation = find_config_images(cfg)
    elif arguments.voc:
        images, apply_orientation = find_voc_images(arguments.voc, arguments.split), False
    else:
        images, apply_orientation = find_images(arguments.images), True
    find, parameters = make_finder(arguments.mode or "quality", arguments.longest_side or 300)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    return propose(
        images,
        arguments.output,
        find,
        parameters,
        workers=arguments.workers,
        apply_orientation=apply_orientation,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--config-file", metavar="FILE", help="a file of configs/: the images of its data set"
    )
    source.add_argument("--images", type=Path, help="folder of images, searched with the folders in it")
    source.add_argument("--voc", type=Path, help="folder with JPEGImages and ImageSets")
    add("overrides", nargs="*", metavar="KEY VALUE", help="with --config-file: keys of the config to change")
    add("--split", action="append", default=[], help="with --voc: a list in ImageSets/Main; may be repeated")
    add("--output", type=Path, help="the .npz file to make")
    add("--mode", choices=get_args(Mode), help="selective search, or a grid of boxes (default: quality)")
    add(
        "--longest-side",
        type=int,
        help="larger images are searched on a copy of this many pixels (default: 300)",
    )
    add("--workers", type=int, default=usable_cores(), help="processes (default: one a core)")
    arguments = parser.parse_intermixed_args()
    if arguments.split and not arguments.voc:
        parser.error("--split goes with --voc")
    if arguments.overrides and not arguments.config_file:
        parser.error("KEY VALUE goes with --config-file")
    if not (arguments.output or arguments.config_file):
        parser.error("--output is missing")
    if arguments.workers < 1 or (arguments.longest_side is not None and arguments.longest_side < 1):
        parser.error("--workers and --longest-side must be at least 1")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
