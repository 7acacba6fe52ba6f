"""detector train --to detector: every stage once, whatever interrupts it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed_cases import run_command_in_two_processes
from tiny_training import CONFIG, tiny_words

import detector
from detector.commands import stages
from detector.commands.effort import as_words, choose_recipe, chosen_before, other_seeds
from detector.commands.main import main
from detector.commands.propose import make_proposals
from detector.config import Settings, dump_cfg, load_cfg
from detector.self_training.faster_rcnn import FasterRCNN
from detector.self_training.pseudo_boxes import ORIGIN, found_by
from detector.utils.errors import ConfigError, UserError
from detector.utils.files import file_digest

SLOW = ("SOLVER.BACKBONE_LR_FACTOR", "0.2")
STAGES = ("propose", "train", "test", "self-train", "report")
OF_THREE = (*STAGES[:3], "train seed 1", "train seed 2", *STAGES[3:])


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The config of a run that takes seconds, which searches for proposals in this process."""
    monkeypatch.setattr("detector.commands.propose.usable_cores", lambda: 1)
    return tiny_words(tmp_path)


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The stages that are timed, which takes seconds and is tested elsewhere: each is to take one."""
    calls: list[dict[str, int]] = []

    def announce(cfg: Settings, left: dict[str, int], *, num_weights: int) -> dict[str, float]:
        assert num_weights == (3 if "train seed 2" in left else num_weights)
        calls.append(left)
        return dict.fromkeys(left, 60.0)

    monkeypatch.setattr(stages, "announce", announce)
    return calls


def listed_stages(text: str) -> list[str]:
    return [line.split(": ")[1].split(",")[0] for line in text.splitlines() if "stage" in line[:5]]


def test_a_failing_stage_is_repeated_and_no_other(words, tmp_path, monkeypatch, capsys, timed) -> None:
    """Each stage is interrupted once; the calls that follow do not repeat what was done before."""
    calls: list[str] = []

    def fails_once(name: str, run: Callable) -> Callable:
        def stage(*arguments, **options):
            call = f"{name} {Path(arguments[1][-1]).name}" if name == "train" else name  # of each seed
            calls.append(call)
            if calls.count(call) == 1:
                raise KeyboardInterrupt
            return run(*arguments, **options)

        return stage

    names = ("make_proposals", "train", "evaluate", "self_train_and_test", "write_report")
    for name in names:
        monkeypatch.setattr(stages, name, fails_once(name, getattr(stages, name)))
    command = ["train", str(CONFIG), *words, "--to"]
    for _ in range(3):
        assert main([*command, "weak"]) == 130
    capsys.readouterr()
    assert main([*command, "weak"]) == 0
    text = capsys.readouterr().out
    assert timed == [dict.fromkeys(STAGES[first:3], 0) for first in (0, 0, 1, 2)]
    assert listed_stages(text) == list(STAGES[:3])
    assert "next: detector self-train" in text
    for _ in range(4):
        assert main([*command, "detector"]) == 130
    lefts = [dict.fromkeys(OF_THREE[first:6], 0) for first in (3, 3, 4, 5)]  # its report is interrupted, too
    assert timed[4:] == lefts
    text = capsys.readouterr().out
    assert text.count("three weak detectors find, of SEED 0, 1 and 2; --effort 1 trains one") == 3
    assert re.search(r"^stage 6 of 7: self-train, writes \S+, 1:00 left in all$", text, re.MULTILINE)
    for effort in ("2", "1"):  # a student keeps its boxes, whatever the effort
        assert main([*command, "detector", "--effort", effort]) == 0
        text = capsys.readouterr().out
        assert listed_stages(text) == list(OF_THREE)
    assert text.count("done:") == 7
    run = tmp_path / "run"
    assert f"next: detector predict {run} " in text
    assert {call: calls.count(call) for call in calls} == dict.fromkeys(
        [*names[:1], "train run", *names[2:], "train seed_1", "train seed_2"], 2
    )
    assert isinstance(detector.load(run).model, FasterRCNN)
    weights = [folder / "model_final.pt" for folder in (run, run / "seed_1", run / "seed_2")]
    assert found_by(run / "self_train") == [file_digest(path) for path in weights]
    assert len({*found_by(run / "self_train")}) == 3
    assert [load_cfg(path.parent).seed for path in weights] == [0, 1, 2]
    assert main(["self-train", str(run), "--resume"]) == 0  # with the same three
    assert "found by the mean of 3 weak detectors" in (run / "self_train" / "report.html").read_text()


def test_two_processes_share_each_stage(words, tmp_path) -> None:
    words += ["SOLVER.IMAGES_PER_BATCH", "1", *SLOW]
    command = ["train", CONFIG, *words, "--to", "detector"]
    statuses, text, errors = run_command_in_two_processes(command)
    tried = [*STAGES[:3], *OF_THREE]  # two steps do not teach labels
    assert (statuses, listed_stages(text)) == ([0, 0], tried), errors
    assert (tmp_path / "run" / "self_train" / "report.html").is_file()


def test_the_time_left_follows_the_stages_that_are_done(words, monkeypatch, capsys) -> None:
    now = iter([0.0, 30.0, 120.0, 240.0, 250.0])  # at the start, and when the second and later stages begin
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(now))
    for name in ("make_proposals", "train", "evaluate", "self_train_and_test", "write_report"):
        monkeypatch.setattr(stages, name, lambda *_, **__: None)
    stages.run_stages(str(CONFIG), words)
    lines = [line for line in capsys.readouterr().out.splitlines() if " left in all" in line]
    assert [line.split(", ")[2] for line in lines] == [
        f"{left} left in all" for left in ("4:00", "1:30", "2:00", "1:20")
    ]


def test_a_run_of_another_config_is_not_continued(words, tmp_path) -> None:
    make_proposals(config_file=CONFIG, overrides=words, workers=1)
    detector.train(CONFIG, words)
    with pytest.raises(ConfigError, match=r"SEED: 0 -> 1"):
        stages.run_stages(CONFIG, [*words, "SEED", "1"])


def test_changed_tags_of_a_training_that_has_begun_are_refused_before_anything_is_timed(
    words, tmp_path, timed, capsys
) -> None:
    make_proposals(config_file=CONFIG, overrides=words, workers=1)
    detector.train(CONFIG, words)
    (tmp_path / "run" / "model_final.pt").unlink()  # as if it was stopped after its last checkpoint
    image = (tmp_path / "toybox" / "ImageSets" / "Main" / "trainval.txt").read_text().split()[0]
    annotation = tmp_path / "toybox" / "Annotations" / f"{image}.xml"
    text = annotation.read_text()
    shown = re.findall(r"<name>(\w+)</name>", text)[0]
    annotation.write_text(text.replace(shown, "robot" if shown != "robot" else "bird"))
    with pytest.raises(UserError, match="began with other data: tags"):
        stages.run_stages(CONFIG, words)
    assert not timed


def test_keys_that_come_too_late_are_named(words, capsys) -> None:
    words += ["--effort", "1"]
    assert main(["train", str(CONFIG), "--to", "detector", *words]) == 0
    assert "is finished and is kept" not in capsys.readouterr().err
    late = ["SOLVER.MAX_ITER", "3", "SELF_TRAIN.MAX_ITER", "4"]
    assert main(["train", str(CONFIG), "--to", "detector", *words, *late]) == 0
    weak, student = [
        line for line in capsys.readouterr().err.splitlines() if "is finished and is kept" in line
    ]
    assert "run/model_final.pt is finished" in weak
    assert "other keys: SOLVER.MAX_ITER: 2 -> 3; to train a new one" in weak
    assert "self_train/model_final.pt is finished" in student
    assert "other keys: SELF_TRAIN.MAX_ITER: 2 -> 4; to train a new one" in student


def test_a_test_is_repeated_where_its_boxes_have_changed(words, tmp_path, capsys) -> None:
    """As `detector review-import --table` changes them: AP, or CorLoc, would be that of the old boxes."""
    command = ["train", str(CONFIG), *words, "--to", "detector", "--effort", "1"]
    assert main(command) == 0
    for split in ("test", "trainval"):
        tested = (tmp_path / "toybox" / "ImageSets" / "Main" / f"{split}.txt").read_text().split()
        annotation = tmp_path / "toybox" / "Annotations" / f"{tested[0]}.xml"
        annotation.write_text(re.sub(r"<xmax>\d+", "<xmax>150", annotation.read_text()))
    for model in ("auto", "weak"):
        assert main(["report", str(tmp_path / "run"), "--model", model]) == 2
    error = capsys.readouterr().err
    assert re.search("the data have changed since the test, .*: boxes: .*; training boxes: ", error)
    made_again = ["done:", "done:", "writes", "writes", "writes"]
    retested = [*["done:"] * 4, "writes"]
    for expected in (made_again, ["done:"] * 5, retested, ["done:"] * 5):
        if expected is retested:  # by hand: its metrics.json is another, which the page does not show
            words = ["--model", "student", "TEST.PICTURES", "1"]
            assert main(["test", str(tmp_path / "run"), *words]) == 0
            capsys.readouterr()
        assert main(command) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stage")]
        assert [line.split(", ")[1].split()[0] for line in lines] == expected


FASTER = {"SOLVER.BACKBONE_LR_FACTOR": 1.0, "SOLVER.BASE_LR": 0.002, "SOLVER.MAX_ITER": 4}
HEADS = {"MODEL.MIL_BACKGROUND": True, "MODEL.IMAGE_HEAD": True}


@pytest.mark.parametrize(
    ("image_ap", "keys", "chosen"),
    [
        (84.8, [], FASTER),
        (90.0, [], {}),
        (None, [], {}),
        (84.8, ["SOLVER.BACKBONE_LR_FACTOR", "1.0"], {}),
        (84.8, ["SOLVER.SCHEDULE", "step", "SOLVER.STEPS", "(1,)"], FASTER | {"SOLVER.STEPS": [2]}),
        (84.8, ["DATASETS.CLASSES", "['fish',]"], FASTER | HEADS),
        (84.8, ["DATASETS.CLASSES", "['fish',]", "SOLVER.BACKBONE_LR_FACTOR", "1.0"], HEADS),
    ],
)
def test_another_recipe_where_tags_are_not_learned(words, tmp_path, capsys, image_ap, keys, chosen) -> None:
    cfg = load_cfg(CONFIG, [*words, "SOLVER.BACKBONE_LR_FACTOR", "0.2", "SOLVER.BASE_LR", "0.001", *keys])
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(dump_cfg(cfg))
    (run / "metrics.json").write_text(json.dumps({"image_mAP": image_ap}))
    assert choose_recipe(run) == chosen
    assert chosen_before(run) == chosen
    seen = json.loads((run / ("first" if chosen else "") / "choice.json").read_text())
    assert (seen["image_mAP"], seen["chosen"]) == (image_ap, chosen)
    assert f"recipe: {seen['reason']}" in capsys.readouterr().out
    assert (run / "metrics.json").exists() is not bool(chosen)
    load_cfg(run, as_words(chosen))  # a run folder stays a config, and the keys are valid


def test_what_was_set_aside_in_part_is_set_aside_by_the_next_call(words, tmp_path, monkeypatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(dump_cfg(load_cfg(CONFIG, [*words, *SLOW])))
    (run / "metrics.json").write_text(json.dumps({"image_mAP": 50.0}))
    rename, left = Path.rename, iter([True, False])
    monkeypatch.setattr(Path, "rename", lambda self, to: rename(self, to) if next(left, True) else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        choose_recipe(run)
    chosen = chosen_before(run)
    assert chosen["SOLVER.MAX_ITER"] == 4
    assert {path.name for path in (run / "first").iterdir()} == {"config.yaml", "metrics.json", "choice.json"}


def test_another_recipe_is_resumed_and_its_detector_is_that_of_the_run(words, tmp_path, capsys) -> None:
    """Two steps do not teach tags, so both recipes are trained; the same call does nothing again."""
    command = ["train", str(CONFIG), *words, *SLOW, "--to", "detector"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert listed_stages(text) == [*STAGES[:3], *OF_THREE]
    assert load_cfg(tmp_path / "run" / "seed_2").solver.max_iter == 4  # of the recipe that was chosen
    assert isinstance(detector.load(tmp_path / "run").model, FasterRCNN)
    assert (tmp_path / "run" / "first" / "model_final.pt").is_file()
    assert main(command) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stage")]
    assert len(lines) == 7
    assert all("done:" in line for line in lines)


def test_effort_1_keeps_the_recipe_and_so_does_a_student_that_has_begun(words, tmp_path, capsys) -> None:
    command = ["train", str(CONFIG), *words, *SLOW, "--to", "detector"]
    assert main([*command, "--effort", "1"]) == 0
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "recipe:" not in text
    assert "OUTPUT_DIR" not in text
    assert main([*command, "--effort", "2"]) == 0
    text = capsys.readouterr().out
    told = f"{tmp_path / 'run' / 'self_train'} keeps the boxes that it learns from; for those of three weak"
    assert text.count(told) == 1
    assert listed_stages(text) == list(STAGES)
    assert not [*(tmp_path / "run").glob("seed_*")]
    assert not (tmp_path / "run" / "first").exists()


def test_further_weak_detectors_are_those_that_found_the_boxes(words, tmp_path) -> None:
    cfg, run = load_cfg(CONFIG, [*words, "SEED", "5"]), tmp_path / "run"
    runs = {6: run / "seed_6", 7: run / "seed_7"}
    assert (other_seeds(cfg, 1), other_seeds(cfg, 2)) == ({}, runs)
    boxed = ["DATASETS.BOXED_SHARE", "0.1"]  # whose images SEED draws
    assert other_seeds(load_cfg(CONFIG, [*words, *boxed]), 2) == {}
    (run / "self_train" / "pseudo").mkdir(parents=True)
    assert other_seeds(cfg, 2) == {}  # of an older version, which did not say what found them
    for path in runs.values():
        path.mkdir()
        (path / "model_final.pt").write_text(path.name)
    digests = [file_digest(path / "model_final.pt") for path in runs.values()]
    for found, expected in ((digests, runs), (digests[:1], {6: runs[6]}), (["0" * 64], {})):
        (run / "self_train" / ORIGIN).write_text(json.dumps({"weights": " ".join(["1" * 64, *found])}))
        assert other_seeds(cfg, 1) == other_seeds(cfg, 2) == expected


def test_a_further_weak_detector_of_other_keys_is_refused(words, tmp_path) -> None:
    """Such as one that was left when the run was begun anew with another recipe."""
    make_proposals(config_file=CONFIG, overrides=words, workers=1)
    left = ["SEED", "1", "OUTPUT_DIR", str(tmp_path / "run" / "seed_1"), "MODEL.METHOD", "oicr"]
    detector.train(CONFIG, [*words, *left])
    with pytest.raises(ConfigError, match="METHOD: 'oicr' -> 'pcl'"):
        stages.run_stages(CONFIG, words, effort=2)


def test_quick_makes_less_of_everything_beside_the_whole_run(words, tmp_path, monkeypatch, capsys) -> None:
    calls = []

    def made(config: str, overrides: list[str], to: str, *, effort: int) -> Path:
        assert effort == 1
        calls.append((load_cfg(config, overrides), to))
        return tmp_path / "nowhere"

    monkeypatch.setattr("detector.commands.train.run_stages", made)
    words += ["PROPOSALS.MODE", "quality", "SELF_TRAIN.TEACHER_STEPS", "5", "SOLVER.MAX_ITER", "300"]
    words += ["INPUT.TRAIN_SIZES", "(320,400)"]
    assert main(["train", str(CONFIG), *words, "--quick", "SELF_TRAIN.MAX_ITER", "7"]) == 0
    (cfg, to), folder = calls[0], tmp_path / "run_quick"
    assert (to, cfg.output_dir, cfg.datasets.proposals) == (
        "detector",
        str(folder) if "OUTPUT_DIR" not in words else str(tmp_path / "run"),
        str(tmp_path / "proposals.npz"),
    )
    assert (cfg.proposals.mode, cfg.solver.max_iter, cfg.input.train_sizes) == ("quality", 300, (320, 400))
    assert (cfg.self_train.max_iter, cfg.self_train.teacher_steps) == (7, 5)  # what is given, is taken
    assert "the whole recipe reaches higher AP: detector train " in capsys.readouterr().out
    keys = stages.quick(load_cfg(CONFIG, words))
    assert (keys["OUTPUT_DIR"], keys["INPUT.TRAIN_SIZES"]) == (str(folder), (256,))
    assert keys["DATASETS.PROPOSALS"] == str(tmp_path / "proposals_quick.npz")
    assert (keys["PROPOSALS.MODE"], keys["PROPOSALS.MAX_COUNT"]) == ("fast", 12)
    assert (keys["SOLVER.MAX_ITER"], keys["SELF_TRAIN.MAX_ITER"]) == (150, 1)
    assert keys["SELF_TRAIN.TEACHER_STEPS"] == 0


def test_effort_needs_the_test_by_which_it_chooses(words, capsys) -> None:
    assert main(["train", str(CONFIG), *words, "--effort", "2"]) == 2
    assert "add --to weak or --to detector" in capsys.readouterr().err
