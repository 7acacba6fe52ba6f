"""The command `detector propose`."""

import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from detector.config import Settings, load_cfg
from detector.data.build import build_splits, build_tiling
from detector.data.datasets.voc import find_split
from detector.data.formats import ReviewImage, review_import, turn_images
from detector.data.images import read_image
from detector.data.pictures import find_pictures
from detector.data.proposals.search import Finder, Mode, make_finder, propose
from detector.data.proposals.tiled import TiledSearch
from detector.data.reviewed import find_id
from detector.structures import box_iou
from detector.utils.command_line import next_step, usable_cores
from detector.utils.distributed import (
    LONG_WAIT,
    is_main,
    local_world_size,
    process_group,
    sync_errors,
    world_size,
)
from detector.utils.errors import DataError, UserError, counted
from detector.utils.outputs import make_folder
from detector.utils.progress import duration, progress_bar

_TIE = 0.01  # of two recalls that differ by less, that of fewer proposals wins


def make_proposals(
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
    tune: Path | None = None,
    announce: bool = False,
) -> None:
    """Make the proposals of one source of images: a config, a VOC folder, or a folder of pictures.

    A call that was interrupted is resumed by the same call. Under torchrun the processes share the images.

    Args:
        config_file: a config, of whose data set both splits are searched, for DATASETS.PROPOSALS unless
            `output` is named, and as PROPOSALS says unless `mode` and `longest_side` are.
        overrides: keys of the config to change.
        voc: a folder with JPEGImages and ImageSets; image ids are file names without suffix.
        splits: with `voc`: lists in ImageSets/Main; none: all images.
        images: a folder of pictures, searched with the folders in it, which are turned as their EXIF
            orientation says.
        output: the .npz file to make; needed without a config.
        mode: of :func:`make_finder`; without a config quality by default.
        longest_side: larger images are searched on a copy of this many pixels; without a config 300.
        workers: processes; 0: one per core.
        tune: make no file, but print which search covers most of the boxes in this file, of any format of
            :func:`detector.data.formats.review_import`, of which up to 50 images are searched.
        announce: print first how long it will take.

    Raises:
        UserError, OSError: the arguments do not go together, or a file cannot be used.
    """
    if sum(source is not None for source in (config_file, images, voc)) != 1:
        raise UserError("expected one of CONFIG, --images and --voc; KEY VALUE goes with CONFIG")
    if splits and voc is None:
        raise UserError("--split goes with --voc")
    if workers < 0 or (longest_side is not None and longest_side < 1):
        raise UserError("--workers and --longest-side must be at least 1")
    started = time.perf_counter()
    cfg = load_cfg(config_file, overrides) if config_file else None
    if cfg is not None:
        output = output or Path(cfg.datasets.proposals)
    settings = (cfg or Settings()).proposals
    if tune is not None:
        files, apply_orientation = _find_files(cfg, voc, splits, images)
        command = ["propose", config_file, *overrides] if config_file else []
        _tune(files, tune, settings.max_count, apply_orientation, command)
        return
    if output is None:
        raise UserError("--output is missing: the .npz file to make")
    find, parameters = build_search(cfg or Settings(), mode, longest_side)
    workers = workers or num_workers()
    with process_group(torch.device("cpu"), LONG_WAIT):
        with sync_errors():
            if output.exists():
                raise FileExistsError(f"{output} exists: delete it to make it again")
            files, apply_orientation = _find_files(cfg, voc, splits, images)
            make_folder(output.parent)
            if announce and is_main():
                _announce(files, find, workers, apply_orientation)
        counts = propose(
            files,
            output,
            find,
            parameters,
            workers=workers,
            apply_orientation=apply_orientation,
        )
    if is_main():
        boxes = f"{min(counts)}/{statistics.median(counts):.0f}/{max(counts)} boxes (min/median/max)"
        searched = counted(len(counts), "image", "images")
        print(f"{output}: {searched}, {boxes}, {time.perf_counter() - started:.0f} s")


