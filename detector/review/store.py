"""Writes the file of a review: images, actions, and who works on which image."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from detector.data.formats import review_file
from detector.data.formats.review_file import Action, State, replay
from detector.review.least_score import suggest_least_score
from detector.utils.errors import DataError, UserError, describe_value, shortened

LEASE = 600.0  # seconds for which an image is reserved for the person who last opened or changed it
ORDERS = ("suggested", "doubtful", "tags", "class", "similar", "skipped")
# No browser has opened the image, and it has no action; a browser that crashes leaves `until` set.
_UNOPENED = "until IS NULL AND id NOT IN (SELECT image FROM actions)"
_MOST_ACTIONS = 5000  # of an image, since all are replayed for each new one


class NewImage(NamedTuple):
    """A row of the table of images; see `detector.data.formats.review_file`."""

    name: str
    size: tuple[int, int]  # (height, width)
    upright: bool
    start: dict[str, Any]
    candidates: list[list[float]]  # x1, y1, x2, y2, class, score
    doubt: float = 0.0
    tag_doubt: float = 0.0
    similar: Sequence[str] = ()  # names, the most similar image first


class Busy(Exception):
    """Another person works on the image, or its boxes have changed."""


class Store:
    """The file of one review. All methods may be called from several threads, and by several processes.

    When :meth:`record` returns, the action is on the disk.

    Args:
        path: created if it does not exist, else continued.
        class_names: the classes of the detector.

    Raises:
        UserError: the file has other classes, or is not the file of a review.
    """

    def __init__(self, path: Path, class_names: Sequence[str]) -> None:
        self.path, self.class_names = path, tuple(class_names)
        self._lock = threading.Lock()
        try:
            self._file = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")  # otherwise WAL may lose the last writes
            with self._transaction():
                self._create()
        except sqlite3.Error as error:
            raise UserError(f"{path} cannot be used as the file of a review: {error}") from error

    def _create(self) -> None:
        if not self._file.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in review_file.SCHEMA.split(";"):
                self._file.execute(statement)
            self._file.execute(f"PRAGMA application_id = {review_file.APPLICATION_ID}")
            self._file.execute(f"PRAGMA user_version = {review_file.VERSION}")
            self._file.execute("INSERT INTO meta VALUES ('classes', ?)", (json.dumps(self.class_names),))
            return
        try:
            review_file.check_schema(self._file)
        except DataError as error:
            raise UserError(f"{self.path}: {error}") from None
        (names,) = self._file.execute("SELECT value FROM meta WHERE key = 'classes'").fetchone()
        if tuple(json.loads(names)) != self.class_names:
            raise UserError(
                f"{self.path} is a review of the classes {shortened(json.loads(names))}, expected "
                f"{shortened(self.class_names)}: name another file"
            )

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; after an error the file is as before."""
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:  # SQLite rolls back itself when the disk is full
                    self._file.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._file.execute(query, values).fetchall()

    def set_meta(self, **values: object) -> None:
        """Keep values as JSON."""
        with self._transaction():
            for key, value in values.items():
                self._file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def get_meta(self, key: str) -> str | None:
        found = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def add_images(self, images: Iterable[NewImage], meta: Mapping[str, str]) -> None:
        """Add images in their order; images that a person has opened stay unchanged."""
        with self._transaction():
            for place, image in enumerate(images):
                (height, width), start = image.size, image.start
                self._file.execute(
                    "INSERT INTO images (name, height, width, upright, start, candidates, place, doubt, "
                    "tag_doubt, similar, decided) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET start = excluded.start, place = excluded.place, "
                    "candidates = excluded.candidates, doubt = excluded.doubt, "
                    "tag_doubt = excluded.tag_doubt, similar = excluded.similar, decided = excluded.decided "
                    f"WHERE {_UNOPENED}",
                    (
                        *(image.name, height, width, image.upright, json.dumps(start)),
                        *(json.dumps(image.candidates), place, image.doubt, image.tag_doubt),
                        *(json.dumps([*image.similar]), start["complete"]),
                    ),
                )
            for key, value in meta.items():
                self._file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def improve(self, images: Iterable[NewImage]) -> int:
        """Replace the boxes of images that nobody has opened or decided; returns the number of images."""
        rows = [
            (json.dumps(image.start), json.dumps(image.candidates), image.doubt, image.tag_doubt, image.name)
            for image in images
        ]
        query = (
            "UPDATE images SET start = ?, candidates = ?, doubt = ?, "
            "tag_doubt = CASE WHEN tag_doubt > 1 THEN tag_doubt ELSE ? END "  # of doubt_tags
            f"WHERE name = ? AND NOT decided AND {_UNOPENED}"
        )
        with self._transaction():
            return sum(self._file.execute(query, row).rowcount for row in rows)

    def doubt_tags(self, doubts: Mapping[str, Mapping[str, float]]) -> None:
        """Put the images of doubted tags first in the order "tags", those of most doubt foremost.

        Args:
            doubts: by the name of the image and the class, the probability that the tag is wrong.
        """
        rows = [(1 + max(each.values()), name) for name, each in doubts.items()]
        with self._transaction():
            self._file.execute("INSERT OR REPLACE INTO meta VALUES ('doubts', ?)", (json.dumps(doubts),))
            self._file.execute("UPDATE images SET tag_doubt = tag_doubt - 1 WHERE tag_doubt > 1")
            self._file.executemany("UPDATE images SET tag_doubt = ? WHERE name = ?", rows)

    def outdated(self, detector: str, count: int) -> list[str]:
        """The names of the next images with boxes of another detector that :meth:`improve` may replace."""
        query = (
            f"SELECT name FROM images WHERE NOT decided AND NOT skipped AND {_UNOPENED} "
            "AND json_extract(start, '$.detector') IS NOT ? ORDER BY place LIMIT ?"
        )
        return [name for (name,) in self._rows(query, (detector, count))]

    def starts(self) -> dict[str, dict[str, Any]]:
        """The start of each image, by its name; see `start_of`."""
        return {name: json.loads(start) for name, start in self._rows("SELECT name, start FROM images")}

    def names(self) -> dict[int, str]:
        """The name of each image by its number."""
        return dict(self._rows("SELECT id, name FROM images"))

    def image(self, number: int) -> dict[str, Any]:
        """All that the page needs of an image.

        Raises:
            DataError: there is no such image.
        """
        with self._lock:
            return self._image(number)

    def _image(self, number: int) -> dict[str, Any]:
        columns = "name, height, width, start, candidates"
        row = self._file.execute(f"SELECT {columns} FROM images WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise DataError(f"there is no image {number}")
        name, height, width, start, candidates = row
        found = {"id": number, "name": name, "height": height, "width": width, "start": json.loads(start)}
        doubts = self._file.execute(
            "SELECT each.value FROM meta, json_each(meta.value) AS each "
            "WHERE meta.key = 'doubts' AND each.key = ?",
            (name,),
        ).fetchone()
        found["doubts"] = json.loads(doubts[0]) if doubts else {}
        return found | {"candidates": json.loads(candidates), "actions": self._actions(number)}

    def _actions(self, number: int) -> list[dict[str, Any]]:
        rows = self._file.execute("SELECT body FROM actions WHERE image = ? ORDER BY id", (number,))
        return [json.loads(body) for (body,) in rows]

    def state(self, number: int) -> State:
        """The state of an image after all its actions."""
        return self._replayed(self.image(number))

    def _replayed(self, image: dict[str, Any]) -> State:
        size = (image["height"], image["width"])
        return replay(image["start"], image["actions"], self.class_names, size)

    def record(
        self, number: int, person: str, actions: Sequence[tuple[str, Action]], *, seen: str | None = None
    ) -> State:
        """Write actions of an image, all or none, and return its state.

        Args:
            number: of the image.
            actions: pairs of a unique key and an action. Actions whose key is in the file are skipped: they
                were written by an earlier call whose answer was lost.
            seen: the detector whose boxes the person saw; None: unknown.

        Raises:
            Busy: another person works on the image, or its boxes have changed.
            DataError: there is no such image, or an action is not possible.
            sqlite3.Error: the write failed, for example because the disk is full; the file is unchanged.
        """
        now = time.time()
        with self._transaction():
            image = self._image(number)
            self._lease(number, person, now)
            if seen is not None and seen != image["start"].get("detector", ""):
                raise Busy(f"image {image['name']!r} has other boxes by now: look at it again")
            known = image["actions"]
            for key, action in actions:
                if self._file.execute("SELECT 1 FROM actions WHERE key = ?", (key,)).fetchone():
                    continue
                known.append(action)
                self._file.execute(
                    "INSERT INTO actions (key, image, person, time, body) VALUES (?, ?, ?, ?, ?)",
                    (key, number, person, now, json.dumps(action)),
                )
            if len(known) > _MOST_ACTIONS:
                raise DataError(
                    f"image {image['name']!r} has {len(known)} actions, the most is {_MOST_ACTIONS}"
                )
            state = self._replayed(image)
            self._file.execute(
                "UPDATE images SET decided = ?, skipped = ? WHERE id = ?",
                (state["decided"], state["skipped"], number),
            )
        return state

    def _lease(self, number: int, person: str, now: float) -> None:
        taken = self._file.execute(
            "UPDATE images SET person = ?, until = ? "
            "WHERE id = ? AND (until IS NULL OR until < ? OR person = ?)",
            (person, now + LEASE, number, now, person),
        )
        if taken.rowcount == 0:
            raise Busy(f"somebody else works on image {number}")

    def next_images(
        self,
        person: str,
        count: int,
        *,
        order: str = "suggested",
        label: str | None = None,
        near: int | None = None,
        held: Sequence[int] = (),
    ) -> list[dict[str, Any]]:
        """Reserve the next images that nobody else works on for this person; see :meth:`image`.

        Args:
            order: one of `ORDERS`: that of detector suggest; the most doubtful boxes first; the least likely
                tags first; images of the class `label`; images similar to the image `near`; skipped ones.
            held: images that the person already has.
        """
        if order not in ORDERS:
            raise DataError(f"the order is {describe_value(order)}, expected one of {', '.join(ORDERS)}")
        if order == "class" and label not in self.class_names:
            raise DataError(f"a class is {describe_value(label)}, expected one of {[*self.class_names]}")
        now, source, values = time.time(), "images", list[object]()
        by = {"doubtful": "doubt DESC, place", "tags": "tag_doubt DESC, place"}.get(order, "place")
        which = "skipped" if order == "skipped" else "NOT decided AND NOT skipped"
        if order == "similar":
            source += (
                " JOIN json_each((SELECT similar FROM images WHERE id = ?)) AS near ON near.value = name"
            )
            by, values = "near.key", [near]
        values += [now, person, *held]
        if order == "class":
            which += (
                " AND (EXISTS (SELECT 1 FROM json_each(start, '$.tags') WHERE value = ?) OR EXISTS "
                "(SELECT 1 FROM json_each(start, '$.boxes') WHERE json_extract(value, '$.label') = ?))"
            )
            values += [label, label]
        query = (
            f"SELECT images.id FROM {source} WHERE (until IS NULL OR until < ? OR person = ?) "
            f"AND images.id NOT IN ({', '.join('?' * len(held))}) AND {which} ORDER BY {by} LIMIT ?"
        )
        with self._transaction():
            numbers = [number for (number,) in self._file.execute(query, (*values, count)).fetchall()]
            for number in numbers:
                self._lease(number, person, now)
            return [self._image(number) for number in numbers]

    def release(self, person: str) -> None:
        """Make the images of a person available to others."""
        with self._transaction():
            self._file.execute("UPDATE images SET until = NULL WHERE person = ?", (person,))

    def undecided_boxes(self, person: str, label: str, count: int) -> list[dict[str, Any]]:
        """Undecided boxes of a class, best first, whose images are reserved for this person."""
        now = time.time()
        rows = self._rows(
            "SELECT DISTINCT images.id FROM images, json_each(start, '$.boxes') WHERE NOT decided AND NOT "
            "skipped AND (until IS NULL OR until < ? OR person = ?) AND json_extract(value, '$.label') = ?",
            (now, person, label),
        )
        found = []
        for (number,) in rows:
            image = self.image(number)
            detector = image["start"].get("detector", "")
            for box in self._replayed(image)["boxes"]:
                if box["status"] == "proposed" and box["label"] == label:
                    found.append({"image": number, "detector": detector, **box})
        best = sorted(found, key=lambda box: -(box["score"] or 0))[:count]
        with self._transaction():
            for number in {box["image"] for box in best}:
                self._lease(number, person, now)
        return best

    def progress(self, last: int = 30) -> dict[str, Any]:
        """How many images are decided and skipped, and the corrections in the last ones, oldest first.

        A correction is a box that was added, moved, given another class or rejected, or a tag. Beside them is
        the least score that they suggest, see :func:`suggest_least_score`.
        """
        (total, decided, skipped), *_ = self._rows(
            "SELECT count(*), coalesce(sum(decided AND NOT skipped), 0), coalesce(sum(skipped), 0) "
            "FROM images"
        )
        rows = self._rows(
            "SELECT image FROM actions JOIN images ON images.id = image WHERE decided AND NOT skipped "
            "GROUP BY image ORDER BY max(actions.id) DESC LIMIT ?",
            (last,),
        )
        images = [self.image(number) for (number,) in reversed(rows)]
        states = [self._replayed(image) for image in images]
        recent = [_effort(image, state) for image, state in zip(images, states, strict=True)]
        least = suggest_least_score([*zip((image["start"] for image in images), states, strict=True)])
        found = {"total": total, "decided": decided, "skipped": skipped, "recent": recent}
        return found | {"least": least}


def _effort(image: dict[str, Any], state: State) -> dict[str, int]:
    """The corrections of an image, and how many boxes and actions there are."""
    before, after = (
        {box["id"]: (box["label"], box["box"]) for box in boxes if box["status"] != "rejected"}
        for boxes in (image["start"]["boxes"], state["boxes"])
    )
    chosen = {action.get("id") for action in image["actions"]}  # not what scored too low to be shown
    changed = (box_id for box_id in before.keys() | after.keys() if before.get(box_id) != after.get(box_id))
    corrections = len(chosen.intersection(changed)) + len(state["tags"])
    return {"corrections": corrections, "boxes": len(after), "actions": len(image["actions"])}
