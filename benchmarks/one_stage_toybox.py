"""Trains both kinds of students on the same pseudo boxes of Toybox, for the same steps, and measures int8.

    detector demo runs/demo_of_detectors --no-browser
    python benchmarks/one_stage_toybox.py runs/demo_of_detectors/run [--steps 300]

The weak detector is that of the run. Writes benchmarks/results/methods_one_stage_toybox.json: mAP50 and the
seconds of training of each student, and the mAP50 of its ONNX file in float32 and in int8.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import report

from detector.commands.export import make_network
from detector.data.build import build_dataset
from detector.data.images import open_image
from detector.engine.checkpoint import load_checkpoint
from detector.inference.export import load_program, save_program
from detector.inference.exported_student import INPUTS, OUTPUTS, export_student
from detector.inference.load import load, read_run
from detector.inference.quantize import mean_ap, quantize_onnx
from detector.inference.test import evaluate
from detector.self_training.self_train import self_train

CALIBRATION = 64  # training images


@dataclass(frozen=True)
class Row:
    case: str
    seed: int
    steps: int
    train_seconds: float
    mAP50: float
    onnx_mAP50: float
    int8_mAP50: float
    onnx_megabytes: float
    int8_megabytes: float


def run_one(run: Path, kind: str, steps: int, seed: int, folder: Path) -> Row:
    keys = {
        "SELF_TRAIN.DETECTOR": kind,
        "SELF_TRAIN.MAX_ITER": steps,
        "SEED": seed,
        "OUTPUT_DIR": folder / kind,
    }
    words = [str(word) for pair in keys.items() for word in pair]
    output = self_train(str(run / "config.yaml"), words, [str(run / "model_final.pt")], False)
    metrics = evaluate(output, model="student")
    weights, _, cfg = read_run(output, model="student")
    with torch.no_grad():
        program = export_student(make_network(load(weights, "cpu", score_threshold=None).model))
    path, small = folder / f"{kind}.onnx", folder / f"{kind}_int8.onnx"
    save_program(program, "onnx", path, inputs=INPUTS, outputs=OUTPUTS)
    train, test = (build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split))
    quantize_onnx(path, small, (open_image(train.image_path(i)) for i in range(CALIBRATION)))
    points = [mean_ap(load_program("onnx", file), test, len(test))[0] for file in (path, small)]
    sizes = [file.stat().st_size / 1e6 for file in (path, small)]
    seconds = load_checkpoint(weights)["train_seconds"]
    return Row(kind, seed, steps, seconds, metrics["mAP50"], *points, *sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            run_one(options.run, kind, options.steps, 0, Path(folder)) for kind in ("faster_rcnn", "fcos")
        ]
    report("methods_one_stage_toybox", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
