"""Trains both kinds of students on the same pseudo boxes of Toybox, for the same steps, and measures int8.

    python benchmarks/one_stage_toybox.py runs/toybox_pcl runs/one_stage [--steps 300]

The first folder is the run of a weak detector, the second one is written to; the same command continues.
Writes benchmarks/results/one_stage_toybox_cpu.json: for each student the seconds of training, and the
mAP50 and size of the network, of its ONNX file, and of that with int8 convolutions.
"""

import argparse
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from measure import report
from torch import Tensor

from detector.commands.export import make_network
from detector.data.build import build_dataset
from detector.data.images import open_image
from detector.engine.checkpoint import load_checkpoint
from detector.inference.export import load_program, save_program
from detector.inference.exported_student import INPUTS, OUTPUTS, export_student
from detector.inference.load import load, read_run
from detector.inference.quantize import mean_ap, quantize_onnx, spread
from detector.self_training.self_train import self_train

CALIBRATION = 100  # training images


@dataclass(frozen=True)
class Row:
    case: str
    steps: int
    train_seconds: float
    images: int  # of the test
    mAP50: float
    onnx_mAP50: float
    int8_mAP50: float
    onnx_megabytes: float
    int8_megabytes: float


def train(run: Path, kind: str, steps: int, folder: Path) -> Path:
    """The run folder of a student; both have the pseudo boxes of the first."""
    output, first, own = folder / kind, folder / "faster_rcnn/self_train", folder / kind / "self_train"
    if kind != "faster_rcnn" and not own.exists():
        shutil.copytree(first / "pseudo", own / "pseudo")
        shutil.copy(first / "pseudo_origin.json", own)
    keys = {"SELF_TRAIN.DETECTOR": kind, "SELF_TRAIN.MAX_ITER": steps, "OUTPUT_DIR": output}
    keys |= {"SOLVER.CHECKPOINT_PERIOD": 50}
    words = [str(word) for pair in keys.items() for word in pair]
    return self_train(str(run / "config.yaml"), words, [str(run / "model_final.pt")], True)


def measure(output: Path, kind: str, steps: int) -> Row:
    weights, _, cfg = read_run(output, model="student")
    predictor = load(weights, "cpu", score_threshold=None)
    path, small = output / "network.onnx", output / "int8.onnx"
    train_set, test_set = (
        build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split)
    )
    if not small.exists():
        with torch.no_grad():
            program = export_student(make_network(predictor.model))
        save_program(program, "onnx", path, inputs=INPUTS, outputs=OUTPUTS)
        images = [train_set.image_path(i) for i in range(len(train_set))]
        quantize_onnx(path, small, map(open_image, spread(images, CALIBRATION)))

    def eager(images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = predictor(images[0])  # alone, so without padding
        return found.boxes, found.scores, found.labels, torch.zeros_like(found.labels)

    networks = eager, load_program("onnx", path), load_program("onnx", small)
    points = [mean_ap(network, test_set, len(test_set))[0] for network in networks]
    sizes = [file.stat().st_size / 1e6 for file in (path, small)]
    seconds = load_checkpoint(weights)["train_seconds"]
    return Row(kind, steps, seconds, len(test_set), *points, *sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    rows = []
    for kind in ("faster_rcnn", "fcos"):
        done = options.folder / f"{kind}_{options.steps}.json"
        if not done.exists():
            output = train(options.run, kind, options.steps, options.folder)
            done.write_text(json.dumps(asdict(measure(output, kind, options.steps))))
        rows.append(Row(**json.loads(done.read_text())))
        print(rows[-1], flush=True)
    report("one_stage_toybox", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
