"""A training step like that of detector/engine/loop.py on synthetic input, which can be timed by parts."""

import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
import torchvision
from step_inputs import Shape, TrainedScores, synthetic_batch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.utils.flop_counter import FlopCounterMode

from detector.config import Settings, load_cfg
from detector.engine.build import build_optimizer
from detector.engine.precision import Precision, set_tf32
from detector.layers import reference
from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.build import build_criterion, build_model
from detector.structures import Batch
from detector.utils.reproducibility import seed_batch, seed_everything

CONFIG = Path(__file__).parents[1] / "configs" / "voc07_pcl_pytorch_vgg16.yaml"
PARTS = ["data", "backbone", "RoI", "head", "clusters", "losses"]
PARTS += ["backward head", "backward RoI", "backward backbone", "optimizer"]
FASTEST = ["PRECISION", "bf16", "CHANNELS_LAST", "True"]


def config(*words: str) -> Settings:
    return load_cfg(CONFIG, ["MODEL.WEIGHTS", "", "PRECISION", "float32", *words])


class Timeline:
    """Times the parts of a step; each `mark` ends the part that began at the previous mark."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self._marks: list[tuple[str, object]] = []

    def mark(self, name: str) -> None:
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append((name, event))
        else:
            self._marks.append((name, time.perf_counter()))

    def take(self) -> dict[str, float]:
        """Milliseconds since the last call, summed by part."""
        if self.on_gpu:
            torch.cuda.synchronize()
        parts: dict[str, float] = defaultdict(float)
        for (_, begin), (name, end) in zip(self._marks, self._marks[1:], strict=False):
            parts[name] += begin.elapsed_time(end) if self.on_gpu else (end - begin) * 1e3
        self._marks.clear()
        return parts


class StockPCL:
    """Baseline refinement: clusters by scikit-learn and numpy, the loss in plain PyTorch."""

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        from clusters_sklearn import cluster_streams  # only the baseline needs scikit-learn

        return cluster_streams(batch.rois[:, 1:], sources, batch.labels, batch.counts)

    def loss(self, probs: Tensor, found: ProposalClusters, counts: Tensor) -> Tensor:
        rows = [tensor.flatten(0, 1) for tensor in (probs, *found[:3])]
        losses = reference.pcl_loss(*rows, counts.repeat(len(probs)))
        return losses.view(len(probs), -1).mean(dim=1)


class StockRoIPool(nn.Module):
    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        return torchvision.ops.roi_pool(features, rois, 7, 1 / 8)


class Step:
    """The model, its optimizer and a batch; calling it makes one step. `stock`: use the baseline's parts."""

    def __init__(self, cfg: Settings, shape: Shape, device: torch.device, *, stock: bool = False) -> None:
        seed_everything(cfg.seed, cfg.deterministic)
        set_tf32(cfg.precision == "tf32")
        torch.backends.cudnn.benchmark = cfg.cudnn_benchmark
        self.cfg, self.shape, self.device = cfg, shape, device
        with device:
            self.model = build_model(cfg)
        self.model.to(device).train()
        self.criterion, self.precision = build_criterion(cfg), Precision(cfg.precision, device)
        self.optimizer = build_optimizer(cfg.solver, self.model)
        batch, scores = synthetic_batch(shape, len(cfg.datasets.classes))
        self.batch = batch.pin_memory() if device.type == "cuda" else batch
        if stock:
            self.model.box_features.pool = StockRoIPool()
            self.criterion.refinement = StockPCL()
        if shape.trained:
            self.criterion.refinement = TrainedScores(self.criterion.refinement, scores.to(device))
        self.iteration = 0
        self.timeline: Timeline | None = None

    def losses(self) -> Tensor:
        batch = self.batch.to(self.device, non_blocking=True)
        self._mark("data")
        with self.precision.autocast():
            outputs = self.model(*batch.inputs)
        self._mark("head")
        losses = torch.stack(list(self.criterion(outputs, batch).values())).sum()
        self._mark("losses")
        return losses

    def __call__(self) -> Tensor:
        self.iteration += 1
        seed_batch(0, self.iteration)
        self._mark("between steps")
        loss = self.losses()
        scaler = self.precision.scaler
        scaler.scale(loss).backward()
        self._mark("backward backbone")
        scaler.unscale_(self.optimizer)
        get_total_norm(p.grad for p in self.model.parameters() if p.grad is not None)
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self._mark("optimizer")
        return loss.detach()

    def _mark(self, name: str) -> None:
        if self.timeline is not None:
            self.timeline.mark(name)

    def time(self, seconds: float) -> float:
        """Mean milliseconds of a step over about `seconds`, including host time that the device waits for."""
        for _ in range(2):
            self()
        repeats = max(2, round(seconds * 1e3 / self._time(1)))
        return self._time(repeats)

    def _time(self, repeats: int) -> float:
        self._wait()
        begin = time.perf_counter()
        for _ in range(repeats):
            self()
        self._wait()
        return (time.perf_counter() - begin) / repeats * 1e3

    def time_parts(self, repeats: int) -> dict[str, float]:
        """Median milliseconds of each part, by events in the device's queue; not with `COMPILE`."""
        self.timeline = Timeline(self.device)
        model, refinement = self.model, self.criterion.refinement
        model.backbone.register_forward_hook(self._after("backbone", "backward RoI"))
        model.box_features.pool.register_forward_hook(self._after("RoI", "backward head"))
        pcl = refinement.refinement if isinstance(refinement, TrainedScores) else refinement
        clusters = pcl.clusters

        def marked_clusters(*arguments):
            self._mark("losses")
            found = clusters(*arguments)
            self._mark("clusters")
            return found

        object.__setattr__(pcl, "clusters", marked_clusters)  # a frozen dataclass
        steps = []
        for i in range(repeats + 2):
            self()
            parts = self.timeline.take()
            steps += [parts] if i >= 2 else []
        self.timeline = None
        return {name: statistics.median(step[name] for step in steps) for name in PARTS}

    def _after(self, name: str, backward: str):
        def hook(_module, _inputs, output: Tensor) -> None:
            self._mark(name)
            if output.requires_grad:
                output.register_hook(lambda _: self._mark(backward))

        return hook

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak_memory(self) -> float:
        """Peak memory reserved by torch in two steps, in GB (10^9 bytes); 0 on the CPU."""
        if self.device.type != "cuda":
            return 0.0
        torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            self()
        return torch.cuda.max_memory_reserved() / 1e9

    def loss_without_dropout(self) -> float:
        """The loss of the batch without dropout, to be called before the first step."""
        dropouts = [module for module in self.model.modules() if isinstance(module, nn.Dropout)]
        shares = [module.p for module in dropouts]
        for module in dropouts:
            module.p = 0.0
        with torch.no_grad():
            loss = float(self.losses())
        for module, share in zip(dropouts, shares, strict=True):
            module.p = share
        return loss

    def flops(self) -> dict[str, float]:
        """Floating-point operations of the compute-bound parts; a multiply-add counts as two."""
        counts = {}
        batch = self.batch.to(self.device)
        model = self.model
        for name, call in (
            ("backbone", lambda: model.features(batch.images)),
            ("head", lambda: model.box_features.layers(self._pooled())),
        ):
            with FlopCounterMode(display=False) as counter:
                output = call()
            counts[name] = counter.get_total_flops()
            with FlopCounterMode(display=False) as counter:
                output.sum().backward()
            counts[f"backward {name}"] = counter.get_total_flops()
            model.zero_grad(set_to_none=True)
            del output
        return counts

    def _pooled(self) -> Tensor:
        features = self.model.box_features.layers[0].in_features
        rows = self.shape.batch * self.shape.proposals
        return torch.zeros(rows, features, device=self.device, requires_grad=True)

    def fewest_bytes(self) -> dict[str, float]:
        """Minimal bytes to read and write of the memory-bound parts."""
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        size = 4 if self.precision.dtype is None else 2
        shape, channels = self.shape, self.model.backbone.out_channels
        pooled = shape.batch * shape.proposals * self.model.box_features.layers[0].in_features
        features = shape.batch * channels * (shape.height // 8) * (shape.width // 8)
        rows = 3 * shape.batch * shape.proposals  # three streams
        return {
            "data": 2 * self.batch.images.nbytes,
            "RoI": (pooled + features) * size + 4 * pooled,  # argmax is int32
            "backward RoI": (pooled + features) * size + 4 * pooled,
            "clusters": rows * (16 + 4 * 3 + 28),
            "losses": rows * 4 * 22,
            "optimizer": 5 * 4 * trained,  # reads weights, gradients and momenta; writes weights and momenta
        }


def free(device: torch.device) -> None:
    """Release cached GPU memory and reset the peak statistics."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
