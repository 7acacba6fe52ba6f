"""Actions a box in the page of `detector review`: a scripted annotator corrects towards the ground truth.

    python benchmarks/review_actions.py runs/demo --count 60 --save toybox

It sees what a person sees, through the real page in Chromium, and has rules like one: an object without a box
of its class at IoU 0.5 gets one, a box below 0.75 is drawn anew, what is left is rejected. A key, a click and
a drag are one action each. With --help-first it tries the page's proposals before it draws: a click for a
missing box, S for one that is off. Beside it: the same page without a detector, where each box is drawn, and
the same corrections in Label Studio, which are computed: `by_files` says how.
"""

import argparse
import sqlite3
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measure import print_table, write_result
from playwright.sync_api import Page
from review_page import NAME, WATCH, open_page
from review_rules import CORRECT, iou, low_boxes, match, objects_of, overlaps_of

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats.review_file import State
from detector.labeling.suggest import image_name
from detector.review.pictures import Pictures
from detector.review.session import Session, open_session
from detector.review.store import Store

_REACH = 10  # pixels of the screen around the chosen box where a drag takes a handle
CASES = {"boxes": ("boxes of the detector", True), "empty": ("every box drawn", False)}


@dataclass(frozen=True)
class Effort:
    """What a review needed."""

    case: str
    images: int
    objects: int
    actions_per_object: float
    accepts: int  # Enter, once an image or twice where the page asks
    drawn: int
    replaced: int  # of these, drawn over an undecided box
    rejected: int
    classes: int  # keys that correct the class of a drawn box
    proposed: int  # clicks for a proposal, and snaps to one
    others: int  # a box that was chosen in the list, Escape
    right: int  # objects with an accepted box of their class at IoU 0.75
    next_image_ms: float  # median from Enter to the next image


