"""Small objects in large pictures: composites of a data set's pictures, with the tags of the whole alone.

    python benchmarks/large_pictures.py toybox [--grid 4] [--count 300] [--seeds 3] [--jobs 1] [--resume]
        [--only NAME] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py; --grid 4 puts 4 x 4 of its pictures into one,
and --count says how many are made to train on (a third as many to test on). A composite shows a random half
of the classes, since otherwise each would show all of them, and its tags would tell nothing.

* "single": the pictures that the composites are made of, each with its own tags: what tiles can reach.
* "untiled": the same recipe on the composites.
* "tiled": the same with INPUT.TILE of the longest side of a picture, two composites and four fifths of the
  steps, which are up to 8 tiles of each.
* "student_...": the Faster R-CNN that learns from the detector of that name, in tiles where it was.

Where the package sahi is installed, its sliced inference with the network of "student_tiled" is measured
beside ours, with the same tiles: AP50, and pictures a second. The results are benchmarks/results/
methods_large_pictures_DATA_GRID.json and, of sahi, large_pictures_sahi_{gpu,cpu}.json.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from few_boxes import DATA, take_data_set
from measure import print_table, write_result
from methods import ROOT, compare
from PIL import Image

import detector
from detector.config import Settings, load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.data.images import read_image
from detector.data.labeled_box import LabeledBox
from detector.evaluation.voc import voc_ap
from detector.inference.load import read_run
from detector.structures import Detections
from detector.utils.files import encode_image, write_new

GRAY = (127, 127, 127)  # of a cell beside a smaller picture
OVERLAP = 0.25


@dataclass(frozen=True)
class Inference:
    """How the tiles of the same network are merged."""

    by: str  # ours, or the package sahi
    seed: int
    map50: float
    pictures_per_second: float


def longest_side(cfg: Settings) -> int:
    """Of all pictures of the data set, which is the side of a cell."""
    sets = [build_dataset(cfg, split) for split in (cfg.datasets.train_split, cfg.datasets.test_split)]
    return max(max(each.image_size(i)) for each in sets for i in range(len(each)))


def draw_cells(dataset: AnnotatedImages, grid: int, rng: np.random.Generator) -> list[int]:
    """The pictures of a composite, which show only classes of a random half."""
    labels = dataset.all_labels()  # (N, C)
    while True:
        left_out = rng.random(labels.shape[1]) < 0.5
        candidates = np.flatnonzero(~(labels & left_out).any(axis=1) & labels.any(axis=1))
        if len(candidates):
            return rng.choice(candidates, grid * grid).tolist()


def write_composites(
    root: Path, cfg: Settings, grid: int, counts: tuple[int, int], cell: int, seed: int = 0
) -> None:
    """The data set of composites, in the layout of VOC."""
    with new_voc_folder(root) as folder:
        splits = cfg.datasets.train_split, cfg.datasets.test_split
        for number, (split, count) in enumerate(zip(splits, counts, strict=True)):
            dataset, names = build_dataset(cfg, split), [f"{split}_{i:05d}" for i in range(count)]

            def write(index: int) -> None:
                cells = draw_cells(dataset, grid, np.random.default_rng([seed, number, index]))  # noqa: B023
                write_composite(folder, names[index], dataset, cells, grid, cell)  # noqa: B023

            with ThreadPoolExecutor() as pool:
                list(pool.map(write, range(count)))
            write_split(folder, split, names)


def write_composite(
    folder: Path, name: str, dataset: AnnotatedImages, cells: Sequence[int], grid: int, cell: int
) -> None:
    """One picture of grid x grid others, each at its size in the corner of its cell, and the boxes of all."""
    picture, objects = Image.new("RGB", (grid * cell, grid * cell), GRAY), []
    for place, index in enumerate(cells):
        left, top = place % grid * cell, place // grid * cell
        pixels = dataset.read_image(index).permute(1, 2, 0).numpy()
        picture.paste(Image.fromarray(pixels), (left, top))
        truth = dataset.annotation(index)
        assert truth is not None
        for (x1, y1, x2, y2), label in zip(truth.boxes.tolist(), truth.labels.tolist(), strict=True):
            box = x1 + left, y1 + top, x2 + left, y2 + top
            objects.append(LabeledBox(dataset.class_names[label], box))
    write_new(folder / "JPEGImages" / f"{name}.jpg", encode_image(picture, "jpeg", quality=92))
    write_annotation(folder, f"{name}.jpg", (picture.height, picture.width), objects, folder="composites")


def prepare(
    cfg: Settings,
    options: argparse.Namespace,
    cell: int,
    variants: dict[str, tuple[str, ...]],
    names: Sequence[str],
    overrides: Sequence[str],
) -> None:
    """Draw the composites, and make the proposals of each variant."""
    from detector.commands.propose import make_proposals

    root = ROOT / folder_of(options)
    if not root.exists():
        write_composites(root, cfg, options.grid, (options.count, max(1, options.count // 3)), cell)
    for keys in variants.values():
        words = [*keys, *overrides]
        if not (ROOT / load_cfg(ROOT / options.config, words).datasets.proposals).exists():
            make_proposals(config_file=ROOT / options.config, overrides=words)


def folder_of(options: argparse.Namespace) -> str:
    return f"runs/large_pictures_{options.data}_{options.grid}/data"


def build_variants(options: argparse.Namespace, cell: int) -> dict[str, tuple[str, ...]]:
    """The config overrides of each recipe."""
    root = folder_of(options)
    data = "DATASETS.FORMAT", "voc", "DATASETS.ROOT", root
    tiles = "INPUT.TILE", str(cell), "INPUT.TILE_OVERLAP", str(OVERLAP)
    steps = load_cfg(ROOT / options.config).solver.max_iter * 4 // 5
    fewer = "SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.MAX_ITER", str(steps)
    return {
        "single": (),
        "untiled": (*data, "DATASETS.PROPOSALS", f"{root}_untiled.npz"),
        "tiled": (*data, "DATASETS.PROPOSALS", f"{root}_tiled.npz", *tiles, *fewer),
    }


def sliced_by_sahi(run: Path, device: str) -> Callable[[Path], Detections]:
    """A function from a picture to what sahi's sliced inference finds with the network of a student."""
    from sahi.models.base import DetectionModel
    from sahi.predict import get_sliced_prediction
    from sahi.prediction import ObjectPrediction

    _, _, cfg = read_run(run, model="student")
    slices = detector.load(run, device, score_threshold=None, model="student", overrides={"INPUT.TILE": 0})

    class Student(DetectionModel):
        """sahi's interface to our predictor, which sees a slice as a picture."""

        def load_model(self) -> None:
            self.category_mapping = {str(i): name for i, name in enumerate(slices.class_names)}

        def perform_inference(self, image: np.ndarray) -> None:
            self._original_predictions = slices(np.ascontiguousarray(image))

        def _create_object_prediction_list_from_original_predictions(
            self, shift_amount_list: Any = None, full_shape_list: Any = None
        ) -> None:
            shift, shape = shift_amount_list or [0, 0], full_shape_list
            shift, shape = (
                each[0] if each and isinstance(each[0], list) else each for each in (shift, shape)
            )
            found = self._original_predictions
            rows = zip(found.boxes.tolist(), found.scores.tolist(), found.labels.tolist(), strict=True)
            predictions = [
                ObjectPrediction(
                    bbox=box,
                    category_id=label,
                    score=score,
                    category_name=slices.class_names[label],
                    shift_amount=shift,
                    full_shape=shape,
                )
                for box, score, label in rows
                if box[2] - box[0] >= 1 and box[3] - box[1] >= 1  # sahi refuses others
            ]
            self._object_prediction_list_per_image = [predictions]

    model = Student(confidence_threshold=0.0, device=str(slices.device))
    ratio = {"overlap_height_ratio": cfg.input.tile_overlap, "overlap_width_ratio": cfg.input.tile_overlap}

    def find(path: Path) -> Detections:
        pixels = read_image(path).permute(1, 2, 0).numpy()
        side = cfg.input.tile
        # As sahi itself chooses where boxes of low scores count, which AP needs.
        merged = {"postprocess_type": "NMS", "postprocess_match_metric": "IOU"}
        result = get_sliced_prediction(
            pixels, model, slice_height=side, slice_width=side, **ratio, **merged, verbose=0
        )
        found = result.object_prediction_list
        scores = torch.tensor([each.score.value for each in found])
        boxes = torch.tensor([each.bbox.to_xyxy() for each in found], dtype=torch.float32).reshape(-1, 4)
        labels = torch.tensor([each.category.id for each in found], dtype=torch.int64)
        order = scores.argsort(descending=True, stable=True)[: cfg.test.max_detections]
        return Detections(path.stem, boxes[order], scores[order], labels[order])

    return find


