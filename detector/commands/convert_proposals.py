"""The command `detector convert-proposals`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from detector.config import load_cfg
from detector.data.build import build_splits
from detector.data.proposals import save_proposals
from detector.data.proposals.fit import fit_proposals
from detector.data.proposals.foreign import READERS, ForeignProposals
from detector.utils.command_line import next_step
from detector.utils.errors import UserError
from detector.utils.folder_lock import file_lock


def run(options: Namespace) -> None:
    if not (options.train or options.test):
        raise UserError("--train FILE or --test FILE, or both, is missing")
    cfg = load_cfg(options.config_file, options.overrides)
    output = Path(cfg.datasets.proposals)
    if output.exists():
        raise FileExistsError(f"{output} exists: delete it to make it again")
    train_set, test_set = build_splits(cfg)
    boxes: dict[str, np.ndarray] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for dataset, paths in ((train_set, options.train), (test_set, options.test)):
        if paths:
            foreign = read_files(options.format, paths)
            fitted = fit_proposals(foreign, dataset, " and ".join(map(str, paths)))
            boxes |= dict(zip(dataset.image_ids, fitted, strict=True))
            sizes |= {image_id: dataset.image_size(i) for i, image_id in enumerate(dataset.image_ids)}
    output.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(output):
        if output.exists():  # another process may have made it since
            raise FileExistsError(f"{output} exists: delete it to make it again")
        save_proposals(output, list(boxes), list(boxes.values()), list(sizes.values()))
    print(f"{output}: {len(boxes)} images, {sum(map(len, boxes.values()))} boxes")
    next_step("detector", "train", options.config_file, *options.overrides)


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
