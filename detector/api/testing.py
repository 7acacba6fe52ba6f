"""`detector.evaluate`, and what tools/test_net.py does."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from tqdm import tqdm
from yacs.config import CfgNode

from detector.api.results import OWN_TEST, choose_outputs, find_run_folder, results_key
from detector.api.run_folder import check_class_names, start_run
from detector.build import build_precision, wants_coco_metrics
from detector.build_data import build_dataset, build_test_loader, name_classes
from detector.build_model import build_model, build_postprocess
from detector.config import changed_keys, load_cfg
from detector.data.annotated import AnnotatedImages
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.inference import predict
from detector.engine.precision import Precision
from detector.engine.results_file import remove_results
from detector.engine.testing import ImageResult, test_images
from detector.evaluation.coco import coco_ap
from detector.evaluation.detections_file import encode_detections
from detector.evaluation.pictures import write_pictures
from detector.evaluation.report import encode_json, metrics_table, summarize
from detector.evaluation.voc import corloc, image_ap, voc_ap
from detector.structures import Annotation, Detections, Scores
from detector.utils.config_files import find_config
from detector.utils.distributed import find_device, gather, is_main, process_group, together
from detector.utils.files import file_digest
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

logger = logging.getLogger(__name__)


def evaluate(
    config: str | Path,
    overrides: Mapping[str, object] | None = None,
    *,
    weights: str | Path | None = None,
) -> dict[str, Any]:
    """Measure a trained detector: `detector.evaluate("runs/demo")["mAP50"]`.

    Writes metrics.json, detections.npz and pictures/ and prints a table. The test of a run, with its own
    model_final.pt and config.yaml, goes to the run folder. A test with other weights, or with keys that
    change the results, goes to a folder of its own below the run's folder `tests`, with its config.yaml.

    Args:
        config: a run folder, wherever it was moved to, or a config file, whose OUTPUT_DIR is the run folder.
        overrides: keys of the config to change, as in {"TEST.PICTURES": 0}; see detector/config.py.
        weights: a checkpoint; None: model_final.pt of the run folder.

    Returns:
        what metrics.json holds: AP on the test split, CorLoc on the training split, in percent, and more. All
        processes of one torchrun return it.

    Raises:
        UserError, OSError: the config, the weights or the data set cannot be used.
    """
    return run(config, [word for pair in (overrides or {}).items() for word in pair], weights)


def run(
    config_file: str | Path, overrides: Sequence[object], weights: str | Path | None = None
) -> dict[str, Any]:
    """What tools/test_net.py does; see :func:`evaluate`."""
    file = find_config(config_file)
    cfg = load_cfg(file, overrides)
    folder = find_run_folder(file, cfg)
    with (
        warnings.catch_warnings(),  # the log takes them until the test has ended
        process_group(find_device(cfg.DEVICE), timeout=3600.0),  # another may have more proposals
    ):
        return test(cfg, folder, Path(weights) if weights else folder / "model_final.pt")


def test(cfg: CfgNode, folder: Path, weights: Path) -> dict[str, Any]:
    """Measure a checkpoint of the run in `folder`; the main process writes what :func:`evaluate` says."""
    with ExitStack() as stack:
        with together():
            checkpoint = load_checkpoint(weights)
            with_coco = wants_coco_metrics(cfg)
            train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
            cfg = name_classes(cfg, train_set)
            check_class_names(cfg, checkpoint, weights)
            key = results_key(cfg, weights)
            outputs = choose_outputs(cfg, folder, weights, key)
            stack.enter_context(folder_lock(outputs.folder))
            outputs.check(["metrics.json", "detections.npz", "pictures/overview.png"])
            device = start_run(cfg, outputs.folder)
            model = build_model(cfg)
            restore_model(model, checkpoint, weights)
            test_set = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
        model.to(device)
        logger.info("testing %s, %s, after %d steps", weights, cfg.MODEL.METHOD, checkpoint["iteration"])
        if outputs.folder != folder:
            logger.info("other weights or keys than the run's own: the results go to %s", outputs.folder)
        precision, metrics = build_precision(cfg, device), None
        results = test_images(
            lambda left: predict_all(cfg, model, test_set, left, precision),
            test_set.image_ids,
            build_postprocess(cfg),
            path=outputs.folder / "results" / "test",
            key=key,
        )
        train_boxed = list(annotations(train_set))
        train_results = test_images(
            lambda left: predict_all(cfg, model, train_set, [train_boxed[i] for i in left], precision),
            [train_set.image_ids[i] for i in train_boxed],
            None,
            path=outputs.folder / "results" / "train",
            key=key,
        )
        with together():
            if is_main():
                metrics = measure_results(results, test_set, train_results, train_set, with_coco)
                metrics |= describe_test(cfg, folder, weights, checkpoint)
                write_figures(
                    cfg, outputs, metrics, [each.detections for each in results], test_set, train_set
                )
                remove_results(outputs.folder / "results", key)
        return gather(metrics)[0]


def describe_test(cfg: CfgNode, folder: Path, weights: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics.json records of a test beside the figures: what they are of."""
    config = folder / "config.yaml"
    changed = changed_keys(load_cfg(config), cfg) if config.is_file() else {}
    return {
        "method": cfg.MODEL.METHOD,
        "weights": str(weights),
        "weights_sha256": file_digest(weights),
        "changed_keys": {key: value for key, value in changed.items() if key != "OUTPUT_DIR"},
        "iteration": checkpoint["iteration"],
        "train_seconds": checkpoint["train_seconds"],
    }


