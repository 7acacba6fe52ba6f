"""What a detector learns while a person reviews: AP on the test split after each round of `detector review`.

    python benchmarks/review_learning.py runs/demo --rounds 6 --save

Images come in the order of `detector suggest`, and the person accepts the ground-truth boxes. Beside it is
the curve of the page: AP on reviewed images that are held out.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import print_table, write_result
from review_actions import objects_of

from detector.config import Settings, load_cfg
from detector.data.build import build_dataset, build_training_set
from detector.engine.precision import Precision
from detector.engine.run_folder import start_run
from detector.evaluation.voc import voc_ap
from detector.inference.load import find_checkpoint
from detector.modeling.build import build_postprocess
from detector.review.rounds import Rounds
from detector.review.session import open_session
from detector.review.store import Store
from detector.self_training.build import build_student_postprocess
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.networks import predict_all


@dataclass(frozen=True)
class Learned:
    """The detector after a round."""

    images: int  # reviewed
    boxes_right: float  # share of the boxes shown in the last images that needed no correction
    held_out: int
    ap50_held_out: float | None
    ap50_held_out_first: float | None  # of the first detector on the same images
    ap50_test: float
    kept: bool
    seconds: float  # of the round


def review(store: Store, count: int, objects: dict[str, list[tuple[str, list[float]]]]) -> float:
    """Accept the objects of the next images; the share of the shown boxes with IoU 0.5 to one of them."""
    right = []
    for image in store.next_images("ann", count):
        left = list(objects[image["name"]])
        actions: list[dict[str, Any]] = []
        for box in image["start"]["boxes"]:
            if (box["score"] or 1) < 0.3:
                continue
            same = [each for each in left if each[0] == box["label"] and _iou(each[1], box["box"]) >= 0.5]
            right.append(bool(same))
            if same:
                left.remove(same[0])
        actions += [{"kind": "reject", "id": box["id"]} for box in image["start"]["boxes"]]
        for number, (label, target) in enumerate(objects[image["name"]]):
            actions.append({"kind": "add", "id": f"g{number}", "label": label, "box": target})
        actions.append({"kind": "accept_all", "complete": True})
        keyed = [(f"{image['id']}-{number}", action) for number, action in enumerate(actions)]
        store.record(image["id"], "ann", keyed)
    return statistics.mean(right) if right else 0.0


def _iou(box: list[float], other: list[float]) -> float:
    sides = [min(box[i + 2], other[i + 2]) - max(box[i], other[i]) for i in (0, 1)]
    shared = max(0.0, sides[0]) * max(0.0, sides[1])
    areas = [(each[2] - each[0]) * (each[3] - each[1]) for each in (box, other)]
    return shared / (sum(areas) - shared)


def test_ap(cfg: Settings, rounds: Rounds) -> float:
    """AP50 in percent on the test split."""
    dataset, network = build_dataset(cfg, cfg.datasets.test_split), rounds.now.network
    student = isinstance(network, FasterRCNN)
    finish = build_student_postprocess(cfg.test) if student else build_postprocess(cfg.test)
    precision = Precision(cfg.precision, rounds.device)
    scores = predict_all(cfg, network, dataset, range(len(dataset)), precision)
    found = [finish(each.to("cpu")) for each in scores]
    truth = [dataset.annotation(index) for index in range(len(dataset))]
    return 100 * float(np.nanmean(voc_ap(found, [each for each in truth if each], len(dataset.class_names))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="a run with ground-truth boxes in both splits")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--every", type=int, default=10, help="images of a round (default: 10)")
    parser.add_argument("--save", action="store_true", help="write the result file")
    options = parser.parse_args()
    cfg = load_cfg(options.run, ["DATASETS.WORKERS", 0])
    objects = objects_of(build_dataset(cfg, cfg.datasets.train_split))
    with tempfile.TemporaryDirectory() as folder:
        store = open_session(options.run, (), file=Path(folder, "review.sqlite")).store
        learned = Path(folder, "learned")
        device = start_run(cfg, learned)
        weights = find_checkpoint(cfg.output_dir)
        rounds = Rounds(cfg, store, build_training_set(cfg), weights, learned, device)
        rows = [Learned(0, 0.0, 0, None, None, test_ap(cfg, rounds), True, 0.0)]
        for _ in range(options.rounds):
            right = review(store, options.every, objects)
            begin = time.perf_counter()
            found = rounds.take()
            seconds = time.perf_counter() - begin
            rounds.improve(options.every)  # those that come next; the process does all
            words = (found["images"], right, found["held_out"], found["ap"], found["ap_first"])
            rows.append(Learned(*words, test_ap(cfg, rounds), found["kept"], seconds))
            print_table(rows)
    if options.save:
        write_result("review_learning", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