def build_search(
    cfg: Settings, mode: Mode | None = None, longest_side: int | None = None
) -> tuple[Finder, Mapping[str, object]]:
    """:func:`make_finder` as PROPOSALS says, in the tiles of INPUT, with another mode or side if given."""
    settings = cfg.proposals
    find, parameters = make_finder(
        mode or settings.mode, longest_side or settings.longest_side, settings.min_region, settings.sides
    )
    if (tiling := build_tiling(cfg.input)) is not None:
        find = TiledSearch(find, tiling)
        parameters = {**parameters, "tile": tiling.size, "tile_overlap": tiling.overlap}
    return find, parameters


def num_workers() -> int:
    """Processes that search at a time, for each of those of torchrun."""
    return max(1, usable_cores() // local_world_size())


def _announce(files: Mapping[str, Path], find: Finder, workers: int, apply_orientation: bool) -> None:
    """Print how long the search of all images will take, as three of them do."""
    began, timed = time.perf_counter(), list(files.values())[:: -(-len(files) // 3)]
    try:
        for path in timed:
            find(read_image(path, apply_orientation=apply_orientation).permute(1, 2, 0).numpy())
    except (OSError, UserError):  # the search names all images that cannot be read
        return
    of_image = (time.perf_counter() - began) / len(timed)
    seconds = starting_seconds() + of_image * len(files) / (workers * world_size())
    print(f"{counted(len(files), 'image', 'images')} to search, about {duration(seconds)}", flush=True)


def starting_seconds() -> float:
    """How long a worker takes to start: about as long as this process took to import the same modules."""
    return min(time.process_time(), 10.0)  # a notebook, for one, has done other things before


def _find_files(
    cfg: Settings | None, voc: Path | None, splits: Sequence[str], images: Path | None
) -> tuple[dict[str, Path], bool]:
    """The images of the source that is named, by id, and whether their orientation tags count."""
    if cfg is not None:
        train_set, test_set = build_splits(cfg)
        files = {
            image_id: dataset.image_path(i)
            for dataset in (train_set, test_set)
            for i, image_id in enumerate(dataset.image_ids)
        }
        return files, train_set.apply_orientation
    if voc is not None and splits:
        return {
            image_id: path for split in splits for image_id, path in find_split(voc, split).items()
        }, False
    found = find_pictures([voc / "JPEGImages" if voc is not None else cast(Path, images)])
    by_id = sorted((Path(name).with_suffix("").as_posix(), path) for name, path in found.items())
    return dict(by_id), voc is None


def _tune(
    files: Mapping[str, Path],
    boxes: Path,
    max_count: int,
    apply_orientation: bool,
    command: Sequence[object],
) -> None:
    """Print what each search covers, and the keys of the one to use, or the `command` with them."""
    known = read_known_boxes(boxes, files, limit=50, apply_orientation=apply_orientation)
    trials = try_searches(files, known, max_count=max_count, apply_orientation=apply_orientation)
    print(
        f"{sum(map(len, known.values()))} boxes in {len(known)} images; at most {max_count} proposals count"
    )
    print("recall at IoU 0.5   proposals   ms per image   search")
    for trial in trials:
        keys = " ".join(f"{key} {value}" for key, value in trial.keys.items())
        print(f"{trial.recall:17.3f}{trial.num_boxes:12.0f}{trial.milliseconds:14.0f}   {keys}")
    if command:
        keys_and_values = (str(word) for pair in trials[0].keys.items() for word in pair)
        next_step("detector", *command, *(word.replace(" ", "") for word in keys_and_values))
        return
    print("next: write the first into the config, then make the proposals\nPROPOSALS:")
    for key, value in trials[0].keys.items():
        print(f"  {key.removeprefix('PROPOSALS.')}: {list(value) if isinstance(value, tuple) else value}")


class Trial(NamedTuple):
    """What a search found in the images."""

    keys: Mapping[str, object]  # the config keys that select it
    recall: float  # share of the known boxes that a proposal covers with an IoU of at least 0.5
    num_boxes: float  # proposals of an image, on average
    milliseconds: float  # for an image, on average


def read_known_boxes(
    path: Path, files: Mapping[str, Path], limit: int, *, apply_orientation: bool
) -> dict[str, Tensor]:
    """The boxes (M, 4) of up to `limit` images, evenly chosen among those that have some, by image id.

    Args:
        path: any file or folder of :func:`review_import`; all its boxes but difficult ones count as true.
        files: file of each image id.
        apply_orientation: whether boxes are wanted of the images as a viewer shows them, or as stored.

    Raises:
        DataError: no image of `files` has a box there.
    """
    known: dict[str, ReviewImage] = {}
    for image in review_import(path, reviewed="all"):
        image_id = find_id(image.name, files)
        boxes = tuple(box for box in image.boxes if not box.difficult)
        if image_id in files and boxes:
            known[image_id] = replace(image, boxes=boxes)
    if not known:
        raise DataError(f"{path} has no box of any of the {len(files)} images, such as {next(iter(files))!r}")
    chosen = sorted(known)[:: -(-len(known) // limit)]
    paths = [files[image_id] for image_id in chosen]
    turned = turn_images(path, [known[i] for i in chosen], paths, upright=apply_orientation)
    boxes_of = {i: [box.box for box in image.boxes] for i, image in zip(chosen, turned, strict=True)}
    return {i: torch.tensor(boxes, dtype=torch.float32) for i, boxes in boxes_of.items()}


def try_searches(
    images: Mapping[str, Path], known: Mapping[str, Tensor], *, max_count: int, apply_orientation: bool
) -> list[Trial]:
    """The searches worth a try for objects of the known sizes; first the one to use.

    Args:
        images: file of each image id.
        known: boxes (M, 4) of some of the images, half-open xyxy in pixels.
        max_count: only so many proposals of an image count.
    """
    tensors = {i: read_image(images[i], apply_orientation=apply_orientation) for i in known}
    pixels = {image_id: image.permute(1, 2, 0).contiguous().numpy() for image_id, image in tensors.items()}
    trials = []
    candidates = _candidates(torch.cat(list(known.values())))
    for keys in progress_bar(candidates, total=len(candidates), desc="searches", unit="search"):
        options = {key.removeprefix("PROPOSALS.").lower(): value for key, value in keys.items()}
        find, _ = make_finder(**options)  # type: ignore[arg-type]
        started = time.perf_counter()
        found = {image_id: find(image)[:max_count] for image_id, image in pixels.items()}
        milliseconds = 1e3 * (time.perf_counter() - started) / len(known)
        overlaps = [box_iou(boxes, torch.from_numpy(found[i])).amax(1) for i, boxes in known.items()]
        recall = float((torch.cat(overlaps) >= 0.5).double().mean())
        num_boxes = sum(map(len, found.values())) / len(found)
        trials.append(Trial(keys, recall, num_boxes, milliseconds))
    best = max(trial.recall for trial in trials)
    winner = min((t for t in trials if t.recall > best - _TIE), key=lambda trial: trial.num_boxes)
    return [winner, *(trial for trial in trials if trial is not winner)]


def _candidates(boxes: Tensor) -> list[dict[str, object]]:
    """The keys of each search; the sides for corners are those of most boxes.

    Their shortest is the lower quartile: training on tags prefers the smallest proposals, which should not be
    much smaller than a common object. A grid is none: its recall is high, and training with it far worse.
    """
    sides = torch.cat([boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]])
    shortest, longest = sides.quantile(torch.tensor([0.25, 0.95])).round().clamp(min=4).tolist()
    searches: list[dict[str, object]] = [
        {"PROPOSALS.MODE": mode, "PROPOSALS.LONGEST_SIDE": side, "PROPOSALS.MIN_REGION": region}
        for mode, side, region in (
            ("fast", 300, 100),
            ("quality", 300, 100),
            ("quality", 300, 20),
            ("quality", 600, 100),
            ("quality", 600, 20),
        )
    ]
    corners: dict[str, object] = {"PROPOSALS.MODE": "corners", "PROPOSALS.SIDES": (shortest, longest)}
    return [*searches, corners]


def run(options: Namespace) -> None:
    try:
        make_proposals(**vars(options), announce=True)
    except KeyboardInterrupt:
        print("rerun the same command to resume", file=sys.stderr)
        raise
    if options.config_file and not options.tune:
        words = [*options.overrides, *(["DATASETS.PROPOSALS", options.output] if options.output else [])]
        next_step("detector", "check", options.config_file, *words)
