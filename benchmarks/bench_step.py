"""Times a training step of VGG16 (stride 8) with PCL: precisions, batch sizes, parts, options, a baseline.

python benchmarks/bench_step.py --device cuda [--small] [--only PART ...]

Images have 688 x 917 pixels, 2,000 proposals and 3 of 20 classes; there are 3 streams. The table `step` has
images/s, peak memory and the first loss of each precision, batch size and option. `step_parts` has the time
of each part and a lower bound: its operations at the rate of a large matrix product, or its bytes at the rate
of a copy, measured in the same run. The baseline uses torchvision's RoI pooling, scikit-learn's 3-means and
numpy, with one image per step, in float32 and TF32. `trained` computes clusters from scores like those of a
trained head.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from measure import copy_bandwidth, device_parser, print_table, time_calls, worth_timing, write_result
from step_inputs import Shape
from training_step import FASTEST, PARTS, Step, config, free

PRECISIONS = {
    "bf16": FASTEST,
    "fp16": ["PRECISION", "fp16", "CHANNELS_LAST", "True"],
    "tf32": ["PRECISION", "tf32"],
    "float32": [],
}
FLOAT32_OPTIONS = {
    "float32, DETERMINISTIC False": ["DETERMINISTIC", "False"],
    "float32, CHANNELS_LAST": ["CHANNELS_LAST", "True"],
    "float32, CUDNN_BENCHMARK": ["CUDNN_BENCHMARK", "True"],
}
OPTIONS = {  # added to FASTEST
    "no CHANNELS_LAST": ["CHANNELS_LAST", "False"],
    "CUDNN_BENCHMARK": ["CUDNN_BENCHMARK", "True"],
    "DETERMINISTIC False": ["DETERMINISTIC", "False"],
    "BACKBONE.RECOMPUTE": ["MODEL.BACKBONE.RECOMPUTE", "True"],
    "BOX_FEATURES.CHUNK 500": ["MODEL.BOX_FEATURES.CHUNK", "500"],
    "COMPILE": ["COMPILE", "True"],
}
LARGE = Shape(1, 900, 1200, 4000)
# For a quick test on a CPU.
SMALL_SHAPE = Shape(1, 48, 64, 30)
SMALL = ["MODEL.BOX_FEATURES.WIDTHS", "(16, 16)"]


@dataclass(frozen=True)
class Speed:
    """One row; `loss` is the loss of the initial weights without dropout."""

    case: str
    precision: str
    batch: int
    images_per_second: float
    step_ms: float
    memory_gb: float
    loss: float


@dataclass(frozen=True)
class Part:
    """One row: the time of a part of the step and its lower bound."""

    case: str
    part: str
    ms: float
    share_percent: float
    floor_ms: float
    floor: str


class Bench:
    def __init__(self, device: torch.device, small: bool) -> None:
        self.device, self.small = device, small
        self.shape = SMALL_SHAPE if small else Shape()
        self.repeats = 2 if small else 12
        self.speeds: list[Speed] = []
        self.parts: list[Part] = []

    def step(self, words: Sequence[str], shape: Shape, **options: bool) -> Step:
        gc.collect()
        free(self.device)
        return Step(config(*(SMALL if self.small else []), *words), shape, self.device, **options)

    def speed(self, case: str, words: Sequence[str], shape: Shape, **options: bool) -> None:
        step = self.step(words, shape, **options)
        loss = step.loss_without_dropout()
        ms = step.time(0.01 if self.small else 0.7)
        images = shape.batch / ms * 1e3
        name = step.cfg.precision
        self.speeds.append(Speed(case, name, shape.batch, images, ms, step.peak_memory(), loss))
        print_table(self.speeds[-1:])
        self._write("step", self.speeds)

    def timeline(self, case: str, words: Sequence[str], shape: Shape, **options: bool) -> None:
        step = self.step(words, shape, **options)
        per_ms, bandwidth = self._rates(step.precision.dtype or torch.float32)
        floors = {name: (count / per_ms, "operations") for name, count in step.flops().items()}
        floors |= {name: (count / bandwidth, "bytes") for name, count in step.fewest_bytes().items()}
        times = step.time_parts(2 if options.get("stock") else self.repeats)
        total = sum(times.values())
        for name in PARTS:
            floor_ms, floor = floors.get(name, (0.0, ""))
            self.parts.append(Part(case, name, times[name], 100 * times[name] / total, floor_ms, floor))
        print_table(self.parts[-len(PARTS) :])
        print(f"{case}: {total:.2f} ms, {shape.batch / total * 1e3:.1f} images/s")
        self._write("step_parts", self.parts)

    def _rates(self, dtype: torch.dtype) -> tuple[float, float]:
        """Operations of a matrix product and bytes of a copy, per millisecond."""
        side = 256 if self.small else 8192
        factor = torch.randn(side, side, device=self.device, dtype=dtype)
        ms = time_calls([lambda: factor @ factor], self.device, repeats=5)
        print(f"{dtype}: {2 * side**3 / ms / 1e9:.0f} TFLOP/s")
        return 2 * side**3 / ms, copy_bandwidth(self.device)

    def _write(self, name: str, rows: Sequence[object]) -> None:
        if not self.small:
            write_result(name, self.device, rows)

    # ---- measurements

    def precisions(self) -> None:
        for words in PRECISIONS.values():
            for batch in (1, 2) if self.small else (1, 2, 4, 8):
                self.speed("step", words, replace(self.shape, batch=batch))

    def timelines(self) -> None:
        self.timeline("bf16, batch 4", FASTEST, replace(self.shape, batch=4))
        self.timeline("bf16, batch 1", FASTEST, self.shape)
        self.timeline("float32, batch 1", [], self.shape)

    def options(self) -> None:
        for case, words in FLOAT32_OPTIONS.items():
            for batch in (1, 2):
                self.speed(case, words, replace(self.shape, batch=batch))
        for case, words in OPTIONS.items():
            self.speed(case, [*FASTEST, *words], replace(self.shape, batch=4))

    def memory(self) -> None:
        shape = self.shape if self.small else LARGE
        case = f"{shape.proposals} proposals, {shape.height} x {shape.width}"
        self.speed(case, FASTEST, shape)
        self.speed(f"{case}, CHUNK 1000", [*FASTEST, "MODEL.BOX_FEATURES.CHUNK", "1000"], shape)
        self.speed(f"{case}, float32", [], shape)

    def baseline(self) -> None:
        trained = replace(self.shape, trained=True)
        for words in ([], PRECISIONS["tf32"]):
            for shape, scores in ((self.shape, "untrained scores"), (trained, "trained scores")):
                self.speed(f"ours, {scores}", words, shape)
                self.speed(f"stock, {scores}", words, shape, stock=True)
        self.timeline("stock, float32, trained scores", [], trained, stock=True)


MEASURED = ("timelines", "memory", "precisions", "baseline", "options")


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument(
        "--small", action="store_true", help="small model and images, for a quick test; writes no file"
    )
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED, metavar="PART")
    arguments = parser.parse_args()
    if not worth_timing(arguments):
        return
    bench = Bench(torch.device(arguments.device), arguments.small)
    for name in arguments.only:
        getattr(bench, name)()
    for rows in (bench.speeds, bench.parts):
        if rows:
            print_table(rows)


if __name__ == "__main__":
    main()
