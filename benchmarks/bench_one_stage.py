"""Times students at 320 x 320 pixels, exported on one core or as they are on a GPU, beside others' networks.

    python benchmarks/bench_one_stage.py FOLDER [--repeats N]
    python benchmarks/bench_one_stage.py FOLDER --device cuda

Each network takes uint8 images of 320 x 320 pixels and gives boxes above a score of 0.3 after NMS.
Weights are random, so hardly a box is left: what is timed is the network and its proposals. 5 classes;
the students have EfficientNet-lite0. Networks take turns, and the fastest of the repeats of each counts.

On the CPU: one image, exported, in CPU seconds of this process with one thread, beside SSDLite320 and the
smallest YOLO of Ultralytics (pip install ultralytics). The files go to FOLDER, and are not made again.
On a GPU: batches of 1 and 16 images that are there already, in float32 and fp16, not exported.
Writes benchmarks/results/one_stage_{cpu,gpu}.json.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime
import torch
from measure import report
from torch import Tensor, nn
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn, ssdlite320_mobilenet_v3_large
from torchvision.ops import box_convert

from detector.commands.export import make_network
from detector.config import Settings, load_cfg
from detector.engine.precision import Precision
from detector.inference.export import save_program
from detector.inference.exported_student import INPUTS, OUTPUTS, export_student, pad_images
from detector.inference.quantize import quantize_onnx
from detector.layers import batched_nms
from detector.self_training.build import build_student, build_student_postprocess
from detector.self_training.scoring import score_batch

SIDE, THRESHOLD, CLASSES = 320, 0.3, 5
PRECISIONS = "float32", "fp16"


@dataclass(frozen=True)
class Row:
    case: str
    parameters_million: float
    megabytes: float  # of the file
    ms: float  # of an image
    images_per_second: float


@dataclass(frozen=True)
class GPURow:
    case: str
    precision: str
    batch: int
    ms: float  # of a batch
    images_per_second: float


class SSDLite(nn.Module):
    """torchvision's model for torch.export, as its own code has numbers that depend on the image.

    It takes one image of its own size. As in torchvision: the 300 best places of each class, NMS at 0.55.
    """

    def __init__(self) -> None:
        super().__init__()
        options = {"weights": None, "weights_backbone": None, "num_classes": CLASSES + 1}
        self.model = ssdlite320_mobilenet_v3_large(**options).eval()
        images = self.model.transform([torch.zeros(3, SIDE, SIDE)])[0]
        (self.anchors,) = self.model.anchor_generator(
            images, list(self.model.backbone(images.tensors).values())
        )

    def forward(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        model = self.model
        found = model.head(list(model.backbone((images.float() / 255 - 0.5) / 0.5).values()))
        boxes = model.box_coder.decode_single(found["bbox_regression"][0], self.anchors).clamp(0, SIDE)
        scores, rows = found["cls_logits"][0].softmax(dim=1)[:, 1:].topk(model.topk_candidates, dim=0)
        places, labels = (scores > THRESHOLD).nonzero().unbind(dim=1)
        boxes, scores = boxes[rows[places, labels]], scores[places, labels]
        keep = batched_nms(boxes, scores, labels, model.nms_thresh)[: model.detections_per_img]
        return boxes[keep], scores[keep], labels[keep], torch.zeros_like(labels[keep])


class YOLO(nn.Module):
    """A model of Ultralytics for one image of its own size; as there: NMS at 0.7, 300 boxes at most."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from ultralytics.nn.tasks import DetectionModel

        model = DetectionModel(f"{name}.yaml", nc=CLASSES, verbose=False).eval()
        self.model = model.fuse(verbose=False)  # batch normalization within the convolutions
        self.model(torch.zeros(1, 3, SIDE, SIDE))  # makes the places that the scores are of

    def forward(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = self.model(images.float() / 255)[0][0].T
        places, labels = (found[:, 4:] > THRESHOLD).nonzero().unbind(dim=1)
        boxes, scores = box_convert(found[places, :4], "cxcywh", "xyxy"), found[places, 4 + labels]
        keep = batched_nms(boxes, scores, labels, 0.7)[:300]
        return boxes[keep], scores[keep], labels[keep], torch.zeros_like(labels[keep])


def students() -> dict[str, Settings]:
    """The configs of the students by name."""
    shared = ("SELF_TRAIN.SIZES", (SIDE,), "TEST.SCORE_THRESHOLD", THRESHOLD)
    made = {}
    for kind, channels in (("fcos", 64), ("fcos", 128), ("faster_rcnn", 128), ("faster_rcnn", 256)):
        words = ("SELF_TRAIN.DETECTOR", kind, "SELF_TRAIN.CHANNELS", channels, *shared)
        made[f"{kind}, {channels} channels"] = load_cfg("photos_pcl_lite0", words)
    return made


def on_a_gpu(device: torch.device, repeats: int) -> list[GPURow]:
    images = [torch.randint(256, (3, SIDE, SIDE)).byte().to(device) for _ in range(16)]
    calls: dict[str, Callable[[list[Tensor], Precision], object]] = {}
    for name, cfg in students().items():
        model, postprocess = build_student(cfg, pretrained=False), build_student_postprocess(cfg.test)
        model.eval().to(device)

        def find(batch, precision, model=model, postprocess=postprocess):
            names = [""] * len(batch)
            return [*map(postprocess, score_batch(model, batch, names, device=device, precision=precision))]

        calls[name] = find
    for build in (ssdlite320_mobilenet_v3_large, fasterrcnn_mobilenet_v3_large_320_fpn):
        model = build(weights=None, weights_backbone=None, num_classes=CLASSES + 1).eval().to(device)

        def run(batch, precision, model=model):
            with precision.autocast():
                return model([image.float() / 255 for image in batch])

        calls[f"torchvision {build.__name__}"] = run
    seconds: dict[tuple[str, str, int], float] = {}
    with torch.no_grad():
        for _ in range(repeats):
            for name, call in calls.items():
                for precision in PRECISIONS:
                    for batch in (1, 16):
                        torch.cuda.synchronize()
                        begin = time.perf_counter()
                        call(images[:batch], Precision(precision, device))
                        torch.cuda.synchronize()
                        key, passed = (name, precision, batch), time.perf_counter() - begin
                        seconds[key] = min(passed, seconds.get(key, passed))
    return [GPURow(*key, 1e3 * best, key[2] / best) for key, best in seconds.items()]


def make_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def export(network: nn.Module, path: Path) -> None:
    with torch.no_grad():
        if isinstance(network, SSDLite | YOLO):
            program = torch.export.export(network.eval(), pad_images([torch.zeros(3, SIDE, SIDE).byte()]))
        else:
            program = export_student(network)
    save_program(program, "onnx", path, inputs=INPUTS, outputs=OUTPUTS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("folder", type=Path)
    folder, repeats = (options := parser.parse_args()).folder, options.repeats
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if options.device == "cuda":
        device = torch.device("cuda")
        report("one_stage", device, on_a_gpu(device, repeats))
        return
    images = [torch.randint(256, (3, SIDE, SIDE)).byte() for _ in range(8)]
    padded = [zip(INPUTS, pad_images([image]), strict=True) for image in images]
    inputs = [{name: each.numpy() for name, each in pairs} for pairs in padded]
    sessions, sizes, parameters = {}, {}, {}
    folder.mkdir(parents=True, exist_ok=True)
    networks: dict[str, nn.Module] = {
        name: make_network(build_student(cfg, pretrained=False).eval()) for name, cfg in students().items()
    }
    networks["torchvision ssdlite320_mobilenet_v3_large"] = SSDLite()
    networks |= {f"Ultralytics {name}": YOLO(name) for name in ("yolo11n", "yolo26n")}
    for name, network in networks.items():
        path, small = (folder / f"{name.replace(', ', '_')}{suffix}" for suffix in (".onnx", "_int8.onnx"))
        if not small.exists():
            export(network, path)
            quantize_onnx(path, small, images)
        for case, file in ((name, path), (f"{name}, int8", small)):
            sessions[case], sizes[case] = make_session(file), file.stat().st_size / 1e6
            parameters[case] = sum(each.numel() for each in network.parameters()) / 1e6
        print(f"exported {name}", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(repeats):
        for name, session in sessions.items():
            begin = time.process_time()
            session.run(None, inputs[turn % len(inputs)])
            seconds[name].append(time.process_time() - begin)
    rows = [
        Row(name, parameters[name], sizes[name], 1e3 * min(each), 1 / min(each))
        for name, each in seconds.items()
    ]
    report("one_stage", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
