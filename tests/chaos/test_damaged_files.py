"""Every file that is read, damaged: an error or a warning that names it, or the same result.

Files with checksums (checkpoints, weights, proposals, results of a test, PNG) must show every change. Text
that people write and pictures of other formats have none: what remains valid is read as it is, and counts as
documented.
"""

from pathlib import Path

import pytest
from chaos.harness import Case, check, damage, digest, repeats
from chaos.results import (
    CHECK,
    COCO,
    OWN,
    PREDICT,
    PROPOSE,
    RUN,
    measured,
    predicted,
    printed,
    proposed,
    reported,
    retrained,
)

pytestmark = pytest.mark.chaos


def show_weights():
    from detector.modeling.weights import load_weights

    weights = load_weights("weights.pth")
    print(digest(*(tensor.numpy().tobytes() for tensor in weights.tensors.values())), weights.preprocessing)


def show_proposals():
    from detector.data.proposals import load_proposals

    proposals = load_proposals("toybox/proposals.npz")
    ids = sorted(path.stem for path in Path("toybox/JPEGImages").iterdir())
    print(digest(*(proposals[image_id].numpy().tobytes() for image_id in ids)))


def shorten_run(folder):
    """Leave the run as it was when it was killed after its last checkpoint."""
    (folder / "run/model_final.pt").unlink()


def begin_journal(folder):
    """A search of proposals that was interrupted after the last picture."""
    from detector.data.images import read_image
    from detector.data.proposals.search import as_record, make_finder
    from detector.utils.records import append_record

    find, parameters = make_finder("grid", 300)
    journal = folder / "made.npz.partial"
    append_record(journal, {"parameters": {**parameters, "apply_orientation": True}})
    for path in sorted((folder / "own/pictures").iterdir())[:6]:
        image = read_image(path, apply_orientation=True).permute(1, 2, 0).numpy()
        append_record(journal, as_record(f"pictures/{path.stem}", (image.shape[:2], find(image))))


RESUME = ("train", "--config-file", "config.yaml", "--resume")
CHECKPOINT = "run/checkpoints/000004.pt"
FILES = {
    # file: command, its result, what comes before the damage, what it may write, has no checksum, how often
    "config.yaml": (CHECK, printed, None, RUN, True, 16),
    "run/config.yaml": (("test", "--config-file", "run/config.yaml"), measured, None, RUN, True, 4),
    CHECKPOINT: (RESUME, retrained, shorten_run, RUN, False, 12),
    "run/model_final.pt": (
        (*PREDICT, "--format", "coco", "pictures/png"),
        predicted,
        None,
        ("found/*",),
        False,
        16,
    ),
    "weights.pth": (show_weights, printed, None, (), False, 24),
    "toybox/proposals.npz": (show_proposals, printed, None, (), False, 24),
    "made.npz.partial": ((*PROPOSE[:-1], 1), proposed, begin_journal, ("made.npz*", ".made.npz*"), False, 12),
    "own/train.csv": ((*CHECK, *OWN), printed, None, RUN, True, 16),
    "own/val.jsonl": ((*CHECK, *OWN), printed, None, RUN, True, 16),
    "coco/trainval.json": ((*CHECK, *COCO), printed, None, RUN, True, 16),
    "toybox/Annotations/{}": (CHECK, printed, None, RUN, True, 12),
    "toybox/ImageSets/Main/trainval.txt": (CHECK, printed, None, RUN, True, 8),
    "run/metrics.json": (("report", "run"), reported, None, RUN, True, 8),
    "run/detections.npz": (("report", "run"), reported, None, RUN, False, 8),
    "run/snapshots/000004.npz": (("report", "run"), reported, None, RUN, False, 8),
    "run/events.out*": (("report", "run"), reported, None, RUN, True, 8),
    **{
        f"pictures/{form}/picture.{form}": (
            (*PREDICT, "--format", "coco", f"pictures/{form}"),
            predicted,
            None,
            ("found/*",),
            form != "png",
            8,
        )
        for form in ("png", "jpg", "webp", "tif", "gif", "bmp")
    },
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_file(world, reference, tmp_path, name):
    command, result, before, writes, documented, count = FILES[name]
    if name.endswith(("*", "{}")):
        name = sorted(world.glob(name.replace("{}", "*")))[0].relative_to(world).as_posix()
    expected = expected_result(reference, command, result, before or (lambda folder: None))
    cases = []
    for seed in repeats(count):
        what, harm = damage(name, seed)

        def prepare(folder, harm=harm):
            if before:
                before(folder)
            harm(folder)

        cases.append(
            Case(
                f"damaged {kind(name)}",
                what,
                command,
                "error or equal",
                names=(named(name),),
                prepare=prepare,
                result=result,
                reference=expected,
                writes=writes,
                documented=documented,
            )
        )
    check(cases, world, tmp_path)


def expected_result(reference, command, result, before):
    if callable(command):
        command = _Function(command)
    return reference(command, result, before)[0]


class _Function:
    """A function that can stand where a command's words do."""

    def __init__(self, function):
        self.function = function

    def __call__(self):
        self.function()

    def __iter__(self):
        return iter((self.function.__name__,))


def kind(name):
    """The row of the table that a file belongs to."""
    if "events" in name:
        return "events file"
    return "picture" if name.startswith("pictures/") else f".{name.rpartition('.')[2]} file"


def named(name):
    """What a message must hold: the file, or, of a config that is valid still, the key that it lacks, or the
    annotation that does not fit the classes that it lacks."""
    file = name.rpartition("/")[2].removesuffix(".partial").removesuffix(".xml")
    keys = "DATASETS.|MODEL.|OUTPUT_DIR|datasets/VOC2007|model_final.pt|of unknown class"
    return f"{file}|{keys}" if "yaml" in name else file
