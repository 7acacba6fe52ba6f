"""Actions a box in the page of `detector review`: a scripted annotator corrects towards the ground truth.

    python benchmarks/review_actions.py runs/demo --count 60 --save

It sees what a person sees, through the real page in Chromium, and has rules like one: a box that overlaps no
object of its class by IoU 0.5 is rejected, one below 0.75 is corrected, and an object without a box gets one.
The baseline is the same page without a detector, where each box is drawn. A key, a click and a drag are one
action each.
"""

import argparse
import shutil
import socket
import sqlite3
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from measure import print_table, write_result
from playwright.sync_api import Page, sync_playwright

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats.review_file import State
from detector.labeling.suggest import image_name
from detector.review.server import make_app
from detector.review.session import Session, open_session
from detector.review.store import Store
from detector.structures import box_iou

REJECT, CORRECT = 0.5, 0.75  # IoU below which a box is rejected, and corrected
REPLACED = 0.3  # IoU from which a drawn box replaces an undecided one, as in the page
NAME = "document.getElementById('name').textContent"  # of the image that is shown
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Effort:
    """What a review needed."""

    case: str
    images: int
    objects: int
    actions: int
    actions_per_object: float
    right: int  # objects with an accepted box of their class at IoU 0.75
    next_image_ms: float  # median from Enter to the next image


