"""Which source of boxes the trial students name as the best."""

import numpy as np
import pytest
import torch

from detector.config import Settings
from detector.self_training import trials
from detector.self_training.fuse import SOURCES


def test_a_class_learns_from_both_unless_one_source_is_clearly_better():
    named = np.ones(6, dtype=bool)
    found = {
        "tags": np.array([0.9, 0.5, np.nan, 0.7, 0.83, 1.0]),
        "both": np.array([0.8, 0.6, np.nan, 0.7, 0.80, 1.0]),
        "teacher": np.array([0.7, 0.8, np.nan, 0.7, 0.70, 0.9]),
    }
    assert trials.best_sources(found, named) == ["tags", "teacher", "both", "both", "both", "both"]
    found["tags"][4] = 0.841  # an error of 0.159 beside 0.2
    assert trials.best_sources(found, named)[4] == "tags"


def test_a_class_that_cannot_tell_learns_from_the_source_that_is_best_for_all():
    found = {  # as of a teacher whose boxes are all too large
        "tags": np.array([0.37, 0.86, 0.57, 0.65, 0.35, 0.94]),
        "both": np.array([0.33, 0.78, 0.45, 0.52, 0.34, 0.80]),
        "teacher": np.array([0.34, 0.78, 0.50, 0.48, 0.31, 0.87]),
    }
    assert trials.best_sources(found, np.ones(6, dtype=bool)) == ["tags"] * 6
    # Classes of which the teacher has no boxes differ by chance alone.
    assert trials.best_sources(found, np.zeros(6, dtype=bool))[4] == "both"
    found["teacher"][3] = 0.75
    assert trials.best_sources(found, np.ones(6, dtype=bool))[3] == "teacher"


@pytest.mark.parametrize("factors", [False, True])
def test_a_student_of_each_source_scores_the_half_that_it_has_not_learned(tmp_path, monkeypatch, factors):
    dataset, learned = range(21), {}  # images
    shown = torch.rand(21, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    known = torch.ones_like(shown)
    known[:, 1] = False  # nobody knows whether images show class 1

    def train(run, found_by, pseudo):
        assert run.cfg.solver.max_iter == 250  # a quarter
        assert pseudo.name == run.folder.name.split("_")[0]
        learned[run.folder] = run.factors
        (run.folder / "model_final.pt").touch()

    def score(run, dataset, weights, indices):
        assert not learned[run.folder][indices].any()
        right = shown[indices].float()
        return list(
            {"tags": 1 - right, "both": torch.zeros_like(right), "teacher": right}[run.folder.name[:-2]]
        )

    monkeypatch.setattr(trials, "train_detector", train)
    monkeypatch.setattr(trials, "_score", score)
    given = None if not factors else np.arange(21) % 2 * (1 + np.arange(21) // 10)  # half are never drawn
    cfg = trials.with_values(Settings(), {"SOLVER.MAX_ITER": 1000})
    run = trials.StudentRun(cfg, tmp_path, torch.device("cpu"), given)
    found = trials.try_sources(trials.Trials(run, dataset, shown & known, known, tmp_path / "weak.pt"))
    assert set(found) == set(SOURCES)
    assert (found["teacher"][[0, 2]] == 1).all()
    assert (found["tags"][[0, 2]] < found["teacher"][[0, 2]]).all()
    assert np.isnan(found["both"][1])
    for source in SOURCES:  # each image is learned in one half, as often as it would be
        first, second = (learned[tmp_path / f"{source}_{half}"] for half in range(2))
        assert not (first * second).any()
        np.testing.assert_array_equal(first + second, np.ones(len(dataset)) if given is None else given)
        assert abs((first > 0).sum() - (second > 0).sum()) <= 1
