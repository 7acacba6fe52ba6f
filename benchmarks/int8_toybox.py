"""What ONNX and int8 cost the two students of docs/model_zoo.md in AP, on the test images of Toybox.

    python tools/make_toybox.py datasets/toybox
    python benchmarks/int8_toybox.py FOLDER

The weights are found by name (docs/model_zoo.md), the files go to FOLDER. Ranges of activations are those on
100 training images. Images go through the networks one by one. `batched_mAP50` is that of `detector test`:
in int8_toybox_cpu.json of batches padded to the largest image, as before 0.2.0, today the same as eager.
Writes benchmarks/results/int8_toybox_cpu.json.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import report
from torch import Tensor

from detector.commands.export import make_network
from detector.data.build import build_splits
from detector.data.images import open_image
from detector.evaluation.voc import voc_ap
from detector.inference.export import load_program, save_program
from detector.inference.exported_student import INPUTS, OUTPUTS, export_student
from detector.inference.load import load, read_run
from detector.inference.quantize import mean_ap, quantize_onnx, spread
from detector.inference.results import annotations
from detector.self_training.networks import predict_all

CALIBRATION = 100  # training images


@dataclass(frozen=True)
class Row:
    case: str
    images: int  # of the test
    batched_mAP50: float
    mAP50: float
    onnx_mAP50: float
    int8_mAP50: float
    onnx_megabytes: float
    int8_megabytes: float


def measure(name: str, folder: Path) -> Row:
    predictor = load(name, "cpu", score_threshold=None)
    cfg = read_run(name)[2]
    train_set, test_set = build_splits(cfg)
    path, small = folder / f"{name}.onnx", folder / f"{name}_int8.onnx"
    with torch.no_grad():
        program = export_student(make_network(predictor.model))
    save_program(program, "onnx", path, inputs=INPUTS, outputs=OUTPUTS)
    images = [train_set.image_path(i) for i in range(len(train_set))]
    quantize_onnx(path, small, map(open_image, spread(images, CALIBRATION)))

    def eager(images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = predictor(images[0])  # alone, so without padding
        return found.boxes, found.scores, found.labels, torch.zeros_like(found.labels)

    with torch.no_grad():
        scores = predict_all(cfg, predictor.model, test_set, range(len(test_set)), predictor.precision)
        batched = voc_ap(
            list(map(predictor.postprocess, scores)),
            list(annotations(test_set).values()),
            len(test_set.class_names),
        )
    networks = eager, load_program("onnx", path), load_program("onnx", small)
    points = [mean_ap(network, test_set, len(test_set))[0] for network in networks]
    sizes = [file.stat().st_size / 1e6 for file in (path, small)]
    return Row(name, len(test_set), 100 * float(batched.mean()), *points, *sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = [measure(name, folder) for name in ("toybox_faster_rcnn", "toybox_fcos")]
    report("int8_toybox", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
