"""The command `detector predict`."""

import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from torch import Tensor
from tqdm import tqdm

from detector.data.datasets.voc_writer import detected_objects, encode_annotation
from detector.data.formats import encode_coco, review_image
from detector.data.large_images import LargeImage
from detector.data.pictures import count_frames, find_pictures, is_video
from detector.evaluation.pictures import draw_detections
from detector.inference.load import find_checkpoint, load
from detector.inference.predictor import Predictor
from detector.inference.sources import check_all_read, frame_name, read_sources, score_sources
from detector.inference.thresholds import ScoreThreshold, find_thresholds
from detector.self_training.networks import Model
from detector.structures import Detections, scale_boxes
from detector.utils.errors import UserError, counted
from detector.utils.files import check_regular, encode_image
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

logger = logging.getLogger(__name__)

FORMATS = ("pictures", "coco", "voc")
_LARGEST_SIDE = 4000  # pixels to which a picture is reduced that is read in parts
_KEY = "detector predict"  # whose files, of whatever pictures, the next call replaces


def predict_files(
    paths: Sequence[Path],
    weights: str | Path,
    output: Path,
    *,
    formats: Sequence[str] | None = None,
    score_threshold: ScoreThreshold = "auto",
    stride: int = 1,
    device: str = "auto",
    model: Model = "auto",
) -> None:
    """Write what a detector finds to a folder.

    What an earlier call wrote to the folder is replaced, also that of other pictures; anything else in the
    way, such as a file that was corrected since, is an error before the work begins.

    Args:
        paths: images, folders of images, and videos.
        weights: a run folder or a checkpoint.
        output: the folder to write to.
        formats: some of FORMATS; None: pictures.
        score_threshold: of :func:`detector.load`.
        stride: of a video, every so many frames.
        device: "auto", "cpu" or "cuda".
        model: of a run folder, see :func:`detector.inference.load.load`.

    Raises:
        UserError: an argument cannot be used, or a file is in the way; or, once all others are done, some
            files could not be read.
    """
    formats = formats or ("pictures",)
    if stride < 1:
        raise UserError(f"--stride is {stride}, expected 1 or more")
    with folder_lock(output):
        sources = find_pictures(paths, outside=output)
        weights = find_checkpoint(weights, model)
        check_regular(weights, "checkpoint")
        outputs = OutputFolder(output, _KEY)
        check_outputs(outputs, sources, formats, stride)
        predictor = load(weights, device, score_threshold=score_threshold, model=model)
        least = find_thresholds(weights, predictor.class_names, score_threshold).min()
        write_all(predictor, sources, outputs, formats, stride, float(least))
        outputs.remove_earlier()


def write_all(
    predictor: Predictor,
    sources: dict[str, Path],
    outputs: OutputFolder,
    formats: Sequence[str],
    stride: int,
    least: float,
) -> None:
    """Write what is found in each image or frame; files that cannot be read are named at the end.

    Args:
        least: the lowest score threshold of a class, to name where there are no boxes.
    """
    reviews, classes = [], predictor.class_names
    counts = [count_frames(path, stride) if is_video(path) else 1 for path in sources.values()]
    images = boxes = failures = 0
    best = 0.0  # score of all proposals, above the threshold or not
    with tqdm(total=sum(counts), unit="image", disable=None) as bar:
        for scored in score_sources(predictor, read_sources(sources, stride)):
            bar.update()
            if scored is None:
                failures += 1
                continue
            image, scores = scored
            found = predictor.detections(scores)
            images, boxes = images + 1, boxes + len(found)
            best = max(best, float(scores.scores.max()) if scores.scores.numel() else 0.0)
            name, size = scores.image_id, (image.shape[1], image.shape[2])
            if "pictures" in formats:
                picture = draw_detections(*drawable(image, found), None, classes, score_threshold=0.0)
                outputs.write(output_name(name, "pictures"), encode_image(picture, "jpeg", quality=90))
            if "coco" in formats:
                reviews.append(review_image(name, size, found, classes))
            if "voc" in formats:
                objects = detected_objects(found, size)
                content = encode_annotation(name, size, objects, folder="pictures", upright=True)
                outputs.write(output_name(name, "voc"), content)
    if "coco" in formats:
        outputs.write(output_name("", "coco"), encode_coco(reviews, classes))
    found_boxes, of_images = counted(boxes, "box", "boxes"), counted(images, "image", "images")
    print(f"{found_boxes} in {of_images}: {outputs.folder}")
    if images and not boxes:
        print(f"the best score is {best:.3g}, and a box must score more than --score-threshold {least:.3g}")
    check_all_read(failures)


def drawable(image: Tensor | LargeImage, found: Detections) -> tuple[Tensor, Detections]:
    """An image and its detections as they are drawn; one that is read in parts is reduced."""
    if isinstance(image, Tensor):
        return image, found
    reduced = image.reduced(_LARGEST_SIDE // 2)
    scale = reduced.shape[2] / image.shape[2], reduced.shape[1] / image.shape[1]
    return reduced, replace(found, boxes=scale_boxes(found.boxes, *scale))


def output_name(name: str, form: str) -> str:
    """The file, below the output folder, that one of FORMATS writes for the image or frame `name`."""
    if form == "coco":
        return "detections.json"
    folder, suffix = {"pictures": ("pictures", ".jpg"), "voc": ("Annotations", ".xml")}[form]
    return (PurePosixPath(folder) / name).with_suffix(suffix).as_posix()


def check_outputs(
    outputs: OutputFolder, sources: dict[str, Path], formats: Sequence[str], stride: int
) -> None:
    """Raise a UserError, before any work, where a file to write is an input or one that others made."""
    names = []
    for name, path in sources.items():
        if is_video(path):
            names += [frame_name(name, i * stride) for i in range(count_frames(path, stride))]
        else:
            names.append(name)
    files = {output_name(name, form) for name in names for form in formats}
    inputs = {path.resolve() for path in sources.values()}
    for file in sorted(files):
        if outputs.path(file).resolve() in inputs:
            raise UserError(
                f"{outputs.path(file)} is one of the input pictures and would be replaced: "
                "name another folder to write to (--output)"
            )
    outputs.check(sorted(files))


def run(options: Namespace) -> None:
    if options.weights is None:
        options.weights, *options.paths = options.paths
    if not options.paths:
        raise UserError(f"PICTURES is missing: detector predict {options.weights} and a folder of pictures")
    predict_files(**vars(options))
