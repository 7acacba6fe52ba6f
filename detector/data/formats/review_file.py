"""The file of `detector review`: SQLite, with a row for each image and one for each action of a person.

The state of an image is its start, the boxes of a detector or an imported file, after its actions in their
order (:func:`replay`). The table of actions is append-only. The page of `detector review` applies actions by
the same rules (page/state.mjs), so that it need not wait for the server.
"""

import json
import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from detector.data.formats.review import ReviewImage
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError, describe_value
from detector.utils.files import reading

SUFFIX = ".sqlite"
APPLICATION_ID, VERSION = 0x64726576, 1  # in the header of the file
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE images (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, height INTEGER NOT NULL, width INTEGER NOT NULL,
    upright INTEGER NOT NULL,            -- boxes are of the picture as a viewer shows it, or as stored
    start TEXT NOT NULL,                 -- JSON: boxes, tags, unknown, complete
    candidates TEXT NOT NULL,            -- JSON: other boxes of the detector, to snap to
    place INTEGER NOT NULL,              -- in the order of detector suggest
    doubt REAL NOT NULL, tag_doubt REAL NOT NULL, similar TEXT NOT NULL,  -- for other orders
    decided INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
    person TEXT, until REAL              -- who works on it, and until when
);
CREATE TABLE actions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, image INTEGER NOT NULL REFERENCES images,
    person TEXT NOT NULL, time REAL NOT NULL, body TEXT NOT NULL  -- seconds since 1970, JSON
);
CREATE INDEX actions_of_image ON actions (image, id);
"""
_COLUMNS = {
    "meta": {"key", "value"},
    "images": {"id", "name", "height", "width", "upright", "start"},
    "actions": {"id", "image", "body"},
}
_ID = re.compile(r"[A-Za-z0-9-]{1,40}\Z")
_MOST_COUNTED = 65_535  # objects of a class, as in files of hints

State = dict[str, Any]  # of an image; the page has the same as JSON
Action = Mapping[str, Any]  # {"kind": ..., and what the kind needs}


def start_of(
    image: ReviewImage, tags: Sequence[str] = (), unknown: Sequence[str] = (), detector: str = ""
) -> dict[str, Any]:
    """The column `start` of an image; boxes without a review are proposed to the person.

    Args:
        detector: identifies the weights that found the boxes, so that the page can say which boxes it shows.
    """
    boxes = [
        {
            "id": f"d{number}",
            "label": box.label,
            "box": [*box.box],
            "score": box.score,
            "status": "accepted" if box.reviewed else "proposed",
            "doubtful": box.doubtful,
            "difficult": box.difficult,
            "truncated": box.truncated,
        }
        for number, box in enumerate(image.boxes)
    ]
    start = {"boxes": boxes, "tags": [*tags], "unknown": [*unknown], "complete": image.complete}
    return start | {"detector": detector}


def start_state(start: Mapping[str, Any]) -> State:
    """What is known of an image before the first action."""
    return {
        "boxes": [dict(box) for box in start["boxes"]],
        "tags": {},  # corrections: class -> whether the image shows it
        "points": [],
        "counts": {},
        "complete": start["complete"],
        "decided": start["complete"],
        "skipped": False,
    }


def replay(
    start: Mapping[str, Any], actions: Iterable[Action], class_names: Sequence[str], size: tuple[int, int]
) -> State:
    """The state of an image after its actions. `undo` takes the last one back, `redo` the last `undo`.

    Args:
        size: (height, width) of the image.

    Raises:
        DataError: an action is not possible; says which, what was found and what was expected.
    """
    done: list[Action] = []
    undone: list[Action] = []
    for action in actions:
        kind = action.get("kind") if isinstance(action, Mapping) else None
        if kind in ("undo", "redo"):
            source, target = (done, undone) if kind == "undo" else (undone, done)
            if not source:
                raise DataError(f"there is nothing to {kind}")
            target.append(source.pop())
        else:
            done.append(action)
            undone.clear()
    state = start_state(start)
    for action in done:
        _apply(state, action, class_names, size)
    return state


def _apply(state: State, action: Action, class_names: Sequence[str], size: tuple[int, int]) -> None:
    if not isinstance(action, Mapping) or not isinstance(action.get("kind"), str):
        raise DataError(f"an action is {describe_value(action)}, expected an object with a kind")
    kind = action["kind"]
    if kind not in _KINDS:
        raise DataError(
            f"the kind of an action is {describe_value(kind)}, expected one of {', '.join(_KINDS)}"
        )
    needed, optional, change = _KINDS[kind]
    if not needed <= action.keys() - {"kind"} <= needed | optional:
        found, expected = sorted(action.keys() - {"kind"}), ", ".join(sorted(needed)) or "nothing else"
        raise DataError(f"an action {kind!r} has {describe_value(found)}, expected {expected}")
    for key, value in action.items():
        if key in _CHECKS:
            _CHECKS[key](value, class_names, size)
    change(state, action)


def _find(state: State, action: Action) -> dict[str, Any]:
    for box in state["boxes"]:
        if box["id"] == action["id"]:
            found: dict[str, Any] = box
            return found
    raise DataError(f"the image has no box {describe_value(action['id'])}")


def _add(state: State, action: Action) -> None:
    if any(box["id"] == action["id"] for box in state["boxes"]):
        raise DataError(f"the image has a box {action['id']!r} already")
    new = {"id": action["id"], "label": action["label"], "box": [*action["box"]], "score": None}
    state["boxes"].append(
        new | {"status": "accepted", "doubtful": False, "difficult": False, "truncated": False}
    )


def _change(state: State, action: Action) -> None:
    changes = {key: action[key] for key in ("label", "box") if key in action}
    _find(state, action).update(changes, status="accepted", score=None, doubtful=False)


def _accept(state: State, action: Action) -> None:
    _find(state, action)["status"] = "accepted"


def _reject(state: State, action: Action) -> None:
    _find(state, action)["status"] = "rejected"


def _accept_all(state: State, action: Action) -> None:
    low = _low_boxes(state, action.get("least", 0.0))
    for box in state["boxes"]:
        if box["status"] == "proposed":
            box["status"] = "rejected" if box["id"] in low else "accepted"
    state.update(complete=action["complete"], decided=True, skipped=False)


def _low_boxes(state: State, least: float) -> set[str]:
    """The ids of undecided boxes that score less than `least`, except the best of each class."""
    best: dict[str, float] = {}
    for box in state["boxes"]:
        if box["status"] != "rejected":
            score = 1.0 if box["score"] is None else box["score"]
            best[box["label"]] = max(best.get(box["label"], 0.0), score)
    return {
        box["id"]
        for box in state["boxes"]
        if box["status"] == "proposed" and box["score"] is not None
        if box["score"] < min(least, best[box["label"]])
    }


def _tag(state: State, action: Action) -> None:
    if action["shown"] is None:
        state["tags"].pop(action["label"], None)
    else:
        state["tags"][action["label"]] = action["shown"]
    if action["shown"] is False:
        for box in state["boxes"]:
            if box["label"] == action["label"] and box["status"] == "proposed":
                box["status"] = "rejected"


def _point(state: State, action: Action) -> None:
    state["points"].append({"label": action["label"], "point": [*action["point"]]})


def _unpoint(state: State, action: Action) -> None:
    index, points = action["index"], state["points"]
    if type(index) is not int or not 0 <= index < len(points):
        raise DataError(f"the image has {len(points)} points, none is number {describe_value(index)}")
    del points[index]


def _count(state: State, action: Action) -> None:
    if action["count"] is None:
        state["counts"].pop(action["label"], None)
    else:
        state["counts"][action["label"]] = action["count"]


def _skip(state: State, action: Action) -> None:
    state["skipped"] = True


# What an action of each kind has, may have beside, and does.
_KINDS: dict[str, tuple[set[str], set[str], Any]] = {
    "add": ({"id", "label", "box"}, {"how"}, _add),
    "change": ({"id"}, {"label", "box", "how"}, _change),
    "accept": ({"id"}, set(), _accept),
    "reject": ({"id"}, set(), _reject),
    "accept_all": ({"complete"}, {"least"}, _accept_all),
    "tag": ({"label", "shown"}, set(), _tag),
    "point": ({"label", "point"}, set(), _point),
    "unpoint": ({"index"}, set(), _unpoint),
    "count": ({"label", "count"}, set(), _count),
    "skip": (set(), set(), _skip),
}


def _numbers(value: object, count: int, what: str) -> list[float]:
    """Finite numbers; booleans are none."""
    if not isinstance(value, list) or len(value) != count:
        raise DataError(f"a {what} is {describe_value(value)}, expected {count} numbers")
    if not all(type(number) in (int, float) and math.isfinite(number) for number in value):
        raise DataError(f"a {what} is {describe_value(value)}, expected {count} finite numbers")
    return value


def _check_id(value: object, *_: object) -> None:
    if not isinstance(value, str) or not _ID.match(value):
        raise DataError(f"an id is {describe_value(value)}, expected up to 40 letters, digits and hyphens")


def _check_label(value: object, class_names: Sequence[str], *_: object) -> None:
    if value not in class_names:
        raise DataError(
            f"a class is {describe_value(value)}, expected one of {describe_value([*class_names])}"
        )


def _check_box(value: object, _: object, size: tuple[int, int]) -> None:
    (height, width), (x1, y1, x2, y2) = size, _numbers(value, 4, "box")
    if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
        raise DataError(f"a box is {describe_value(value)}, expected one inside of {width} x {height} pixels")


def _check_point(value: object, _: object, size: tuple[int, int]) -> None:
    (height, width), (x, y) = size, _numbers(value, 2, "point")
    if not (0 <= x <= width and 0 <= y <= height):
        raise DataError(
            f"a point is {describe_value(value)}, expected one inside of {width} x {height} pixels"
        )


def _check_count(value: object, *_: object) -> None:
    if value is not None and not (type(value) is int and 1 <= value <= _MOST_COUNTED):
        raise DataError(f"a count is {describe_value(value)}, expected a number from 1 to {_MOST_COUNTED}")


def _check_shown(value: object, *_: object) -> None:
    if value is not None and type(value) is not bool:
        raise DataError(f"`shown` is {describe_value(value)}, expected true, false or null")


def _check_flag(value: object, *_: object) -> None:
    if type(value) is not bool:
        raise DataError(f"`complete` is {describe_value(value)}, expected true or false")


def _check_least(value: object, *_: object) -> None:
    _numbers([value], 1, "least score")


def _check_how(value: object, *_: object) -> None:
    if value not in _HOW:
        raise DataError(f"`how` is {describe_value(value)}, expected one of {', '.join(_HOW)}")


_HOW = ("drawn", "clicked", "dragged", "snapped", "keys")
_CHECKS: dict[str, Any] = {
    "id": _check_id,
    "label": _check_label,
    "box": _check_box,
    "point": _check_point,
    "count": _check_count,
    "shown": _check_shown,
    "complete": _check_flag,
    "least": _check_least,
    "how": _check_how,
}


def as_review_image(name: str, size: tuple[int, int], state: State, *, upright: bool) -> ReviewImage:
    """The boxes that were not rejected. A skipped image and one with undecided boxes are not complete."""
    left = [box for box in state["boxes"] if box["status"] != "rejected"]
    boxes = tuple(
        LabeledBox(
            box["label"],
            tuple(box["box"]),
            box["score"],
            box["status"] == "accepted",
            box["doubtful"],
            box["difficult"],
            box["truncated"],
        )
        for box in left
    )
    undecided = any(box["status"] == "proposed" for box in left)
    complete = state["complete"] and not undecided and not state["skipped"]
    return ReviewImage(name, size, boxes, complete, upright)


def read_states(path: Path) -> Iterator[tuple[ReviewImage, State]]:
    """Each image of the file, also while `detector review` writes it, and its state.

    Raises:
        DataError: it is another file or damaged; names the file and what is wrong.
    """
    with reading(path, "file of detector review"), closing(_open(path)) as file:
        check_schema(file)
        (names,) = file.execute("SELECT value FROM meta WHERE key = 'classes'").fetchone()
        class_names = [str(name) for name in json.loads(names)]
        actions: dict[int, list[Action]] = {}
        for image, body in file.execute("SELECT image, body FROM actions ORDER BY id"):
            actions.setdefault(image, []).append(json.loads(body))
        rows = file.execute("SELECT id, name, height, width, upright, start FROM images ORDER BY id")
        for number, name, height, width, upright, start in rows:
            state = replay(json.loads(start), actions.get(number, ()), class_names, (height, width))
            yield as_review_image(name, (height, width), state, upright=bool(upright)), state


def read(path: Path) -> Iterator[ReviewImage]:
    """The images of the file; see :func:`read_states`."""
    return (image for image, _ in read_states(path))


def read_hints(path: Path) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name, points and counts of each image that has some, and whether they are of the upright image."""
    for image, state in read_states(path):
        if state["points"] or state["counts"]:
            yield image.name, {"points": state["points"], "counts": state["counts"]}, image.upright


def _open(path: Path) -> sqlite3.Connection:
    """The file for reading; in a folder that cannot be written, without the journal of a running server."""
    address = path.resolve().as_uri()
    journal = Path(f"{path.resolve()}-wal")
    try:
        file = sqlite3.connect(f"{address}?mode=ro", uri=True)
        file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if journal.exists() and journal.stat().st_size:
            raise
        file = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    file.execute("PRAGMA trusted_schema = OFF")
    return file


def check_schema(file: sqlite3.Connection) -> None:
    """Raise unless it is a file of this version: a view in place of a table could compute for hours."""
    (application,), (version,) = (
        file.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise DataError("it is an SQLite file, but not one of detector review")
    if version != VERSION:
        raise DataError(
            f"it has version {version}, expected {VERSION}: read it with the detector that wrote it"
        )
    for table, columns in _COLUMNS.items():
        kind = file.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        found = {row[1] for row in file.execute(f"PRAGMA table_xinfo({table})") if row[6] == 0}
        if kind != ("table",) or not columns <= found:
            raise DataError(f"its table {table} is missing or has other columns")
