"""What the detector learns while a person reviews: rounds, what is in them, and when they are undone."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from distributed_cases import CONTEXT
from random_run import make_student, make_toybox_run
from review_cases import hold_learner

from detector.config import load_cfg
from detector.data.build import build_training_set
from detector.inference.load import find_checkpoint
from detector.labeling.suggest import find_detector
from detector.review import rounds as training
from detector.review.learner import Learner, learned_folder
from detector.review.rounds import Rounds, is_held_out
from detector.review.session import open_session
from detector.review.store import Store

RECIPES = Path(__file__).parents[2] / "configs"

pytestmark = [pytest.mark.usefixtures("process_as_before")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs with random weights on a Toybox of 14 training images: one has a student."""
    weak = make_toybox_run(tmp_path_factory.mktemp("learning"), train=14)
    student = shutil.copytree(weak, tmp_path_factory.mktemp("learned") / "run")
    make_student(student)
    return {"weak": weak, "student": student}


def opened(run: Path, file: Path, reviewed: int = 0) -> tuple[Store, Rounds]:
    """The review of a run in which the first images are accepted, and its rounds of two steps."""
    store = open_session(str(run), (), file=file).store
    for number in range(1, reviewed + 1):
        action = {"kind": "accept_all", "complete": True}
        store.record(number, "ann", [(f"k{number}", action)])
    return store, rounds_of(run, store)


def rounds_of(run: Path, store: Store) -> Rounds:
    cfg, _ = find_detector(str(run), ())
    folder = learned_folder(store.path)
    return Rounds(
        cfg, store, build_training_set(cfg), find_checkpoint(cfg.output_dir), folder, torch.device("cpu")
    )


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STEPS", 2)


def test_one_in_five_images_is_held_out_by_its_name() -> None:
    held = [is_held_out(f"{number:06d}") for number in range(2000)]
    assert 0.17 < sum(held) / len(held) < 0.23
    assert held == [is_held_out(f"{number:06d}") for number in range(2000)]


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_has_short_rounds(recipe: Path) -> None:
    cfg = load_cfg(recipe, ())
    short = training.round_cfg(cfg, 3)
    assert (short.solver.max_iter, short.seed) == (2, cfg.seed + 3)
    assert short.solver.base_lr < cfg.solver.base_lr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weak", "student"])
def test_a_round_learns_and_finds_boxes_in_images_that_nobody_has_opened(
    runs: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    store, rounds = opened(runs[kind], tmp_path / "review.sqlite", 8)
    (waiting,) = store.next_images("ann", 1)  # in a browser
    assert rounds.due(8)
    assert not rounds.due(9)
    before, first = store.starts(), {k: v.clone() for k, v in rounds.first.network.state_dict().items()}
    found = rounds.take()
    assert (found["images"], found["kept"]) == (8, True)  # so few measure that all rounds count
    reviewed = [Path(store.names()[number]).stem for number in range(1, 9)]
    assert found["held_out"] == sum(map(is_held_out, reviewed))
    new = rounds.now.network.state_dict()
    changed = {name for name in first if not torch.equal(first[name], new[name])}
    assert changed
    frozen = "backbone." if kind == "weak" else "backbone.body."
    assert not any(name.startswith(frozen) for name in changed)
    assert not rounds.due(1)
    while rounds.improve(4):
        pass
    after = store.starts()
    touched = {*(store.names()[number] for number in range(1, 9)), waiting["name"]}
    assert {name for name in before if before[name] == after[name]} == touched
    assert {each["detector"] for name, each in after.items() if name not in touched} == {
        before[waiting["name"]]["detector"].removesuffix("0") + "1"
    }


def test_it_goes_on_from_the_last_round(runs: dict[str, Path], tmp_path: Path) -> None:
    store, rounds = opened(runs["weak"], tmp_path / "review.sqlite", 4)
    rounds.take()
    again = rounds_of(runs["weak"], store)
    assert (again.number, again.now.path) == (1, learned_folder(store.path) / "round_1.pt")
    assert not again.due(1)
    again.now.path.unlink()  # lost: it begins anew
    assert rounds_of(runs["weak"], store).number == 0


def test_images_that_are_held_out_are_never_trained_on(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "is_held_out", lambda image_id: True)
    store, rounds = opened(runs["weak"], tmp_path / "review.sqlite", 5)
    monkeypatch.setattr(rounds, "_train", lambda *_: pytest.fail("there is nothing to learn from"))
    found = rounds.take()
    assert (found["held_out"], found["kept"], found["ap"]) == (5, False, found["ap_first"])
    assert found["ap"] > 0  # what was accepted is what the detector found
    assert store.outdated(rounds.store.starts()[store.names()[9]]["detector"], 9) == []


@pytest.mark.parametrize(("after", "kept"), [(40.0, False), (50.0, True), (60.0, True)])
def test_a_round_that_lowers_ap_is_undone(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: float, kept: bool
) -> None:
    monkeypatch.setattr(training, "is_held_out", lambda image_id: int(image_id) % 2 == 0)
    _, rounds = opened(runs["weak"], tmp_path / "review.sqlite", 14)
    learned = rounds._load(rounds.weights)
    monkeypatch.setattr(rounds, "_train", lambda *_: learned)
    monkeypatch.setattr(rounds, "_ap", lambda each, _: after if each is learned else 50.0)
    found = rounds.take()
    assert (found["kept"], found["ap"]) == (kept, max(after, 50.0))
    assert rounds.number == int(kept)


def wait_for(store: Store, learning: str, rounds: int = 0) -> list[dict]:
    """The rounds of the review, once the process says that it is at this and there are so many."""
    end = time.monotonic() + 120
    while True:
        found = json.loads(store.get_meta("rounds") or "[]")
        if store.get_meta("learning") == json.dumps(learning) and len(found) >= rounds:
            return found
        assert time.monotonic() < end
        time.sleep(0.02)


def ended(number: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit status yet."""
    file = Path(f"/proc/{number}/stat")
    try:
        os.kill(number, 0)
        return file.exists() and file.read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.mark.slow
def test_a_killed_server_takes_the_process_along_and_the_next_one_goes_on(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    store, _ = opened(runs["weak"], tmp_path / "review.sqlite", 3)
    told = tmp_path / "process"
    arguments = (runs["weak"], store.path, told)
    server = CONTEXT.Process(target=hold_learner, args=arguments, daemon=True)
    server.start()
    wait_for(store, "training")
    number = int(told.read_text())
    server.kill()
    server.join()
    end = time.monotonic() + 20
    while not ended(number):
        assert time.monotonic() < end
        time.sleep(0.05)
    with Learner(str(runs["weak"]), (), store, 3) as learner:
        (found,) = wait_for(store, "waiting", 1)
        status = learner.status()
        assert (status["every"], status["doing"], status["error"]) == (3, "waiting", "")
    assert found["images"] == 3
    assert learner.process is not None
    assert learner.process.returncode == 0
    assert sorted(path.name for path in learned_folder(store.path).glob("round*")) == ["round_1.pt"]


@pytest.mark.slow
def test_a_process_that_fails_is_told(runs: dict[str, Path], tmp_path: Path) -> None:
    store, _ = opened(runs["weak"], tmp_path / "review.sqlite")
    with Learner(str(tmp_path / "none.yaml"), (), store, 3) as learner:
        assert learner.process is not None
        assert learner.process.wait(60) == 2
        assert "output.txt" in learner.status()["error"]
    assert "none.yaml" in (learned_folder(store.path) / "output.txt").read_text()