def write_figures(
    cfg: CfgNode,
    outputs: OutputFolder,
    metrics: dict[str, Any],
    detections: Sequence[Detections],
    test_set: AnnotatedImages,
    train_set: AnnotatedImages,
) -> None:
    """Write what :func:`evaluate` says to `outputs`, and print the table."""
    if outputs.key != OWN_TEST:
        outputs.write("config.yaml", cfg.dump().encode())
    path = outputs.write("metrics.json", encode_json(metrics))
    outputs.write("detections.npz", encode_detections(detections))
    options = {"count": cfg.TEST.PICTURES, "score_threshold": cfg.TEST.PICTURE_SCORE}
    pictures = write_pictures(outputs, test_set, detections, **options)
    print(f"AP in percent on {name_images(test_set)}, CorLoc on {name_images(train_set)}")
    print(f"image AP, of labels without boxes, on {test_set.name}\n\n{metrics_table(metrics)}\n")
    print(f"figures   {path}")
    if pictures:
        print(f"pictures  {pictures[-1]}")


def measure_results(
    results: Sequence[ImageResult],
    test_set: AnnotatedImages,
    train_results: Sequence[ImageResult],
    train_set: AnnotatedImages,
    with_coco: bool,
) -> dict[str, Any]:
    """The metrics of the results of all test images, and of the training images that have boxes."""
    labels = [test_set.labels(i) for i in range(len(test_set))]
    unknown = [each for i in range(len(test_set)) if (each := test_set.unknown(i)) is not None]
    return measure(
        [result.detections for result in results],
        test_set,
        [result.best_boxes for result in train_results],
        train_set,
        with_coco=with_coco,
        image_ap=image_ap([result.best_scores for result in results], labels, unknown or None),
    )


def measure(
    detections: Sequence[Detections],
    test_set: AnnotatedImages,
    best_boxes: Sequence[Tensor],
    train_set: AnnotatedImages,
    *,
    with_coco: bool,
    image_ap: np.ndarray | None = None,
) -> dict[str, Any]:
    """AP on the test split, CorLoc on the training split; COCO's AP too where there is an engine for it.

    Args:
        detections: in all images of the test split; those without ground-truth boxes do not count.
        best_boxes: the highest-scoring box of each class, (C, 4), or (0, 4) without proposals, in each image
            of the training split that has boxes.
    """
    names = train_set.class_names
    found, truth = with_truth(detections, test_set)
    return summarize(
        names,
        voc_ap(found, truth, len(names)),
        voc_ap(found, truth, len(names), eleven_point=True),
        corloc(best_boxes, list(annotations(train_set).values()), len(names)),
        coco_ap(found, truth, len(names)) if with_coco and truth else {},
        image_ap,
    )


def annotations(dataset: AnnotatedImages) -> dict[int, Annotation]:
    """The ground-truth boxes of the images that have them: all, but in an image_labels set."""
    pairs = ((i, dataset.annotation(i)) for i in range(len(dataset)))
    return {i: annotation for i, annotation in pairs if annotation is not None}


def with_truth(
    detections: Sequence[Detections], dataset: AnnotatedImages
) -> tuple[list[Detections], list[Annotation]]:
    """Of the detections in all images those in images with boxes, and these boxes."""
    truth = annotations(dataset)
    return [detections[i] for i in truth], list(truth.values())


def name_images(dataset: AnnotatedImages) -> str:
    """What was measured: a data set, or the images of it that have boxes."""
    boxed = len(annotations(dataset))
    if boxed == len(dataset):
        return dataset.name
    if boxed == 0:
        return f"no image of {dataset.name}, as none has boxes"
    return f"{boxed} of {len(dataset)} images of {dataset.name}, those with boxes"


def predict_all(
    cfg: CfgNode,
    model: nn.Module,
    dataset: AnnotatedImages,
    indices: Sequence[int],
    precision: Precision,
) -> Iterator[Scores]:
    """The scores of the images of `indices`, on the device, behind a progress bar."""
    loader = build_test_loader(cfg, dataset, indices)
    results = predict(model, loader, device=precision.device, precision=precision, keep_on_device=True)
    bar = tqdm(results, total=len(indices), desc=dataset.name, unit="image", disable=not is_main() or None)
    return iter(bar)
