"""Times the stages of detector.load's predictor on one CPU core.

    python benchmarks/bench_predict.py --device cpu

Data: Toybox with configs/toybox_pcl.yaml, and photographs of datasets/photos, resized to 500 x 375 pixels,
with configs/photos_pcl_lite0.yaml, both unchanged (4 sizes, each also flipped) and with a single test pass.
Weights are random; they affect only the number of boxes in NMS, which with TEST.SCORE_THRESHOLD 1e-5 is
nearly all of them. CPU time is measured, so other load hardly matters.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import torch
from measure import device_parser, report
from PIL import Image
from torch import Tensor

from detector.config import load_cfg
from detector.data.images import open_image
from detector.data.loader import collate
from detector.data.toybox import draw_toybox
from detector.inference.load import build_predictor
from detector.inference.predictor import Predictor
from detector.modeling.build import build_model
from detector.structures import Batch, Scores

PHOTOS = Path("datasets/photos/JPEGImages")
IMAGES = 8
ONE_PASS = ("INPUT.TEST_SIZES", (480,), "INPUT.TEST_FLIP", False)


@dataclass(frozen=True)
class Row:
    """Mean CPU milliseconds per image."""

    case: str
    passes: int
    proposals: int  # mean per image
    read_ms: float  # decode, resize, flip, normalize
    search_ms: float  # proposals
    backbone_ms: float
    head_ms: float  # RoI pooling, fully connected layers, streams
    nms_ms: float
    total_ms: float
    images_per_second: float


class Clock:
    """Accumulates the CPU time of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, part: str, call: Callable):
        begin = time.process_time()
        result = call()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - begin
        return result


@torch.no_grad()
def predict_by_part(predictor: Predictor, path: Path, clock: Clock) -> int:
    """Run the stages of `predictor(path)`; returns the number of proposals."""
    image = clock("read", partial(open_image, path))
    found = clock("search", lambda: predictor.find(image.permute(1, 2, 0).numpy()))
    views = clock("read", lambda: predictor.views(image, found))
    model, passes = predictor.model, []
    for sample in views.samples:
        batch = clock("read", lambda sample=sample: collate([sample]).to(predictor.device))
        features = clock("backbone", partial(model.features, batch.images))
        passes.append(clock("head", partial(score, model, features, batch)))
    boxes = views.proposals[:, None].expand(-1, len(predictor.class_names), 4)
    scores = Scores(views.image_id, boxes, torch.stack(passes).mean(dim=0))
    clock("nms", lambda: predictor.postprocess(scores))
    return len(views.proposals)


def score(model: torch.nn.Module, features: Tensor, batch: Batch) -> Tensor:
    return model.head(model.box_features(features, batch.rois), batch.counts).scores()


def bench(case: str, config: str, words: Sequence[object], paths: Sequence[Path]) -> Row:
    cfg = load_cfg(config, words)
    predictor = build_predictor(cfg, build_model(cfg), torch.device("cpu"))
    predict_by_part(predictor, paths[0], Clock())  # warm up
    clock = Clock()
    proposals = [predict_by_part(predictor, path, clock) for path in paths]
    ms = {part: 1e3 * seconds / len(paths) for part, seconds in clock.seconds.items()}
    total = sum(ms.values())
    return Row(
        case,
        len(predictor.transforms),
        round(sum(proposals) / len(paths)),
        ms["read"],
        ms["search"],
        ms["backbone"],
        ms["head"],
        ms["nms"],
        total,
        1e3 / total,
    )


def main() -> None:
    if device_parser(__doc__).parse_args().device == "cuda":
        return  # CPU only
    if not PHOTOS.is_dir():
        print(f"{PHOTOS} does not exist; configs/photos_pcl_lite0.yaml explains how to create it")
        return
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    photos, toybox = "configs/photos_pcl_lite0.yaml", "configs/toybox_pcl.yaml"
    with tempfile.TemporaryDirectory() as folder:
        draw_toybox(Path(folder, "toybox"), train=1, test=IMAGES)
        drawn = sorted(Path(folder, "toybox", "JPEGImages").iterdir())[:IMAGES]
        taken = [Path(folder, f"{i:02d}.jpg") for i in range(IMAGES)]
        for source, path in zip(sorted(PHOTOS.iterdir()), taken, strict=False):
            Image.open(source).convert("RGB").resize((500, 375)).save(path, quality=90)
        rows = [
            bench("toybox, 160 x 160", toybox, (), drawn),
            bench("photographs, 500 x 375", photos, (), taken),
            bench("photographs, 500 x 375, one pass", photos, ONE_PASS, taken),
        ]
    report("predict", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
