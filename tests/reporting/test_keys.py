"""Which keys the page shows as changed."""

from detector.config import KEYS, Settings, dump_cfg, with_values
from detector.reporting.keys import differing_keys
from detector.self_training.self_train import student_cfg

RECIPE = {key: declared.default for key, declared in KEYS.items()}


def test_of_a_student_the_keys_of_the_weak_training_are_those_of_the_weak_detector(tmp_path):
    weak = with_values(Settings(), {"SOLVER.MAX_ITER": 900})
    student = student_cfg(with_values(weak, {"SELF_TRAIN.MAX_ITER": 300}))
    assert student.solver.max_iter == 300
    (tmp_path / "config.yaml").write_text(dump_cfg(weak))
    changed = differing_keys(RECIPE, student, tmp_path, student=True)
    assert {key: new for key, (_, new) in changed.items()} == {
        "SOLVER.MAX_ITER": 900,
        "SELF_TRAIN.MAX_ITER": 300,
    }
    assert differing_keys(RECIPE, student, tmp_path / "none", student=True).keys() == {"SELF_TRAIN.MAX_ITER"}
    assert differing_keys(RECIPE, weak, tmp_path, student=False).keys() == {"SOLVER.MAX_ITER"}