class Annotator:
    """A person at the page, who knows the objects.

    Args:
        help_first: whether the person tries the proposals of the page before drawing.
    """

    def __init__(self, page: Page, store: Store, *, help_first: bool = False) -> None:
        self.page, self.store, self.help_first = page, store, help_first
        self.actions = Counter[str]()
        self.names = {name: number for number, name in store.names().items()}

    def review(self, objects: list[tuple[str, list[float]]]) -> None:
        """Correct the image that is shown, and go on to the next."""
        self.number = self.names[self.page.evaluate(NAME)]
        self.tried = set[int]()  # the objects for which the page was asked for a proposal
        while self._correct_one(objects):
            pass
        name = self.page.evaluate(NAME)
        self._key("Enter", "accept")
        self._settle()
        if not self.store.state(self.number)["decided"]:  # the page asks whether a class has no box
            self._key("Enter", "accept")
        moved = f"{NAME} !== {name!r} || !document.getElementById('empty').hidden"
        while not self.page.evaluate(moved):
            time.sleep(0.002)

    def _correct_one(self, objects: list[tuple[str, list[float]]]) -> bool:
        """Correct what is worst: a missing box, one that is off, one too many. False: all is right."""
        shown = self._shown()
        taken = match(shown, objects)
        overlaps = overlaps_of(objects, taken)
        announced = self._announced()  # of the missing boxes, one of this class comes first
        worst = min(
            range(len(objects)),
            key=lambda index: (overlaps[index], not announced.startswith(objects[index][0])),
            default=0,
        )
        if objects and overlaps[worst] < CORRECT:
            self._improve(worst, *objects[worst], taken.get(worst))
            return True
        kept = {box["id"] for box in taken.values()}
        for box in shown:
            if box["id"] not in kept:
                self._reject(box)
                return True
        return False

    def _improve(self, index: int, label: str, target: list[float], box: dict[str, Any] | None) -> None:
        """Draw a box, or first ask the page for one."""
        if self.help_first and index not in self.tried:
            self.tried.add(index)
            middle = [(target[0] + target[2]) / 2, (target[1] + target[3]) / 2]
            shown = [each["box"] for each in self._shown()]
            if box is not None and (point := self._free_point(box)):
                self.page.mouse.move(*self._place(point))
                self._key("s", "proposed")
                return
            if box is None and not any(_inside(middle, each) for each in shown):
                self.page.mouse.click(*self._place(middle))
                self.actions["proposed"] += 1
                return
        self._draw(label, target)

    def _reject(self, box: dict[str, Any]) -> None:
        if point := self._free_point(box):
            self.page.mouse.move(*self._place(point))
        else:  # it is behind others: choose it in the list
            self.page.locator(f"#boxes button[value={box['id']}]").click()
            self.actions["other"] += 1
        self._key("x", "rejected")

    def _draw(self, label: str, box: list[float]) -> None:
        """A drag from a corner that is not in the chosen box, and a key where the page has another class."""
        x1, y1, x2, y2 = box
        corners = [([x1, y1], [x2, y2]), ([x2, y2], [x1, y1]), ([x1, y2], [x2, y1]), ([x2, y1], [x1, y2])]
        free = corners
        if chosen := self._chosen():
            grip = _REACH / self._scale()
            left, top, right, bottom = self._box(chosen)["box"]
            wide = [left - grip, top - grip, right + grip, bottom + grip]
            free = [each for each in corners if not _inside(each[0], wide)]
        if not free:
            self._key("Escape", "other")
        start, end = (free or corners)[0]
        self.page.mouse.move(*self._place(start))
        self.page.mouse.down()
        self.page.mouse.move(*self._place(end), steps=3)
        self.page.mouse.up()
        self.actions["drawn"] += 1
        if self._box(self._chosen())["label"] != label:
            self._key(str(self.store.class_names.index(label) + 1), "class")

    def _announced(self) -> str:
        """The class that the page gives to what is drawn next."""
        return str(self.page.evaluate("document.querySelector('#classes [aria-pressed=true]').textContent"))

    def _chosen(self) -> str:
        self._settle()
        return str(self.page.evaluate("document.querySelector('#boxes [aria-current=true]')?.value ?? ''"))

    def _free_point(self, box: dict[str, Any]) -> list[float] | None:
        """A point where the box is the smallest."""
        x1, y1, x2, y2 = box["box"]
        smaller = [each["box"] for each in self._shown() if _area(each["box"]) <= _area(box["box"])]
        smaller.remove(box["box"])
        for v in (0.5, 0.25, 0.75, 0.1, 0.9):
            for u in (0.5, 0.25, 0.75, 0.1, 0.9):
                point = [x1 + u * (x2 - x1), y1 + v * (y2 - y1)]
                if not any(_inside(point, each) for each in smaller):
                    return point
        return None

    def _box(self, name: str) -> dict[str, Any]:
        self._settle()
        return next(box for box in self.store.state(self.number)["boxes"] if box["id"] == name)

    def _shown(self) -> list[dict[str, Any]]:
        self._settle()
        state = self.store.state(self.number)
        low = low_boxes(state, float(self.page.locator("#least").input_value()))
        return [box for box in state["boxes"] if box["id"] not in low and box["status"] != "rejected"]

    def _settle(self) -> None:
        """Wait until the server has all."""
        waiting = "Object.keys(localStorage).some((key) => key.startsWith('detector-review'))"
        while self.page.evaluate(waiting):
            time.sleep(0.002)

    def _key(self, key: str, kind: str) -> None:
        self.page.keyboard.press(key)
        self.actions[kind] += 1

    def _scale(self) -> float:
        """Pixels of the screen a pixel of the image."""
        rect = self.page.locator("#stage .picture").bounding_box()
        assert rect is not None
        return float(rect["width"]) / self.store.image(self.number)["width"]

    def _place(self, point: list[float]) -> tuple[float, float]:
        rect = self.page.locator("#stage .picture").bounding_box()
        assert rect is not None
        image = self.store.image(self.number)
        return rect["x"] + point[0] * rect["width"] / image["width"], (
            rect["y"] + point[1] * rect["height"] / image["height"]
        )


