"""Times testing on VOC 2007 (4,952 images, 5 sizes with flips), extrapolated from some of the images.

python benchmarks/bench_test.py --device cuda [--images 200] [--workers 12] [--small] [KEY VALUE ...]

Includes everything that tools/test_net.py does: reading, scoring, averaging of passes, NMS and writing
results. JPEGs and proposals (2,000 per image) are synthetic, with the sizes of VOC; the sizes of a test are
those of the shorter side. The first tenth of the images, in which libraries select their kernels, is not
timed.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import made_up_voc
import torch
from measure import device_parser, print_table, worth_timing, write_result

from detector.config import load_cfg
from detector.data.build import build_dataset, build_test_loader
from detector.engine.passes import predict
from detector.engine.precision import Precision, set_tf32
from detector.inference.image_results import test_images
from detector.modeling.build import build_model, build_postprocess
from detector.utils.reproducibility import seed_everything

CONFIG = Path(__file__).parents[1] / "configs" / "voc07_pcl_pytorch_vgg16.yaml"
IMAGES = 4952
TARGET_MINUTES = 5.0
PRECISIONS = {"bf16": ["PRECISION", "bf16", "CHANNELS_LAST", "True"], "tf32": ["PRECISION", "tf32"]}
SMALL = ["INPUT.TEST_SIZES", "(48,64)", "MODEL.BOX_FEATURES.WIDTHS", "(16,16)", "PROPOSALS.MAX_COUNT", "50"]


@dataclass(frozen=True)
class Test:
    """One row; `minutes` is for the whole split."""

    precision: str
    passes: int
    images: int
    images_per_second: float
    peak_gb: float
    minutes: float
    target_minutes: float
    reached: bool


def bench(name: str, words: list[str], folder: Path, device: torch.device, images: int) -> Test:
    cfg = load_cfg(CONFIG, [*made_up_voc.keys(folder), *words])
    seed_everything(cfg.seed, cfg.deterministic)
    set_tf32(cfg.precision == "tf32")
    with device:
        model = build_model(cfg)
    model.to(device)
    dataset, precision = build_dataset(cfg, "test"), Precision(cfg.precision, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []

    def timed(indices):
        loader = build_test_loader(cfg, dataset, indices)
        times.append(time.perf_counter())
        for scores in predict(model, loader, device=device, precision=precision):
            yield scores  # suppressed and written before the next
            times.append(time.perf_counter())

    test_images(
        timed, dataset.image_ids, build_postprocess(cfg.test), path=folder / "results" / name, key="benchmark"
    )
    skipped = max(1, images // 10)
    speed = (images - skipped) / (times[-1] - times[skipped])
    minutes, passes = IMAGES / speed / 60, 2 * len(cfg.input.test_sizes)
    peak = torch.cuda.max_memory_reserved() / 1e9 if device.type == "cuda" else 0.0
    return Test(name, passes, images, speed, peak, minutes, TARGET_MINUTES, minutes <= TARGET_MINUTES)


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--precision", choices=PRECISIONS, nargs="+", default=list(PRECISIONS))
    parser.add_argument("--small", action="store_true", help="small model, for a quick test; writes no file")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    arguments = parser.parse_intermixed_args()
    if not worth_timing(arguments):
        return
    device = torch.device(arguments.device)
    words = ["INPUT.SIDE", "shortest", "DATASETS.WORKERS", str(arguments.workers), *arguments.overrides]
    words += SMALL if arguments.small else ["PROPOSALS.MAX_COUNT", "2000"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data, count = Path(folder, "voc"), 60 if arguments.small else 2300
        made_up_voc.make_voc(data, train=1, test=arguments.images, proposals=count)
        for name in arguments.precision:
            rows.append(bench(name, [*PRECISIONS[name], *words], data, device, arguments.images))
            print_table(rows)
            if not arguments.small:
                write_result("test", device, rows)


if __name__ == "__main__":
    main()
