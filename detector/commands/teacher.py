"""The command `detector teacher`."""

import json
from argparse import Namespace
from pathlib import Path

from tqdm import tqdm

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.teacher.classes import LEFT_OUT, read_class_table
from detector.inference.run_teacher import Teacher, as_row
from detector.utils.command_line import next_step
from detector.utils.distributed import find_device
from detector.utils.errors import UserError
from detector.utils.files import atomic_write


def run(options: Namespace) -> None:
    output: Path = options.output
    if output.suffix != ".jsonl":
        raise UserError(f"--output is {output}, expected a name that ends in .jsonl")
    if output.exists():
        raise FileExistsError(f"{output} exists: delete it to make it again")
    if options.masks and options.classes:
        raise UserError("--masks finds masks without classes: leave out --classes")
    if not 0 <= options.score_threshold <= 1:
        raise UserError(f"--score-threshold is {options.score_threshold}, expected a number in [0, 1]")
    cfg = load_cfg(options.config_file, options.overrides)
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    prompts = list(dataset.class_names)
    if options.classes:
        table = read_class_table(options.classes, dataset.class_names)
        named = {dataset.class_names[column] for column in table.values() if column != LEFT_OUT}
        others = [name for name in dataset.class_names if name not in named]
        prompts = [name for name, column in table.items() if column != LEFT_OUT] + others
    device = str(find_device(cfg.device))
    model = Teacher(options.model, [] if options.masks else prompts, device, options.score_threshold)
    rows = []
    for index, image_id in enumerate(tqdm(dataset.image_ids, unit="image", disable=None)):
        size, found = dataset.image_size(index), model(dataset.read_image(index))
        rows.append(as_row(image_id, size, found, upright=dataset.apply_orientation))
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    print(f"{output}: {sum(len(row['boxes']) for row in rows)} boxes in {len(rows)} images")
    table_words = ["DATASETS.TEACHER_CLASSES", options.classes] if options.classes else []
    next_step("detector", "check", options.config_file, *options.overrides, "--teacher", output, *table_words)
