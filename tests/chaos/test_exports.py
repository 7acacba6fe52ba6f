"""Exported networks find what the model finds in pictures of random sizes, thin, black and white ones too."""

import json

import pytest
from chaos.harness import Case, check, repeats
from random_run import make_pictures, make_run, make_student

pytestmark = pytest.mark.chaos
COUNT = 40  # pictures; the command makes others of hard sizes from them, and compares with the model
TOLERANCE = {"student": 1e-4, "weak": 1e-5}


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A folder with the run `demo`, of random weights."""
    folder = tmp_path_factory.mktemp("untrained")
    words = ("SELF_TRAIN.BACKBONE", "mobilenet_v3", "SELF_TRAIN.CHANNELS", 256)
    make_student(make_run(folder / "demo"), *words)
    return folder


@pytest.mark.parametrize("form", ["torch_export", "onnx"])
def test_export_of_random_pictures(untrained, tmp_path, form):
    cases = []
    for seed in repeats(2):
        model = ("student", "weak")[seed % 2]
        export = f"demo/{'self_train/' if model == 'student' else ''}export"

        def agrees(folder, outcome, model=model, export=export):
            difference = json.loads((folder / export / f"{form}.json").read_text())["check"]["difference"]
            return "agrees" if difference <= TOLERANCE[model] else f"differs by {difference}"

        words = ("export", "demo", "--model", model, "--format", form, "--images", "pictures")
        cases.append(
            Case(
                "exported network",
                f"{model} as {form}, seed {seed}",
                (*words, "--count", COUNT),
                "equal",
                prepare=lambda folder, seed=seed: make_pictures(folder / "pictures", COUNT, seed),
                result=agrees,
                reference="agrees",
                writes=(f"{export}/*",),
                patience=10,
            )
        )
    check(cases, untrained, tmp_path)
