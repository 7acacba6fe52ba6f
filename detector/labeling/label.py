"""`detector.label`: boxes for images whose tags are known; and the import of corrected boxes."""

import hashlib
import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from tqdm import tqdm

from detector.data.datasets.image_labels import check_rows
from detector.data.datasets.image_table import Row, picture_name, read_table
from detector.data.formats import (
    FORMATS,
    ReviewImage,
    encode_coco,
    encode_review,
    review_image,
    review_import,
)
from detector.data.formats.label_studio_storage import how_to_serve
from detector.data.images import in_any_form
from detector.data.sheets.columns import UNNAMED, NamedColumns
from detector.data.sources.sheet_source import is_sheet, read_sheet_source
from detector.data.sources.splits import TRAIN, VAL
from detector.evaluation.pictures import choose_samples
from detector.inference.load import find_checkpoint, load
from detector.inference.predictor import Predictor
from detector.inference.sources import Source, check_all_read, score_sources
from detector.inference.thresholds import ScoreThreshold, find_thresholds
from detector.self_training.choose import pseudo_boxes
from detector.self_training.networks import Model
from detector.structures import Detections, Scores
from detector.utils.distributed import (
    LONG_WAIT,
    find_device,
    gather,
    is_main,
    process_group,
    rank,
    sync_errors,
    world_size,
)
from detector.utils.errors import ErrorList, UserError, check_path, counted, shortened
from detector.utils.files import atomic_write, file_digest
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder, make_folder

logger = logging.getLogger(__name__)

_UPLOADS = b"/upload/"  # in the address of a picture that Label Studio stores itself


