"""The file of detector review: what actions mean, here and on the page, and how the file is read."""

import json
import random
import shutil
import sqlite3
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from review_cases import CLASSES, draw_pictures, make_store

from detector.data.datasets.image_labels import ImageLabels
from detector.data.formats import ReviewImage, review_import
from detector.data.formats.review_file import as_review_image, read_states, replay, start_of
from detector.data.hints import read_hints
from detector.data.labeled_box import LabeledBox
from detector.data.reviewed import read_reviewed
from detector.utils.errors import DataError

BIRD, CAR = CLASSES
SIZE = (60, 80)  # (height, width)
KINDS = ("add", "change", "accept", "reject", "accept_all", "tag")
BOXES = (
    LabeledBox(BIRD, (10, 10, 30, 40), 0.9),
    LabeledBox(BIRD, (40, 5, 70, 50), 0.2),
    LabeledBox(CAR, (1, 2, 3, 4), 0.1, doubtful=True),
)
START = start_of(ReviewImage("a.png", SIZE, BOXES), tags=[BIRD])


def state_after(*actions: dict) -> dict:
    return replay(START, actions, CLASSES, SIZE)


def statuses(*actions: dict) -> list[str]:
    return [box["status"] for box in state_after(*actions)["boxes"]]


def test_accept_all_and_the_least_score() -> None:
    accept = {"kind": "accept_all", "complete": True}
    assert statuses(accept) == ["accepted"] * 3
    low = accept | {"least": 0.5}
    assert statuses(low) == ["accepted", "rejected", "accepted"]  # each class keeps its best box
    reject = {"kind": "reject", "id": "d0"}
    assert statuses(reject, low) == ["rejected", "accepted", "accepted"]
    assert state_after(accept)["complete"]


def test_a_changed_box_is_of_the_person() -> None:
    box = state_after({"kind": "change", "id": "d2", "box": [1, 2, 30, 40], "label": BIRD})["boxes"][2]
    assert box["box"] == [1, 2, 30, 40]
    assert (box["label"], box["score"], box["status"], box["doubtful"]) == (BIRD, None, "accepted", False)


def test_a_wrong_tag_rejects_the_boxes_that_nobody_accepted() -> None:
    accept, tag = {"kind": "accept", "id": "d0"}, {"kind": "tag", "label": BIRD, "shown": False}
    assert statuses(accept, tag) == ["accepted", "rejected", "proposed"]
    assert state_after(tag)["tags"] == {BIRD: False}
    assert state_after(tag, tag | {"shown": None})["tags"] == {}