def compare_with_sahi(options: argparse.Namespace, overrides: Sequence[str], seeds: int) -> None:
    """Measure both ways to merge what the student of "tiled" finds in tiles."""
    rows, device = [], "cuda" if torch.cuda.is_available() else "cpu"
    for seed in range(seeds):
        run = ROOT / f"runs/methods_{options.name}/student_tiled_{seed}"
        if not (run / "self_train" / "model_final.pt").exists():
            continue
        _, _, cfg = read_run(run, overrides=overrides, model="student")
        dataset = build_dataset(cfg, cfg.datasets.test_split)
        ours = detector.load(run, device, score_threshold=None, model="student")
        for by, find in (("ours", ours), ("sahi", sliced_by_sahi(run, device))):
            began = time.perf_counter()
            found = [
                replace(find(dataset.image_path(i)), image_id=name)
                for i, name in enumerate(dataset.image_ids)
            ]
            speed = len(dataset) / (time.perf_counter() - began)
            truth = [dataset.annotation(i) for i in range(len(dataset))]
            ap = voc_ap(found, truth, len(dataset.class_names))
            rows.append(Inference(by, seed, round(100 * float(np.nanmean(ap)), 2), round(speed, 3)))
    if rows:
        print_table(rows)
        write_result("large_pictures_sahi", torch.device(device), rows)


def main() -> None:
    data = take_data_set()
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--grid", type=int, default=4)
    parser.add_argument("--count", type=int, default=300)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options.data, options.config = data, DATA[data]
    options.name = f"large_pictures_{data}_{options.grid}"
    words = rest[next((i for i, word in enumerate(rest) if "." in word and word.isupper()), len(rest)) :]
    cfg = load_cfg(ROOT / options.config, words)
    cell = longest_side(cfg)
    variants = build_variants(options, cell)
    students = {f"student_{name}": ((name,), ()) for name in variants}
    compare(options.name, options.config, variants, students, partial(prepare, cfg, options, cell, variants))
    try:
        import sahi  # noqa: F401
    except ImportError:
        print("sahi is not installed: its sliced inference is not compared")
        return
    compare_with_sahi(options, (), seeds=10)


if __name__ == "__main__":
    main()
