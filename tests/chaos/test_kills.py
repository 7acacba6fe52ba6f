"""Commands killed at random: no half-written file or process remains, and a rerun gives the same result."""

import random
import signal
import sys
from pathlib import Path

import pytest
from chaos import harness
from chaos.harness import Case, check, repeats
from chaos.results import (
    FORMATS,
    FOUND,
    NEW,
    PREDICT,
    PROPOSE,
    RUN,
    TEST,
    TRAIN,
    measured,
    predicted,
    proposed,
    trained,
)

pytestmark = pytest.mark.chaos
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def propose_again():
    """What a user does who finds no file: a search that had ended before the kill would be refused."""
    if not Path("made.npz").exists():
        sys.exit(harness.call(PROPOSE))


COMMANDS = {
    # name: command, command that resumes, what it makes, where, and how often
    "train_net": (TRAIN, (*TRAIN, "--resume"), trained, NEW, 9),
    "test_net": (TEST, TEST, measured, RUN, 6),
    "make_proposals": (PROPOSE, propose_again, proposed, ("made.npz*", ".made.npz*"), 6),
    "predict": ((*PREDICT, *FORMATS, "pictures"), (*PREDICT, *FORMATS, "pictures"), predicted, FOUND, 6),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_started_again(world, reference, tmp_path, name):
    command, again, result, writes, count = COMMANDS[name]
    expected, seconds = reference(command, result)
    cases = []
    for seed in repeats(count):
        draw = random.Random(f"{name} {seed}")
        number, moment = SIGNALS[seed % 3], draw.uniform(0, seconds)
        cases.append(
            Case(
                "killed",
                f"{name}, {number.name} after {moment:.3f} s, seed {seed}",
                command,
                "equal",
                kill=(number, moment),
                then=again,
                result=result,
                reference=expected,
                writes=writes,
            )
        )
    check(cases, world, tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_interrupted_while_it_imports(world, reference, tmp_path, name):
    """Ctrl-C in the first seconds of a new interpreter: no traceback."""
    command, again, result, writes, _ = COMMANDS[name]
    expected, _ = reference(command, result)
    cases = []
    for seed in repeats(2):
        moment = random.Random(f"{name} {seed}").uniform(0.2, 2.5)
        cases.append(
            Case(
                "interrupted at the start",
                f"{name}, SIGINT after {moment:.3f} s, seed {seed}",
                command,
                "equal",
                kill=(signal.SIGINT, moment),
                fresh=True,
                then=again,
                result=result,
                reference=expected,
                writes=writes,
            )
        )
    check(cases, world, tmp_path)


def move_run(folder):
    """As someone does who tidies up while it trains."""
    if (folder / "new").is_dir():
        (folder / "new").rename(folder / "moved")


def resume_where_it_is():
    place = "moved" if Path("moved").is_dir() else "new"
    status = harness.call((*TRAIN, "--resume", "OUTPUT_DIR", place))
    if not status and place == "moved":
        if Path("new").exists():  # something was written at the old place
            sys.exit(1)
        Path("moved").rename("new")
    sys.exit(status)


def test_run_that_is_moved_while_it_trains(world, reference, tmp_path):
    expected, seconds = reference(TRAIN, trained)
    cases = []
    for seed in repeats(4):
        moment = random.Random(f"moved {seed}").uniform(0, seconds)
        options = {"kill": (move_run, moment), "then": resume_where_it_is, "result": trained}
        options |= {"reference": expected, "writes": (*NEW, "moved/*")}
        cases.append(Case("moved run", f"after {moment:.3f} s, seed {seed}", TRAIN, "equal", **options))
    check(cases, world, tmp_path)