def test_undo_and_redo() -> None:
    accept, reject = {"kind": "accept", "id": "d0"}, {"kind": "reject", "id": "d0"}
    undo, redo = {"kind": "undo"}, {"kind": "redo"}
    assert statuses(accept, reject, undo)[0] == "accepted"
    assert statuses(accept, reject, undo, undo)[0] == "proposed"
    assert statuses(accept, reject, undo, undo, redo, redo)[0] == "rejected"
    with pytest.raises(DataError, match="nothing to redo"):
        state_after(accept, undo, reject, redo)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("accept", "expected an object with a kind"),
        ({"kind": "drop"}, "expected one of add, change"),
        ({"kind": "accept"}, "expected id"),
        ({"kind": "accept", "id": "d0", "more": 1}, "'more'"),
        ({"kind": "accept", "id": "d9"}, "no box 'd9'"),
        ({"kind": "add", "id": "d0", "label": BIRD, "box": [0, 0, 5, 5]}, "already"),
        ({"kind": "add", "id": "a b", "label": BIRD, "box": [0, 0, 5, 5]}, "letters, digits"),
        ({"kind": "add", "id": "n", "label": "cow", "box": [0, 0, 5, 5]}, "expected one of"),
        ({"kind": "add", "id": "n", "label": BIRD, "box": [0, 0, 81, 5]}, "80 x 60"),
        ({"kind": "add", "id": "n", "label": BIRD, "box": [5, 0, 5, 5]}, "80 x 60"),
        ({"kind": "add", "id": "n", "label": BIRD, "box": [0, 0, float("nan"), 5]}, "finite"),
        ({"kind": "add", "id": "n", "label": BIRD, "box": [False, 0, 5, 5]}, "finite"),
        ({"kind": "point", "label": BIRD, "point": [1, 61]}, "80 x 60"),
        ({"kind": "unpoint", "index": 0}, "has 0 points"),
        ({"kind": "count", "label": BIRD, "count": 0}, "from 1 to"),
        ({"kind": "tag", "label": BIRD, "shown": 1}, "true, false or null"),
        ({"kind": "accept_all", "complete": 1}, "true or false"),
        ({"kind": "accept_all", "complete": True, "least": "x"}, "finite"),
    ],
    ids=str,
)
def test_wrong_actions_are_named(action: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        state_after(action)


def test_what_counts_as_reviewed() -> None:
    accept, all_of_them = {"kind": "accept", "id": "d0"}, {"kind": "accept_all", "complete": True}

    def image(*actions: dict) -> ReviewImage:
        return as_review_image("a.png", SIZE, state_after(*actions), upright=True)

    assert image().reviewed == "none"
    assert [box.reviewed for box in image(accept).boxes] == [True, False, False]
    assert image(accept).reviewed == "some"
    assert image(all_of_them).complete
    assert not image(all_of_them, {"kind": "skip"}).complete
    assert len(image(accept, {"kind": "reject", "id": "d1"}).boxes) == 2


def random_action(chance: random.Random, number: int) -> dict:
    kind = chance.choice(
        [*KINDS, "point", "unpoint", "count", "skip", "undo", "redo"]
    )  # fmt: skip
    x, y = chance.randrange(0, 40), chance.randrange(0, 30)
    everything = {
        "id": f"n{number}" if kind == "add" else f"{chance.choice('dn')}{chance.randrange(12)}",
        "label": chance.choice(CLASSES),
        "box": [x, y, x + chance.randint(1, 40), y + chance.randint(1, 30)],
        "complete": chance.random() < 0.5,
        "least": chance.choice([0, 0.15, 0.5]),
        "shown": chance.choice([True, False, None]),
        "point": [x, y],
        "index": chance.randrange(3),
        "count": chance.choice([None, 1, 7]),
    }
    needed = {
        "add": ["id", "label", "box"], "change": ["id", chance.choice(["label", "box"])], "accept": ["id"],
        "reject": ["id"], "accept_all": ["complete", "least"], "tag": ["label", "shown"],
        "point": ["label", "point"], "unpoint": ["index"], "count": ["label", "count"],
    }.get(kind, [])  # fmt: skip
    return {"kind": kind, **{key: everything[key] for key in needed}}


def random_actions(seed: int) -> list[dict]:
    chance, actions = random.Random(seed), list[dict]()
    for number in range(25):
        action = random_action(chance, number)
        try:
            state_after(*actions, action)
        except DataError:
            continue  # not possible here
        actions.append(action)
    return actions


def test_the_page_applies_actions_as_the_file_does() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    cases = [random_actions(seed) for seed in range(200)]
    kinds = {action["kind"] for actions in cases for action in actions}
    assert len(kinds) == 12
    module = Path(__file__).parents[3] / "detector" / "review" / "page" / "state.mjs"
    script = (
        f"import {{ replay }} from {json.dumps(module.as_uri())};"
        "let text = ''; for await (const part of process.stdin) text += part;"
        "const { start, cases } = JSON.parse(text);"
        "console.log(JSON.stringify(cases.map((actions) => replay(start, actions))));"
    )
    given = json.dumps({"start": START, "cases": cases})
    words = [node, "--input-type=module", "-e", script]
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [state_after(*actions) for actions in cases]


@pytest.fixture
def reviewed(tmp_path: Path) -> tuple[Path, ImageLabels]:
    """A review of three pictures of a table: complete, with a point and a count, and untouched."""
    draw_pictures(tmp_path)
    rows = [{"file": f"{number}.png", "labels": [BIRD, CAR]} for number in range(3)]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    store = make_store(tmp_path)
    store.record(1, "ann", [("a", {"kind": "accept_all", "complete": True})])
    hints = [{"kind": "point", "label": CAR, "point": [5.5, 6]}, {"kind": "count", "label": CAR, "count": 2}]
    store.record(2, "ann", [(f"b{i}", hint) for i, hint in enumerate(hints)])
    return store.path, ImageLabels(tmp_path, "train", CLASSES)


def test_training_takes_the_file_itself(reviewed: tuple[Path, ImageLabels]) -> None:
    path, dataset = reviewed
    found, others = read_reviewed(path, dataset)
    assert others == []
    ((image_id, boxes),) = found.items()
    assert dataset.image_ids.index(image_id) == 0
    assert boxes.complete
    assert boxes.boxes.tolist() == [[10, 10, 30, 40], [40, 5.5, 70, 50]]


def test_hints_take_the_file_itself(reviewed: tuple[Path, ImageLabels]) -> None:
    path, dataset = reviewed
    ((image_id, hints),) = read_hints(path, dataset).items()
    assert dataset.image_ids.index(image_id) == 1
    assert (hints.points.tolist(), hints.counts.tolist()) == ([[5.5, 6]], [0, 2])


def test_a_file_that_cannot_be_written_is_read(reviewed: tuple[Path, ImageLabels]) -> None:
    path, _ = reviewed
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    copy = path.parent / "alone" / "copy.sqlite"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o444)
    copy.parent.chmod(0o555)
    try:
        assert [image.reviewed for image in review_import(copy)] == ["all", "none", "none"]
        assert [each.name for each in copy.parent.iterdir()] == ["copy.sqlite"] or copy.stat().st_uid == 0
    finally:
        copy.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA application_id = 7", "not one of detector review"),
        ("PRAGMA user_version = 99", "version 99"),
        ("DROP TABLE actions", "actions is missing"),
        ("ALTER TABLE images DROP COLUMN start", "images is missing or has other columns"),
        ("UPDATE images SET start = '{'", "damaged"),
        ("UPDATE images SET start = '[]'", "damaged"),
        ("UPDATE images SET height = -5", "80 x -5 pixels"),
        ("UPDATE images SET name = '../../x.png' WHERE id = 1", r"\.\."),
        ("DELETE FROM meta", "damaged"),
        ('UPDATE actions SET body = \'{"kind": "accept", "id": "d9"}\'', "no box"),
    ],
)
def test_damaged_and_hostile_files_are_named(
    reviewed: tuple[Path, ImageLabels], statement: str, message: str
) -> None:
    path, _ = reviewed
    with sqlite3.connect(path) as file:
        file.execute(statement)
    with pytest.raises(DataError, match=message) as error:
        review_import(path)
    assert str(path) in str(error.value)


def test_a_view_in_place_of_a_table_is_not_computed(tmp_path: Path) -> None:
    path = make_store(tmp_path).path
    numbers = "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a)"
    endless = f"{numbers} SELECT x AS id, x AS image, '' AS body FROM a"
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE actions")
        file.execute(f"CREATE VIEW actions AS {endless}")
    with pytest.raises(DataError, match="actions is missing"):
        list(read_states(path))


@pytest.mark.parametrize("seed", range(30))
def test_flipped_bytes_give_an_error_or_the_images(tmp_path: Path, seed: int) -> None:
    path = make_store(tmp_path).path
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    content, chance = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(20):
        content[chance.randrange(len(content))] = chance.randrange(256)
    other = tmp_path / "other.sqlite"
    other.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
    with suppress(DataError):  # any other exception fails the test
        list(read_states(other))
