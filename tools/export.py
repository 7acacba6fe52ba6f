"""Write a trained network to a file that runs without the code of its model, and check it.

    python tools/export.py runs/demo --format torch_export
    python tools/export.py runs/demo --format aot_inductor
    python tools/export.py runs/demo --format onnx

The network takes uint8 images, rois, counts and sizes and gives scores and boxes; numbers of images and
proposals and the docs/export.md says how to run it and what cannot be exported.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    import torch
    from torch import Tensor
    from yacs.config import CfgNode

    from detector import __version__, load
    from detector.api.loading import read_run
    from detector.build_data import build_dataset, test_max_sizes, test_side
    from detector.data.loader import collate
    from detector.data.pictures import find_pictures
    from detector.engine.export import SUFFIXES, largest_difference, load_program, save_program
    from detector.engine.predictor import Predictor
    from detector.evaluation.report import encode_json
    from detector.modeling.exported import INPUTS, LEAST_SIDE, OUTPUTS, ScoresAndBoxes, export_program
    from detector.utils.command_line import run_command
    from detector.utils.errors import UserError
    from detector.utils.files import file_digest
    from detector.utils.outputs import OutputFolder

logger = logging.getLogger("detector.tools.export")

TOLERANCE = 1e-5


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    return run_command(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    file, _, cfg = read_run(options.weights)
    predictor = load(options.weights, "cpu")
    paths = find_check_images(cfg, options.images)
    inputs = list(check_inputs(predictor, paths, options.count))
    folder = (options.weights if options.weights.is_dir() else file.parent) / "export"
    outputs = OutputFolder(folder, file_digest(file))
    name = f"{options.format}{SUFFIXES[options.format]}"
    about = f"{options.format}.json"
    outputs.check([name, about])
    folder.mkdir(parents=True, exist_ok=True)

    unchecked = folder / f".unchecked-{name}"  # it becomes `name` once it has passed the check
    try:
        began, cpu_began = time.perf_counter(), sum(os.times()[:4])
        save_program(export_program(predictor.model), options.format, unchecked)
        seconds, cpu_seconds = (
            time.perf_counter() - began,
            sum(os.times()[:4]) - cpu_began,
        )  # of compilers too
        exported = load_program(options.format, unchecked)
        difference = largest_difference(ScoresAndBoxes(predictor.model), exported, inputs)
        if not difference <= TOLERANCE:
            raise UserError(
                f"{options.format} gives other figures than the model, by {difference:.2g} where {TOLERANCE} "
                f"is allowed, on {len(inputs)} images; it is not kept"
            )
        path = outputs.move_in(unchecked, name)
    finally:
        unchecked.unlink(missing_ok=True)
    figures = {
        "largest_difference": difference,
        "images": len(inputs),
        "bytes": path.stat().st_size,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }
    outputs.write(about, encode_json(describe(cfg) | {"format": options.format, "check": figures}))
    print(f"{path}: {figures['bytes'] / 1e6:.2f} MB in {seconds:.0f} s, ", end="")
    print(f"at most {difference:.1e} from the model on {len(inputs)} images")


def find_check_images(cfg: CfgNode, folder: Path | None) -> list[Path]:
    """The pictures of a folder or, where none is named, of the config's test split."""
    if folder is not None:
        return list(find_pictures([folder]).values())
    try:
        dataset = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"no images to check with: {error}; --images names a folder of others") from None
    return [dataset.image_path(i) for i in range(len(dataset))]


def check_inputs(predictor: Predictor, paths: Sequence[Path], count: int) -> Iterator[tuple[Tensor, ...]]:
    """The network's inputs, one image each, from the first test pass of up to `count` pictures."""
    for path in paths[:count]:
        yield collate(predictor.views(path).samples[:1]).to(predictor.device).inputs


def describe(cfg: CfgNode) -> dict:
    """What goes before and after the network, for whoever calls it from elsewhere."""
    inputs, test = cfg.INPUT, cfg.TEST
    return {
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "classes": cfg.DATASETS.CLASSES,
        "sizes": inputs.TEST_SIZES,
        "side": test_side(cfg),
        "max_sizes": test_max_sizes(cfg),
        "inclusive_rois": inputs.INCLUSIVE_ROIS,
        "flip": inputs.TEST_FLIP,
        "least_side": LEAST_SIDE,
        "proposals": {key.lower(): cfg.PROPOSALS[key] for key in ("MODE", "LONGEST_SIDE", "MIN_REGION")},
        "score_threshold": test.SCORE_THRESHOLD,
        "nms_iou": test.NMS,
        "max_per_class": test.MAX_PER_CLASS,
        "max_detections": test.MAX_DETECTIONS,
        "versions": {"detector": __version__, "torch": torch.__version__},
    }


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--format", required=True, choices=tuple(SUFFIXES), help="what to write")
    add("--images", type=Path, metavar="FOLDER", help="pictures to check with (default: the test split)")
    add("--count", type=int, default=20, help="how many of them (default: 20)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