class Annotator:
    """A person at the page, who knows the objects."""

    def __init__(self, page: Page, store: Store, least: float) -> None:
        self.page, self.store, self.least = page, store, least
        self.actions, self.next_ms = 0, list[float]()
        self.names = {name: number for number, name in store.names().items()}

    def review(self, objects: list[tuple[str, list[float]]]) -> None:
        """Correct the image that is shown, and go on to the next."""
        self.number = self.names[self.page.evaluate(NAME)]
        left = self._keep_good_boxes(list(objects))
        while left:  # the class that the page draws next comes first
            current = self._current()
            left.sort(key=lambda each: not current.startswith(each[0]), reverse=True)
            self._add(*left.pop())
        self._settle()
        begin, name = time.perf_counter(), self.page.evaluate(NAME)
        self._key("Enter")
        moved = f"{NAME} !== {name!r} || !document.getElementById('empty').hidden"
        self._settle()
        if not self.store.state(self.number)["decided"]:  # the page asks whether a class has no box
            self._key("Enter")
        while not self.page.evaluate(moved):
            time.sleep(0.002)
        self.next_ms.append((time.perf_counter() - begin) * 1e3)

    def _keep_good_boxes(self, left: list[tuple[str, list[float]]]) -> list[tuple[str, list[float]]]:
        """Reject and correct the boxes that are shown; return the objects that have none yet."""
        pairs = sorted(
            (
                (_iou(box["box"], target), box["id"], index)
                for box in self._shown()
                for index, (label, target) in enumerate(left)
                if label == box["label"]
            ),
            reverse=True,
        )
        taken: dict[str, int] = {}
        for overlap, name, index in pairs:
            if overlap >= REJECT and name not in taken and index not in taken.values():
                taken[name] = index
        for box in self._shown():
            if box["id"] not in taken:
                self._reject(box)
        for name, index in taken.items():
            self._correct(name, *left[index])
        return [each for index, each in enumerate(left) if index not in taken.values()]

    def _reject(self, box: dict[str, Any]) -> None:
        if point := self._free_point(box):
            self.page.mouse.move(*self._place(point))
        else:  # it is behind others: choose it in the list
            self._choose(box["id"])
        self._key("x")

    def _correct(self, name: str, label: str, target: list[float]) -> None:
        """Draw the box anew where it is off; it replaces the undecided one below it."""
        if _iou(self._box(name)["box"], target) < CORRECT:
            self._add(label, target)

    def _add(self, label: str, box: list[float]) -> None:
        undecided = [each for each in self._shown() if each["status"] == "proposed"]
        overlaps = [(_iou(each["box"], box), each["label"]) for each in undecided]
        best = max(overlaps, default=(0.0, ""))
        replaces = (
            best[0] >= REPLACED
        )  # then the new box takes the class of the other, unless a key says more
        of_class = best[1] == label if replaces else self._current().startswith(label)
        chosen = self.page.evaluate("document.querySelector('g.selected')?.dataset.id")
        if chosen and (not of_class or _inside(box[:2], self._box(chosen)["box"])):
            self._key("Escape")  # else the key would change its class, and the drag would move it
        if not of_class:
            self._key(str(self.store.class_names.index(label) + 1))
        self._drag(box[:2], box[2:])

    def _current(self) -> str:
        """The class of what is drawn next."""
        self._settle()
        return self.page.evaluate("document.querySelector('#classes [aria-pressed=true]').textContent")

    def _choose(self, name: str) -> None:
        """A click into the box if it is the smallest there, else one in the list."""
        if point := self._free_point(self._box(name)):
            self.page.mouse.click(*self._place(point))
        else:
            index = [each["id"] for each in self._shown(with_rejected=True)].index(name)
            self.page.locator("#boxes button").nth(index).click()
        self.actions += 1

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

    def _shown(self, *, with_rejected: bool = False) -> list[dict[str, Any]]:
        self._settle()
        state = self.store.state(self.number)
        low = low_boxes(state, self.least)
        boxes = [box for box in state["boxes"] if box["id"] not in low]
        return [box for box in boxes if with_rejected or box["status"] != "rejected"]

    def _settle(self) -> None:
        """Wait until the server has all."""
        waiting = "Object.keys(localStorage).some((key) => key.startsWith('detector-review'))"
        while self.page.evaluate(waiting):
            time.sleep(0.002)

    def _key(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.actions += 1

    def _drag(self, start: list[float], end: list[float]) -> None:
        self.page.mouse.move(*self._place(start))
        self.page.mouse.down()
        self.page.mouse.move(*self._place(end), steps=3)
        self.page.mouse.up()
        self.actions += 1

    def _place(self, point: list[float]) -> tuple[float, float]:
        rect = self.page.locator("#stage .picture").bounding_box()
        assert rect is not None
        image = self.store.image(self.number)
        return rect["x"] + point[0] * rect["width"] / image["width"], (
            rect["y"] + point[1] * rect["height"] / image["height"]
        )


def low_boxes(state: State, least: float) -> set[str]:
    """The boxes that the page hides: those below the least score, except the best of each class."""
    best: dict[str, float] = {}
    for box in state["boxes"]:
        if box["status"] != "rejected":
            best[box["label"]] = max(best.get(box["label"], 0.0), box["score"] or 1.0)
    low = (box for box in state["boxes"] if box["status"] == "proposed" and box["score"] is not None)
    return {box["id"] for box in low if box["score"] < min(least, best[box["label"]])}


def _iou(box: list[float], other: list[float]) -> float:
    return float(box_iou(torch.tensor([box]), torch.tensor([other])))


def _area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _inside(point: list[float], box: list[float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def objects_of(dataset: AnnotatedImages) -> dict[str, list[tuple[str, list[float]]]]:
    """Class and box of each object, by the names of the images."""
    found = {}
    for index in range(len(dataset)):
        annotation = dataset.annotation(index)
        assert annotation is not None
        labels = [dataset.class_names[label] for label in annotation.labels.tolist()]
        found[image_name(dataset, index)] = list(zip(labels, annotation.boxes.tolist(), strict=True))
    return found


def measure(case: str, session: Session, objects: dict[str, Any], options: argparse.Namespace) -> Effort:
    """Review the first images in Chromium; the actions, and the correctness of what was saved."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = make_app(session.store, session.pictures, title="benchmark", token="t", port=port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, _BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/?token=t")
        page.locator("#stage .picture").wait_for()
        page.locator("#least").fill(str(options.least))
        page.locator("#order").select_option(options.order)
        time.sleep(1)  # until the first image in this order is there
        annotator = Annotator(page, session.store, options.least)
        boxes, images = 0, []
        for _ in range(options.count):
            name = page.evaluate(NAME)
            annotator.review(objects[name])
            boxes += len(objects[name])
            images.append(name)
        annotator._settle()
        browser.close()
    server.should_exit = True
    thread.join(10)
    right = sum(_right(session.store.state(annotator.names[name]), objects[name]) for name in images)
    actions, wait = annotator.actions, statistics.median(annotator.next_ms)
    return Effort(case, options.count, boxes, actions, actions / boxes, right, wait)


def _right(state: State, objects: list[tuple[str, list[float]]]) -> int:
    kept = [box for box in state["boxes"] if box["status"] == "accepted"]
    return sum(
        any(each["label"] == label and _iou(each["box"], box) >= CORRECT - 0.01 for each in kept)
        for label, box in objects
    )


def copied(file: Path, name: str, *, with_boxes: bool) -> Path:
    """A copy of a review that nobody has begun; without boxes as if there were no detector."""
    copy = file.with_name(name)
    copy.unlink(missing_ok=True)
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        if not with_boxes:
            target.execute("UPDATE images SET candidates = '[]'")
            target.execute("UPDATE images SET start = json_set(start, '$.boxes', json('[]'))")
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config_file", metavar="RUN")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    parser.add_argument("--count", type=int, default=60, help="images (default: 60)")
    parser.add_argument("--order", default="suggested", help="of the images, as in the page")
    parser.add_argument("--least", type=float, default=0.3, help="least score, as set in the page")
    parser.add_argument("--folder", type=Path, default=Path("review_actions"), help="for the reviews")
    parser.add_argument("--save", action="store_true", help="write the result file")
    options = parser.parse_args()
    cfg = load_cfg(options.config_file, options.overrides)
    objects = objects_of(build_dataset(cfg, cfg.datasets.train_split))
    options.folder.mkdir(exist_ok=True)
    words = (options.config_file, options.overrides)
    file = options.folder / "review.sqlite"
    open_session(*words, file=file).store.close()
    rows = []
    for case, with_boxes in (("boxes of the detector", True), ("every box drawn", False)):
        copy = copied(file, f"{with_boxes}.sqlite", with_boxes=with_boxes)
        row = measure(case, open_session(*words, file=copy), objects, options)
        rows.append(row)
    print_table(rows)
    if options.save:
        write_result("review_actions", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