def _area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _inside(point: list[float], box: list[float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def measure(case: str, session: Session, objects: dict[str, Any], options: argparse.Namespace) -> Effort:
    """Review the first images in Chromium; the actions, and the correctness of what was saved."""
    with open_page(session, 1280, 900) as page:
        if options.least is not None:
            page.locator("#least").fill(str(options.least))
        page.locator("#order").select_option(options.order)
        time.sleep(1)  # until the first image in this order is there
        page.evaluate(WATCH)
        annotator = Annotator(page, session.store, help_first=options.help_first)
        boxes, images = 0, []
        most = options.drawn_share * sum(map(len, objects.values())) - _drawn(session.store)
        while len(images) < options.count and annotator.actions["drawn"] < most:
            if page.locator("#empty").is_visible():
                break
            name = page.evaluate(NAME)
            annotator.review(objects[name])
            boxes += len(objects[name])
            images.append(name)
        annotator._settle()
        wait = statistics.median(page.evaluate("window.waits"))
    right = sum(_right(session.store.state(annotator.names[name]), objects[name]) for name in images)
    done = annotator.actions
    rest = [done[kind] for kind in ("rejected", "class", "proposed", "other")]
    per_object, replaced = (
        done.total() / boxes,
        sum(_replaced(session.store.image(annotator.names[name])) for name in images),
    )
    return Effort(
        case, len(images), boxes, per_object, done["accept"], done["drawn"], replaced, *rest, right, wait
    )


def _drawn(store: Store) -> int:
    """The boxes that were drawn so far."""
    images = map(store.image, store.names())
    return sum(action.get("how") == "drawn" for image in images for action in image["actions"])


def _replaced(image: dict[str, Any]) -> int:
    return sum(action["kind"] == "change" and action.get("how") == "drawn" for action in image["actions"])


def by_files(page: Effort) -> Effort:
    """The least that the same corrections need in Label Studio; the steps between the tools are not counted.

    A new box needs a key for its class and a drag, one that is off a click and two corners, one too many a
    click and a key, and an image a key.
    """
    new, wrong = page.drawn - page.replaced, page.rejected + page.replaced
    actions = page.images + 2 * new + 3 * page.replaced + 2 * page.rejected
    return replace(
        page,
        case="by files, in Label Studio (computed)",
        actions_per_object=actions / page.objects,
        accepts=page.images,
        drawn=new,
        classes=new,
        proposed=0,
        others=wrong + 2 * page.replaced + page.rejected,
        next_image_ms=0.0,
    )


def _right(state: State, objects: list[tuple[str, list[float]]]) -> int:
    kept = [box for box in state["boxes"] if box["status"] == "accepted"]
    return sum(
        any(each["label"] == label and iou(each["box"], box) >= CORRECT - 0.01 for each in kept)
        for label, box in objects
    )


def copied(file: Path, copy: Path, *, with_boxes: bool) -> Path:
    """A copy of a review; without boxes as if there were no detector."""
    copy.unlink(missing_ok=True)
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        if not with_boxes:
            target.execute("UPDATE images SET candidates = '[]'")
            target.execute("UPDATE images SET start = json_set(start, '$.boxes', json('[]'))")
    return copy


def reopened(file: Path, dataset: AnnotatedImages) -> Session:
    """A review whose detector is not on this machine."""
    store = Store(file, dataset.class_names)
    rows = {image_name(dataset, index): index for index in range(len(dataset))}
    paths = {number: dataset.image_path(rows[name]) for number, name in store.names().items()}
    return Session(store, Pictures(paths, upright=dataset.apply_orientation), file.stem)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config_file", metavar="RUN", help="or, with --review, a config")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    parser.add_argument("--count", type=int, default=60, help="images (default: 60)")
    parser.add_argument("--order", default="suggested", help="of the images, as in the page")
    parser.add_argument("--least", type=float, help="least score; default: what the page suggests")
    parser.add_argument("--folder", type=Path, default=Path("review_actions"), help="for the reviews")
    made = "go on from the review that `detector review RUN --file F --output D` made elsewhere"
    parser.add_argument("--review", type=Path, metavar="F", help=made)
    more = "stop when this share of all objects is drawn, in earlier reviews of the file, too (default: 1)"
    parser.add_argument("--drawn-share", type=float, default=1.0, help=more)
    parser.add_argument("--help-first", action="store_true", help="try proposals before drawing")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--save", metavar="NAME", help="write results/review_actions_NAME.json")
    options = parser.parse_args()
    cfg = load_cfg(options.config_file, options.overrides)
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    objects = objects_of(dataset)
    options.folder.mkdir(exist_ok=True)
    file = options.review or options.folder / "review.sqlite"
    if options.review is None:
        open_session(options.config_file, options.overrides, file=file).store.close()
    rows = []
    for name in options.cases:
        case, with_boxes = CASES[name]
        copy = copied(file, options.folder / f"{name}.sqlite", with_boxes=with_boxes)
        row = measure(case, reopened(copy, dataset), objects, options)
        rows += [row, by_files(row)] if with_boxes else [row]
        print(row, flush=True)
    print_table(rows)
    if options.save:
        write_result(f"review_actions_{options.save}", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
