"""Make the proposals file of a data set or of a folder of images."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from yacs.config import CfgNode

from detector.build_data import build_dataset, name_classes
from detector.config import load_cfg
from detector.data.images import IMAGE_SUFFIXES
from detector.data.proposals.search import Mode, make_finder, propose
from detector.utils.command_line import usable_cores
from detector.utils.errors import UserError
from detector.utils.files import read_text


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
            raise UserError(f"two images of one id, {image_id!r}: {images[image_id]} and {path}")
        images[image_id] = path
    if not images:
        raise UserError(f"no images in {folder}: looked for {', '.join(IMAGE_SUFFIXES)}")
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
        for image_id in filter(None, map(str.strip, read_text(path, "split file").splitlines())):
            if image_id not in images:
                raise FileNotFoundError(
                    f"{path} lists {image_id!r}, of which {root / 'JPEGImages'} has no image"
                )
            listed[image_id] = images[image_id]
    return listed


def find_config_images(cfg: CfgNode) -> tuple[dict[str, Path], bool]:
    """The images of both splits of a config's data set by id, and whether their orientation tags count."""
    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    test_set = build_dataset(name_classes(cfg, train_set), cfg.DATASETS.TEST_SPLIT)
    images = {
        image_id: dataset.image_path(i)
        for dataset in (train_set, test_set)
        for i, image_id in enumerate(dataset.image_ids)
    }
    return images, train_set.apply_orientation


def run(
    *,
    config_file: str | Path | None = None,
    overrides: Sequence[object] = (),
    voc: Path | None = None,
    splits: Sequence[str] = (),
    images: Path | None = None,
    output: Path | None = None,
    mode: Mode | None = None,
    longest_side: int | None = None,
    workers: int = 0,
) -> None:
    """Make the proposals of one source of images: a config, a VOC folder, or a folder of pictures.

    A call that was interrupted is resumed by the same call.

    Args:
        config_file: a config, of whose data set both splits are searched. PROPOSALS.MODE and
            PROPOSALS.LONGEST_SIDE hold, and the file is DATASETS.PROPOSALS, unless arguments say otherwise.
        overrides: keys of the config to change.
        voc: a folder with JPEGImages and ImageSets; image ids are file names without suffix.
        splits: with `voc`: lists in ImageSets/Main; none: all images.
        images: a folder of pictures, searched with the folders in it, which are turned as their EXIF
            orientation says.
        output: the .npz file to make; needed without a config.
        mode: of :func:`make_finder`; without a config quality by default.
        longest_side: larger images are searched on a copy of this many pixels; without a config 300.
        workers: processes; 0: one a core.
    """
    started = time.perf_counter()
    cfg = load_cfg(config_file, overrides) if config_file else None
    if cfg is not None:
        output = output or Path(cfg.DATASETS.PROPOSALS)
        mode, longest_side = mode or cfg.PROPOSALS.MODE, longest_side or cfg.PROPOSALS.LONGEST_SIDE
    assert output is not None
    if output.exists():
        raise FileExistsError(f"{output} exists: delete it to make it anew")
    if cfg is not None:
        files, apply_orientation = find_config_images(cfg)
    elif voc is not None:
        files, apply_orientation = find_voc_images(voc, splits), False
    else:
        assert images is not None
        files, apply_orientation = find_images(images), True
    find, parameters = make_finder(mode or "quality", longest_side or 300)
    output.parent.mkdir(parents=True, exist_ok=True)
    counts = propose(
        files,
        output,
        find,
        parameters,
        workers=workers or usable_cores(),
        apply_orientation=apply_orientation,
    )
    least, median, most = min(counts), statistics.median(counts), max(counts)
    boxes = f"{least}/{median:.0f}/{most} boxes (min/median/max)"
    print(f"{output}: {len(counts)} images, {boxes}, {time.perf_counter() - started:.0f} s")
