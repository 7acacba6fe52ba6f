"""The disk is full: each command that writes says so and names the file; nothing half-written stays."""

import random
import shutil

import pytest
from chaos.harness import Case, check, repeats, run_once
from chaos.results import CHECK, FORMATS, FOUND, NEW, PREDICT, PROPOSE, RUN, TEST, TRAIN

pytestmark = pytest.mark.chaos
COMMANDS = {
    "train_net": (TRAIN, NEW, 6),
    "test_net": (TEST, RUN, 4),
    "predict": ((*PREDICT, *FORMATS, "pictures"), FOUND, 6),
    "make_proposals": (PROPOSE, ("made.npz*", ".made.npz*"), 4),
    "check_dataset": (CHECK, RUN, 2),
    "report": (("report", "run"), RUN, 2),
    "convert_weights": (("convert_weights", "classifier.pth", "made.pth"), ("made.pth",), 2),
    "make_toybox": (("make_toybox", "drawn", "--train", 2, "--test", 1), ("drawn*",), 3),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_full_disk(world, tmp_path, name):
    command, writes, count = COMMANDS[name]
    sizes = written(world, tmp_path / "reference", command)
    assert sizes
    cases = []
    for seed in repeats(count):
        draw = random.Random(f"{name} {seed}")
        path = draw.choice(sorted(sizes))  # this file cannot be written whole, nor can larger ones
        limit = draw.randrange(sizes[path])
        large = "|".join(sorted({p.rpartition("/")[2] for p, size in sizes.items() if size > limit}))
        # Names that differ from run to run, and checkpoints, of which only the last ones are kept.
        large += "|.partial|journal|results|events|checkpoints/"
        cases.append(
            Case(
                "full disk",
                f"{name}, files of at most {limit} bytes, seed {seed}",
                command,
                "error",
                names=(large,),
                file_limit=limit,
                writes=writes,
            )
        )
    check(cases, world, tmp_path / "cases")


def written(world, folder, command):
    """The files that a command makes or changes in a copy of the world, with their sizes."""
    shutil.copytree(world, folder)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    outcome = run_once(command, folder)
    assert outcome.status == 0, outcome.output
    return {
        p.relative_to(folder).as_posix(): p.stat().st_size
        for p in folder.rglob("*")
        if p.is_file() and p.stat().st_size > 1 and before.get(p) != p.stat().st_mtime_ns
    }
