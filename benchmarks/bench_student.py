"""Times prediction with the Faster R-CNN of self-training, beside the weak detector and torchvision's models.

    python benchmarks/bench_student.py --device cpu
    python benchmarks/bench_student.py --device cuda

Photographs of datasets/photos, whose shorter side is resized to 400 pixels. On the CPU: one image at a time
on one core, from the file to the boxes, in CPU time, so other load hardly matters. On a GPU: batches of 16
images that were read before, in wall-clock time. Weights are random, so that all networks find as many boxes
as they are allowed to, which is the worst case.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import device_parser, report
from torch import Tensor, nn
from torchvision.models import detection

from detector.config import load_cfg
from detector.data.images import open_image
from detector.inference.load import build_predictor
from detector.inference.predictor import Predictor
from detector.modeling.build import build_model
from detector.self_training.build import build_student
from detector.self_training.scoring import score_batch

PHOTOS = Path("datasets/photos/JPEGImages")
IMAGES, BATCH, SIDE = 32, 16, 400
CONFIG = "configs/photos_pcl_lite0.yaml"
CLASSES = 5


@dataclass(frozen=True)
class Row:
    case: str
    parameters_million: float
    batch: int
    ms: float  # of an image
    images_per_second: float


def predictor(device: torch.device, words: Sequence[object], *, student: bool) -> Predictor:
    cfg = load_cfg(CONFIG, words)
    model = build_student(cfg, pretrained=False) if student else build_model(cfg)
    return build_predictor(cfg, model, device)


def baseline(build: Callable[..., nn.Module], device: torch.device) -> nn.Module:
    model = build(weights=None, weights_backbone=None, num_classes=CLASSES + 1, min_size=SIDE, max_size=800)
    return model.eval().to(device)


@torch.no_grad()
def time_one_by_one(call: Callable[[Tensor], object], paths: Sequence[Path]) -> float:
    """Mean CPU seconds of an image, from the file to its boxes."""
    call(open_image(paths[0]))  # warm up
    begin = time.process_time()
    for path in paths:
        call(open_image(path))
    return (time.process_time() - begin) / len(paths)


@torch.no_grad()
def time_batches(call: Callable[[Sequence[Tensor]], object], images: Sequence[Tensor]) -> float:
    """Mean seconds of an image, of the best of three passes over all batches."""
    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    call(batches[0])  # warm up
    passes = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for batch in batches:
            call(batch)
        torch.cuda.synchronize()
        passes.append((time.perf_counter() - begin) / len(images))
    return min(passes)


def find_in_batch(found: Predictor, images: Sequence[Tensor]) -> list[object]:
    names = [str(i) for i in range(len(images))]
    options = {"device": found.device, "precision": found.precision}
    return [found.detections(scores) for scores in score_batch(found.model, images, names, **options)]


def main() -> None:
    device = torch.device(device_parser(__doc__).parse_args().device)
    if not PHOTOS.is_dir():
        print(f"{PHOTOS} does not exist; {CONFIG} explains how to create it")
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    paths = sorted(PHOTOS.iterdir())[:IMAGES]
    variants = {
        "student, efficientnet-lite0": (),
        "student, efficientnet-lite0, 128 channels": ("SELF_TRAIN.CHANNELS", 128),
        "student, mobilenet_v3": ("SELF_TRAIN.BACKBONE", "mobilenet_v3"),
    }
    sizes = "SELF_TRAIN.SIZES", (SIDE,)
    students = {name: predictor(device, (*sizes, *words), student=True) for name, words in variants.items()}
    baselines = {
        "torchvision, mobilenet_v3_large_320_fpn": detection.fasterrcnn_mobilenet_v3_large_320_fpn,
        "torchvision, mobilenet_v3_large_fpn": detection.fasterrcnn_mobilenet_v3_large_fpn,
    }
    models = {name: found.model for name, found in students.items()}
    models |= {name: baseline(build, device) for name, build in baselines.items()}
    rows, seconds = [], {}
    if device.type == "cpu":
        one_pass = "INPUT.TEST_SIZES", (480,), "INPUT.TEST_FLIP", False
        weak = {
            "weak detector, 8 passes": predictor(device, (), student=False),
            "weak detector, one pass": predictor(device, one_pass, student=False),
        }
        models |= {name: found.model for name, found in weak.items()}
        calls = {**students, **weak}
        calls |= {name: lambda image, model=models[name]: model([image.float() / 255]) for name in baselines}
        seconds = {name: time_one_by_one(call, paths) for name, call in calls.items()}
    else:
        images = [open_image(path).to(device) for path in paths * 4]
        for name, found in students.items():
            seconds[name] = time_batches(lambda batch, found=found: find_in_batch(found, batch), images)
        for name in baselines:
            model = models[name]
            seconds[name] = time_batches(
                lambda batch, model=model: model([image.float() / 255 for image in batch]), images
            )
    for name, each in seconds.items():
        millions = sum(parameter.numel() for parameter in models[name].parameters()) / 1e6
        rows.append(Row(name, millions, 1 if device.type == "cpu" else BATCH, 1e3 * each, 1 / each))
    report("student", device, rows)


if __name__ == "__main__":
    main()
