"""Times the schedule of VOC 2007 in the PCL paper (50,000 steps of 2 images) with `detector train`.

python benchmarks/bench_schedule.py --device cuda [--steps 3000] [--workers 12] [--small] [KEY VALUE ...]

JPEGs, proposals (2,000 per image) and labels are synthetic, with the sizes of VOC; the shorter side has
480 to 1200. The first fifth of the steps, in which libraries select their kernels, is not timed. One row per
setting: batches of 2 or 8, with images in random order or sorted by shape. `idle_percent` is the share of
time without kernels or copies on the GPU, over 50 steps.
"""

import re
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import made_up_voc
import torch
from measure import device_parser, print_table, worth_timing, write_result
from torch.autograd import DeviceType
from torch.optim.optimizer import register_optimizer_step_post_hook

from detector.commands.main import main as detector
from detector.utils.files import atomic_write

ROOT = Path(__file__).parents[1]
CONFIG = str(ROOT / "configs" / "voc07_pcl_pytorch_vgg16.yaml")
IMAGES = 100_000  # in the schedule
CHECKPOINTS = 20  # written by the schedule
TARGET_MINUTES = 20.0
FASTEST = ["PRECISION", "bf16", "CHANNELS_LAST", "True"]
CASES = {
    "batches of 2, sorted": ["SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.SORT_WINDOW", "64"],
    "batches of 2, as drawn": ["SOLVER.IMAGES_PER_BATCH", "2"],
    "batches of 8, sorted": ["SOLVER.IMAGES_PER_BATCH", "8", "SOLVER.SORT_WINDOW", "64"],
}
SMALL = ["INPUT.TRAIN_SIZES", "(48,64)", "MODEL.BOX_FEATURES.WIDTHS", "(16,16)", "PROPOSALS.MAX_COUNT", "50"]


@dataclass(frozen=True)
class Schedule:
    """One row; `minutes` is for the whole schedule including its checkpoints."""

    case: str
    steps: int
    images_per_second: float
    checkpoint_s: float
    peak_gb: float
    idle_percent: float
    minutes: float
    target_minutes: float
    reached: bool


class Idle:
    """Measures the share of time in which the GPU is idle, over some steps in the middle of a run."""

    def __init__(self, steps: int) -> None:
        self.first, self.last = steps // 2, steps // 2 + min(50, steps // 4)
        self.percent, self._step = 0.0, 0
        self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def __enter__(self) -> "Idle":
        self._hook = register_optimizer_step_post_hook(self._after_step)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _after_step(self, *_: object) -> None:
        self._step += 1
        if self._step == self.first:
            torch.cuda.synchronize()
            self._profiler.start()
        elif self._step == self.last:
            torch.cuda.synchronize()
            self._profiler.stop()
            on_gpu = [
                event
                for event in self._profiler.events()
                if event.device_type == DeviceType.CUDA and not event.is_user_annotation
            ]
            spans = sorted((event.time_range.start, event.time_range.end) for event in on_gpu)
            busy, reached = 0.0, spans[0][0]
            for begin, end in spans:
                busy += max(0.0, end - max(begin, reached))
                reached = max(reached, end)
            self.percent = 100 * (1 - busy / (reached - spans[0][0]))


def rate(log: str, idle: Idle, steps: int, log_period: int) -> float:
    """Images per second from the log, without the first fifth of the steps and the profiled steps."""
    lines = [(int(step), float(speed)) for step, speed in re.findall(r"step (\d+)/\d+ .*images/s (\S+)", log)]
    rates = [
        speed
        for step, speed in lines
        if step - log_period >= steps / 5 and (step < idle.first or step - log_period >= idle.last)
    ]
    return len(rates) / sum(1 / speed for speed in rates)


def bench(case: str, words: list[str], data: Path, folder: Path, steps: int) -> Schedule:
    log_period = max(1, min(20, steps // 10))
    words = [*made_up_voc.keys(data), *FASTEST, "SOLVER.IMAGES_PER_STEP", "0", *words]
    words += ["OUTPUT_DIR", str(folder), "SOLVER.MAX_ITER", str(steps), "SOLVER.LOG_PERIOD", str(log_period)]
    words += ["SOLVER.CHECKPOINT_PERIOD", str(steps), "SOLVER.STEPS", f"({steps},)"]
    words += ["SOLVER.BASE_LR", "1e-6"]  # avoids overflow with random weights
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    idle = Idle(steps)
    with idle if on_gpu else nullcontext():
        if detector(["train", CONFIG, *words]) != 0:
            raise SystemExit(f"{case}: the run failed")
    speed = rate((folder / "log.txt").read_text(), idle, steps, log_period)
    path = folder / "checkpoints" / f"{steps:06d}.pt"
    state = torch.load(path, weights_only=True, map_location=words[words.index("DEVICE") + 1])
    begin = time.perf_counter()
    with atomic_write(path) as file:
        torch.save(state, file)
    checkpoint_s = time.perf_counter() - begin
    minutes = (IMAGES / speed + CHECKPOINTS * checkpoint_s) / 60
    peak = torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0
    reached = minutes <= TARGET_MINUTES
    return Schedule(case, steps, speed, checkpoint_s, peak, idle.percent, minutes, TARGET_MINUTES, reached)


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--small", action="store_true", help="small model, for a quick test; writes no file")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    arguments = parser.parse_intermixed_args()
    if not worth_timing(arguments):
        return
    words = ["INPUT.SIDE", "shortest", "DEVICE", arguments.device]
    words += ["DATASETS.WORKERS", str(arguments.workers), *arguments.overrides]
    words += SMALL if arguments.small else ["PROPOSALS.MAX_COUNT", "2000"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "voc")
        count = 40 if arguments.small else 400
        made_up_voc.make_voc(data, train=count, test=1, proposals=60 if arguments.small else 2300)
        for number, case in enumerate(arguments.case):
            run = Path(folder, f"run{number}")
            steps = arguments.steps // (
                20 if number else 1
            )  # fewer steps for the cases that are only compared
            rows.append(bench(case, [*CASES[case], *words], data, run, max(steps, 5)))
            print_table(rows)
            if not arguments.small:
                write_result("schedule", torch.device(arguments.device), rows)


if __name__ == "__main__":
    main()
