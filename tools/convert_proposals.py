"""Converts proposals of other projects to the proposals file of a data set, checked against its images.

    python tools/convert_proposals.py --config-file configs/voc07_ours_oicr_reg_vgg16.yaml \\
        --format selective_search --train voc_2007_trainval.mat --test voc_2007_test.mat [KEY VALUE ...]

Formats: selective_search (a .mat of Fast R-CNN's), mcg (a folder of .mat), detectron (.pkl; PCL in PyTorch
and wetectron have the same), detectron2 (.pkl), npz (an array of boxes under each image id), jsonl, for the
boxes of any detector or segmenter: {"image": ID, "boxes": [[x1, y1, x2, y2], ...]} a line, half-open pixels.
Pickles are read without running what they ask for. A split may be in several files, as VOC's trainval is in
MIST's code: --train train.pkl --train val.pkl. Writes DATASETS.PROPOSALS.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    import numpy as np

    from detector.config import load_cfg
    from detector.data.build import build_dataset, name_classes
    from detector.data.proposals import save_proposals
    from detector.data.proposals.fit import fit_proposals
    from detector.data.proposals.foreign import READERS, ForeignProposals
    from detector.utils.command_line import config_parser, parse_config, run_command
    from detector.utils.errors import UserError
    from detector.utils.folder_lock import file_lock


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("tools/convert_proposals.py", __doc__)
    parser.add_argument("--format", required=True, choices=READERS, help="what the files are")
    for split in ("train", "test"):
        text = f"proposals of DATASETS.{split.upper()}_SPLIT; may be repeated"
        parser.add_argument(f"--{split}", type=Path, action="append", metavar="FILE", default=[], help=text)
    options = parse_config(parser, arguments)
    if not (options.train or options.test):
        parser.error("--train FILE or --test FILE, or both, is missing")
    return run_command(
        lambda: run(options.config_file, options.overrides, options.format, options.train, options.test)
    )


def run(
    config_file: str, overrides: Sequence[str], form: str, train: Sequence[Path], test: Sequence[Path]
) -> None:
    cfg = load_cfg(config_file, overrides)
    output = Path(cfg.datasets.proposals)
    if output.exists():
        raise FileExistsError(f"{output} exists: delete it to make it again")
    train_set = build_dataset(cfg, cfg.datasets.train_split)
    test_set = build_dataset(name_classes(cfg, train_set), cfg.datasets.test_split)
    boxes: dict[str, np.ndarray] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for dataset, paths in ((train_set, train), (test_set, test)):
        if paths:
            fitted = fit_proposals(read_files(form, paths), dataset, " and ".join(map(str, paths)))
            boxes |= dict(zip(dataset.image_ids, fitted, strict=True))
            sizes |= {image_id: dataset.image_size(i) for i, image_id in enumerate(dataset.image_ids)}
    output.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(output):
        if output.exists():  # another process may have made it since
            raise FileExistsError(f"{output} exists: delete it to make it again")
        save_proposals(output, list(boxes), list(boxes.values()), list(sizes.values()))
    print(f"{output}: {len(boxes)} images, {sum(map(len, boxes.values()))} boxes")


def read_files(form: str, paths: Sequence[Path]) -> ForeignProposals:
    """The proposals of all files; UserError if one of several does not name its images."""
    boxes: list[np.ndarray] = []
    image_ids: list[str] = []
    for path in paths:
        found = READERS[form](path)
        if found.image_ids is None:
            if len(paths) == 1:
                return found
            raise UserError(f"{path} has no image names, which are needed where a split is in several files")
        boxes += found.boxes
        image_ids += found.image_ids
    return ForeignProposals(boxes, image_ids)


if __name__ == "__main__":
    sys.exit(main())
