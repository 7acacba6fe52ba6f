"""The mean of several weak detectors beside each of them: AP50 on the test split, and pseudo boxes.

    python benchmarks/mean_of_detectors.py NAME RUN RUN [RUN ...]

The runs are folders of `detector train` with one data set and the same proposals. Their scores are averaged
as by `detector self-train --weights FILE --weights FILE`, and pseudo boxes are chosen by the keys SELF_TRAIN
of configs/photos_pcl_lite0.yaml. Writes benchmarks/results/mean_of_detectors_NAME.json.
"""

import json
import sys
from datetime import datetime, timezone
from itertools import combinations
from pathlib import Path

import torch
from methods import ROOT
from one_recipe import PLAIN

from detector.config import load_cfg
from detector.data.build import build_dataset, build_training_set
from detector.data.datasets.annotated import AnnotatedImages
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.evaluation.voc import voc_ap
from detector.modeling.build import build_postprocess
from detector.self_training.build import build_pseudo_boxes
from detector.self_training.choose import agreement, mean_scores
from detector.self_training.networks import predict_all, restore_network
from detector.structures import Annotation, Scores
from detector.utils.distributed import find_device


def main(name: str, runs: list[Path]) -> None:
    cfg = load_cfg(runs[0] / "config.yaml", PLAIN)
    train, test = (build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split))
    device = find_device(cfg.device)
    found: dict[Path, list[list[Scores]]] = {}  # of all images of both splits
    for run in runs:
        own, file = load_cfg(run / "config.yaml"), run / "model_final.pt"
        model = restore_network(own, load_checkpoint(file), file).to(device)
        precision = Precision(own.precision, device)
        found[run] = [
            list(predict_all(own, model, data, range(len(data)), precision)) for data in (train, test)
        ]
    rows = []
    for count in range(1, len(runs) + 1):
        for group in combinations(runs, count):
            of_train, of_test = (
                [mean_scores(image) for image in zip(*(found[run][split] for run in group), strict=True)]
                for split in (0, 1)
            )
            choose = build_pseudo_boxes(cfg.self_train, build_training_set(cfg), of_student=False)
            postprocess = build_postprocess(cfg.test)
            pseudo = [choose(index, scores) for index, scores in enumerate(of_train)]
            ap = voc_ap(list(map(postprocess, of_test)), truth(test), len(cfg.datasets.classes))
            row = {"detectors": [run.name for run in group], "mAP50": 100 * float(ap.mean())}
            rows.append(row | {"pseudo_boxes": agreement(pseudo, truth(train))})
            print(json.dumps(rows[-1]))
    made_by = json.loads((runs[0] / "run.json").read_text())
    kept = {key: made_by[key] for key in ("device_name", "packages", "commit")}
    content = {"date": datetime.now(timezone.utc).date().isoformat(), **kept, "rows": rows}
    path = ROOT / f"benchmarks/results/mean_of_detectors_{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")


def truth(dataset: AnnotatedImages) -> list[Annotation | None]:
    return [dataset.annotation(i) for i in range(len(dataset))]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with torch.no_grad():
        main(sys.argv[1], [Path(run) for run in sys.argv[2:]])
