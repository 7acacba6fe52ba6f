"""`detector.evaluate`, and the command `detector test`."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from detector.config import Settings, load_cfg
from detector.config.yaml_files import Overrides
from detector.data.build import build_dataset, name_classes
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.loader import is_large
from detector.data.proposals import load_proposals
from detector.data.reviewed import label_counts
from detector.data.training_set import describe_truth
from detector.engine.build import wants_coco_metrics
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names, start_run
from detector.evaluation.pictures import write_pictures
from detector.evaluation.summary import encode_detections, encode_json, metrics_table
from detector.inference import thresholds
from detector.inference.image_results import remove_results, test_images
from detector.inference.load import choose_run
from detector.inference.measured import compare, stands_for, unmeasured
from detector.inference.results import (
    OWN_TEST,
    annotations,
    choose_outputs,
    describe_student,
    describe_test,
    find_run_folder,
    ignored_keys,
    image_label_warning,
    measure,
    name_images,
    results_key,
)
from detector.inference.zoo import find_weights
from detector.modeling.build import build_postprocess
from detector.self_training.build import Student, build_student_postprocess
from detector.self_training.networks import Model, is_student, predict_all, restore_network
from detector.structures import Detections
from detector.utils.config_files import find_config
from detector.utils.distributed import find_device, gather, is_main, process_group, sync_errors
from detector.utils.errors import check_path
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

logger = logging.getLogger(__name__)


def evaluate(
    config: str | Path,
    overrides: Overrides = (),
    *,
    weights: str | Path | None = None,
    model: Model = "auto",
) -> dict[str, Any]:
    """Measure a trained detector: `detector.evaluate("runs/demo")["mAP50"]`.

    Writes metrics.json, detections.npz and pictures/ and prints a table. The test of a run, with its own
    model_final.pt and config.yaml, goes to the run folder. A test with other weights, or with keys that
    change the results, goes to a folder of its own below the run's folder `tests`, with its config.yaml.

    Args:
        config: a run folder, wherever it was moved to, or a config file, whose OUTPUT_DIR is the run folder
            of the weak detector.
        overrides: keys of the config to change, as in {"TEST.PICTURES": 0}; docs/config.md.
        weights: a checkpoint, or the name of trained weights (docs/model_zoo.md); None: model_final.pt of
            the run folder.
        model: of a run folder, "weak" or "student", the Faster R-CNN of self-training, whose run folder is
            self_train in it; "auto", if `weights` is None: the one that stands for the run, as in
            :func:`detector.load`.

    Returns:
        what metrics.json holds: AP on the test split, CorLoc on the training split, in percent, and more. All
        processes of one torchrun return it.

    Raises:
        UserError, OSError: the config, the weights or the data set cannot be used.
    """
    check_path("config", config, "a run folder or a config file")
    return run_test(config, overrides, weights, model)[1]


def run_test(
    config: str | Path, overrides: Overrides, weights: str | Path | None, model: Model
) -> tuple[Path, dict[str, Any]]:
    """The folder with the results, and the metrics; see :func:`evaluate`."""
    file = find_config(config if weights else choose_run(config, model))
    cfg = load_cfg(file, overrides)
    folder = find_run_folder(file, cfg.output_dir)
    with (
        warnings.catch_warnings(),  # the log takes them until the test has ended
        process_group(find_device(cfg.device), timeout=3600.0),  # another may have more proposals
    ):
        path = find_weights(weights) if weights else folder / "model_final.pt"
        return test(cfg, folder, path, model, overrides)


def test(
    cfg: Settings, folder: Path, weights: Path, kind: Model, overrides: Overrides
) -> tuple[Path, dict[str, Any]]:
    """Measure a checkpoint of the run in `folder`; the main process writes what :func:`evaluate` says.

    Args:
        overrides: keys that are in `cfg` already, and were given for this test.

    Returns:
        the folder with the results, and the metrics.
    """
    with ExitStack() as stack:
        with sync_errors():
            checkpoint = load_checkpoint(weights)
            with_coco = wants_coco_metrics(cfg.test.metrics, cfg.datasets.format)
            train_set = build_dataset(cfg, cfg.datasets.train_split)
            cfg = name_classes(cfg, train_set)
            check_class_names(cfg.datasets.classes, checkpoint, weights)
            student = is_student(checkpoint)
            key = results_key(cfg, weights, student)
            outputs = choose_outputs(cfg, folder, weights, key, student)
            stack.enter_context(folder_lock(outputs.folder))
            outputs.check(["metrics.json", "detections.npz", thresholds.FILE, "pictures/overview.png"])
            device = start_run(cfg, outputs.folder)
            model = restore_network(cfg, checkpoint, weights, kind)
            test_set = build_dataset(cfg, cfg.datasets.test_split)
        model.to(device)
        if ignored := ignored_keys(overrides, student):
            logger.warning("%s", ignored)
        network = model.kind if isinstance(model, Student) else cfg.model.method
        logger.info("testing %s, %s, after %d steps", weights, network, checkpoint["iteration"])
        if outputs.folder != folder:
            logger.info("other weights or keys than the run's own: the results go to %s", outputs.folder)
        precision, metrics = Precision(cfg.precision, device), None
        proposals = None if student else load_proposals(cfg.datasets.proposals)
        results = test_images(
            lambda left: predict_all(cfg, model, test_set, left, precision, proposals),
            test_set.image_ids,
            build_student_postprocess(cfg.test) if student else build_postprocess(cfg.test),
            path=outputs.folder / "results" / "test",
            key=key,
        )
        train_boxed = list(annotations(train_set))
        train_results = test_images(
            lambda left: predict_all(
                cfg, model, train_set, [train_boxed[i] for i in left], precision, proposals
            ),
            [train_set.image_ids[i] for i in train_boxed],
            None,
            path=outputs.folder / "results" / "train",
            key=key,
        )
        with sync_errors():
            if is_main():
                metrics = measure(results, test_set, train_results, train_set, with_coco)
                metrics |= describe_test(cfg, folder, weights, checkpoint, key)
                metrics["truth"] = describe_truth(test_set, train_set)
                metrics |= describe_student(cfg, weights.parent, train_set) if student else {}
                detections = results.map(lambda result: result.detections)
                write_figures(cfg, outputs, metrics, detections, test_set, train_set)
                remove_results(outputs.folder / "results", key)
        return outputs.folder, gather(metrics)[0]


def write_figures(
    cfg: Settings,
    outputs: OutputFolder,
    metrics: dict[str, Any],
    detections: Sequence[Detections],
    test_set: AnnotatedImages,
    train_set: AnnotatedImages,
) -> None:
    """Write what :func:`evaluate` says to `outputs`, and print the table."""
    if outputs.key != OWN_TEST:
        outputs.write("config.yaml", cfg.dump().encode())
    outputs.write("detections.npz", encode_detections(detections))
    chosen = thresholds.choose(test_set, detections)
    outputs.write(thresholds.FILE, thresholds.encode(chosen, test_set.class_names, metrics["weights_sha256"]))
    large = any(is_large(test_set, i) for i in range(len(test_set)))  # which no screen shows
    least = cfg.test.picture_score or torch.tensor([threshold.value for threshold in chosen])
    pictures = write_pictures(
        outputs, test_set, detections, count=0 if large else cfg.test.pictures, score_threshold=least
    )
    # Last, as `detector train --to detector` takes a run with this file for tested.
    path = outputs.write("metrics.json", encode_json(metrics))
    if doubt := unmeasured(metrics, test_set.name):
        logger.warning("%s", doubt)
    if annotations(test_set) or annotations(train_set):
        print(f"AP in percent on {name_images(test_set)}, CorLoc on {name_images(train_set)}")
        print(f"image AP, of labels without boxes, on {test_set.name}\n")
    else:
        print(
            f"image AP in percent on {test_set.name}: without ground-truth boxes only labels can be tested\n"
        )
    print(f"{metrics_table(metrics)}\n")
    if doubt := image_label_warning(metrics, label_counts(test_set), cfg.solver.backbone_lr_factor):
        logger.warning("%s", doubt)
    folder = outputs.folder.parent if outputs.folder.name == "self_train" else outputs.folder
    if comparison := compare(folder):
        print(f"compared  {comparison}")
    elif metrics["mAP50"] is not None and stands_for(folder)[1]:
        other = "weak" if outputs.folder.name == "self_train" else "student"
        print(f"compare   with detector test {folder} --model {other}, on the same boxes")
    print(f"boxes     {thresholds.in_words(chosen, test_set.class_names)}")
    print(f"figures   {path}")
    if pictures:
        above = f"{cfg.test.picture_score:g}" if cfg.test.picture_score else "that"
        print(f"pictures  {pictures[-1]}: boxes that score more than {above}")