def label(
    weights: str | Path,
    labels: str | Path,
    images: str | Path | None = None,
    *,
    device: str = "auto",
    score_threshold: ScoreThreshold = "auto",
    output: str | Path | None = None,
    formats: Sequence[str] = (),
    model: Model = "auto",
    count: int | None = None,
    inline: bool = False,
    columns: NamedColumns = UNNAMED,
) -> list[ReviewImage]:
    """Boxes for images whose tags are known: `detector.label("runs/demo", "photos/train.csv")`.

    Only the classes that an image is tagged with get boxes: each at least its best one, which is `doubtful`
    if it does not score more than the threshold. A class whose tag is unknown gets only boxes that do. An
    image without tags gets no box. The processes of torchrun share the images; each returns the boxes of all.

    Args:
        weights: a run folder or a checkpoint.
        labels: a table of images and tags: CSV, JSON lines or Excel (docs/data_sets.md).
        images: the folder to which the files of the table are relative; None: that of the table.
        device: "cpu", "cuda", or "auto": cuda where there is one.
        score_threshold: beside the best box of a class, those that score more than this are boxes; "auto":
            than the threshold of the class, as of :func:`detector.load`.
        output: a folder to write to; a file in it is replaced only if the same call made it. None: no file is
            written.
        formats: of :data:`detector.data.formats.FORMATS`, at least one for `output`.
        model: of a run folder, see :func:`detector.load`.
        count: only so many images, of all classes in turns, of those that have no boxes in the table; None:
            all images.
        inline: Label Studio's tasks have the pictures themselves, and not links to files that it serves.
        columns: those of a spreadsheet with the names of pictures and the tags, where they are not found.

    Raises:
        UserError, OSError: an argument or a file cannot be used. Every wrong line of the table is named
            before any work is done. Images that cannot be decoded are logged; the error comes when the boxes
            of all others are written.
    """
    check_path("weights", weights, "a run folder or a checkpoint")
    check_path("labels", labels, "a table, CSV or JSON lines")
    if images is not None:
        check_path("images", images, "the folder of the images")
    formats = check_formats(formats)
    if (output is None) == bool(formats):
        given, missing = ("formats", "output") if formats else ("output", "formats")
        raise UserError(f"{given} is given and {missing} is not: nothing would be written")
    labels = Path(labels)
    root = labels.parent if images is None else Path(images)
    outputs = None
    with process_group(find_device(device), LONG_WAIT), ExitStack() as stack:
        with sync_errors():
            weights = find_checkpoint(weights, model)
            predictor = load(weights, device, score_threshold=score_threshold, model=model)
            thresholds = find_thresholds(weights, predictor.class_names, score_threshold)
            rows, mistakes = read_tags(labels, root, columns)
            sizes = check_rows(rows, root, predictor.class_names, mistakes)
            if count is not None:
                chosen = choose_rows(rows, predictor.class_names, count)
                rows, sizes = [rows[i] for i in chosen], [sizes[i] for i in chosen]
            if output is not None:
                words = [file_digest(weights), file_digest(labels), str(root), thresholds.tolist(), count]
                stack.enter_context(folder_lock(output))
                outputs = OutputFolder(output, hashlib.sha256(json.dumps(words).encode()).hexdigest())
                names = [picture_name(row.file) for row in rows]
                empty = [ReviewImage(name, size, ()) for name, size in zip(names, sizes, strict=True)]
                files = (root / row.file for row in rows)
                folder = common_folder(zip(files, names, strict=True), formats)
                outputs.check(name for name, _ in encode_all(formats, empty, predictor.class_names, folder))
        own = slice(rank(), None, world_size())
        parts = gather(list(_label_rows(predictor, rows[own], sizes[own], root, thresholds)))
        labeled = (parts[i % len(parts)][i // len(parts)] for i in range(len(rows)))
        found = [image for image in labeled if image is not None]
        with sync_errors():
            if outputs is not None and is_main():
                names_and_contents = encode_all(formats, found, predictor.class_names, folder, inline=inline)
                for name, content in names_and_contents:
                    outputs.write(name, content)
                if "label-studio" in formats and not inline:
                    logger.info("%s", how_to_serve(folder.resolve()))
            check_all_read(len(rows) - len(found))
    return found


def read_tags(labels: Path, root: Path, columns: NamedColumns = UNNAMED) -> tuple[list[Row], ErrorList]:
    """The rows of a table of a run, or of a spreadsheet as `detector init` takes it, and their mistakes."""
    if not is_sheet(labels) or labels.stem in (TRAIN, VAL):
        return read_table(labels)
    found = read_sheet_source(labels, root, named=columns)
    rows = [Row(row.line, row.entry, row.labels, row.boxes, row.unknown) for row in found]
    return rows, ErrorList(labels)


def choose_rows(rows: Sequence[Row], class_names: Sequence[str], count: int) -> list[int]:
    """The indices, ascending, of up to `count` rows without boxes, which show all classes in turns."""
    if count < 1:
        raise UserError(f"the number of images is {count}, expected at least 1")
    left = [i for i, row in enumerate(rows) if row.boxes is None]
    if not left:
        raise UserError(f"all {len(rows)} images of the table have boxes")
    labels = [torch.tensor([name in rows[i].labels for name in class_names]) for i in left]
    return sorted(left[place] for place in choose_samples(labels, count))


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats, of any iterable; UserError where it is text, or one of them is none of FORMATS."""
    if isinstance(formats, str):
        raise UserError(f"formats is {formats!r}, expected a list, such as [{formats!r}]")
    formats = tuple(formats)
    if unknown := set(formats) - set(FORMATS):
        raise UserError(f"the format is {min(unknown)!r}, expected one of {', '.join(FORMATS)}")
    return formats


def common_folder(images: Iterable[tuple[Path, str]], formats: Sequence[str]) -> Path:
    """The folder that the names of images are relative to, given the file and the name of each.

    Raises:
        UserError: there are several, and one of the formats has links below a single folder.
    """
    above = {file.parents[len(Path(name).parts) - 1] for file, name in images}
    folders = sorted({folder.resolve() for folder in above})
    if len(folders) > 1 and "label-studio" in formats:
        raise UserError(
            f"some images are in {folders[0]}, some in {folders[1]}: the format label-studio has links to "
            "one folder; name all images relative to it, or take another format"
        )
    return folders[0]


def encode_all(
    formats: Sequence[str],
    images: Sequence[ReviewImage],
    class_names: Sequence[str],
    folder: Path,
    *,
    inline: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of some of FORMATS, for images with names relative to `folder`."""
    for form in dict.fromkeys(formats):  # a format may be named twice
        yield from encode_review(form, images, class_names, folder=folder.resolve(), inline=inline)


def tagged_boxes(
    scores: Scores, labels: Tensor, unknown: Tensor, *, thresholds: Tensor
) -> tuple[Detections, list[int]]:
    """The boxes of an image whose tags are known, best first, and the rows of those that are doubtful.

    Args:
        scores: of every proposal of the image.
        labels: (C,) bool, the tagged classes: each gets its best box, which is doubtful if it does not score
            more than the threshold.
        unknown: (C,) bool, the classes that may be there: they get boxes that score more than it.
        thresholds: (C,), all boxes that score more than that of their class are taken, up to non-maximum
            suppression.
    """
    found = pseudo_boxes(scores, labels | unknown, score_threshold=float(thresholds.min()))
    of_class = found.labels[:, None] == found.labels  # (D, D)
    is_best = ~of_class.tril(diagonal=-1).any(dim=1)
    above = found.scores > thresholds[found.labels]
    keep = above | (is_best & labels[found.labels])
    return found[keep], (~above[keep]).nonzero()[:, 0].tolist()


def import_reviewed(
    path: str | Path,
    output: str | Path,
    *,
    images: str | Path | None = None,
    reviewed: Literal["flags", "all"] = "flags",
) -> list[ReviewImage]:
    """Write the ground-truth boxes of a corrected file, and nothing else, as a COCO file with review flags.

    Args:
        path, images, reviewed: as :func:`detector.data.formats.review_import` takes them.
        output: the file to write. An existing file is not replaced.

    Returns:
        the images that have ground-truth boxes or are complete.

    Raises:
        UserError, OSError: the file cannot be used; see :func:`detector.data.formats.review_import`.
    """
    output = Path(output)
    if output.exists():
        raise UserError(f"{output} exists: delete it, or name another file")
    imported = review_import(path, images=images, reviewed=reviewed)
    found = [image for image in imported if image.reviewed != "none"]
    _warn_of_strangers(Path(path), found, images)
    found = [replace(image, boxes=image.true_boxes) for image in found]
    make_folder(output.parent)
    with atomic_write(output) as file:
        file.write(encode_coco(found, sorted({box.label for image in found for box in image.boxes})))
    return found


def _warn_of_strangers(path: Path, found: Sequence[ReviewImage], images: str | Path | None) -> None:
    """Tell of images that are not below the folder of the images, or that nothing tells the folder of."""
    if images is None:
        if path.suffix.lower() == ".json" and _UPLOADS in path.read_bytes():
            warnings.warn(
                f"{path} has pictures that were uploaded in the browser, which loses their folders: pass "
                "--images with the folder that detector init was given, so that they are found",
                stacklevel=3,
            )
        return
    strangers = [image.name for image in found if not in_any_form(Path(images, image.name)).is_file()]
    if len(strangers) == len(found):
        raise UserError(
            f"{path}: none of its {len(found)} images is below {images}, such as {strangers[0]!r}"
        )
    if strangers:
        warnings.warn(
            f"{path}: {counted(len(strangers), 'image is', 'images are')} not below {images}, or of a name "
            f"that several pictures have, and will not be used: {shortened(strangers, 3)}",
            stacklevel=3,
        )


def _label_rows(
    predictor: Predictor,
    rows: Sequence[Row],
    sizes: Sequence[tuple[int, int]],
    root: Path,
    thresholds: Tensor,
) -> Iterator[ReviewImage | None]:
    """The boxes of each image; None: it cannot be read, which is logged."""
    names, missing = predictor.class_names, 0
    sources = (
        Source(picture_name(row.file), root / row.file, root / row.file)
        for row in rows
        if row.labels or row.unknown
    )
    results, hidden = score_sources(predictor, sources), not is_main() or None
    for row, size in tqdm(zip(rows, sizes, strict=True), total=len(rows), unit="image", disable=hidden):
        name = picture_name(row.file)
        if not row.labels and not row.unknown:
            yield ReviewImage(name, size, ())
            continue
        if (scored := next(results)) is None:
            yield None
            continue
        _, scores = scored
        labels, unknown = (
            torch.tensor([label in tags for label in names]) for tags in (row.labels, row.unknown)
        )
        found, doubtful = tagged_boxes(scores, labels, unknown, thresholds=thresholds)
        missing += len(set(row.labels)) - len({names[i] for i in found.labels.tolist()} & set(row.labels))
        yield review_image(name, size, found, names, doubtful=doubtful)
    if missing:
        logger.warning("%d tags got no box, as their images have no proposal", missing)
