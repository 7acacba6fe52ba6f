"""The rules of a scripted annotator, and a review by them without a browser."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.formats.review_file import State
from detector.labeling.suggest import image_name
from detector.review.least_score import suggest_least_score
from detector.review.store import Store
from detector.structures import box_intersection, box_iou

REJECT, CORRECT = 0.5, 0.75  # IoU below which a box is rejected, and corrected
_REPLACED, _PART = 0.3, 0.8  # IoU, or share in the drawn box, from which that replaces a box, as in the page
_LEAST = 0.3  # score, before the page suggests one
_PERSON = "scripted"

Objects = list[tuple[str, list[float]]]  # class and box


def objects_of(dataset: AnnotatedImages) -> dict[str, Objects]:
    """The objects of each image, by the names of the images."""
    found = {}
    for index in range(len(dataset)):
        annotation = dataset.annotation(index)
        assert annotation is not None
        labels = [dataset.class_names[label] for label in annotation.labels.tolist()]
        found[image_name(dataset, index)] = list(zip(labels, annotation.boxes.tolist(), strict=True))
    return found


def match(boxes: list[dict[str, Any]], objects: Objects) -> dict[int, dict[str, Any]]:
    """The box of its class that each object has, by the object's index; the highest IoU is first."""
    pairs = sorted(
        (
            (iou(box["box"], target), row, index)
            for row, box in enumerate(boxes)
            for index, (label, target) in enumerate(objects)
            if label == box["label"]
        ),
        reverse=True,
    )
    found: dict[int, int] = {}
    for overlap, row, index in pairs:
        if overlap >= REJECT and index not in found and row not in found.values():
            found[index] = row
    return {index: boxes[row] for index, row in found.items()}


def overlaps_of(objects: Objects, taken: dict[int, dict[str, Any]]) -> list[float]:
    """The IoU of each object with the box that it has, 0 without one."""
    return [iou(taken[i]["box"], target) if i in taken else 0.0 for i, (_, target) in enumerate(objects)]


def low_boxes(state: State, least: float) -> set[str]:
    """The boxes that the page hides: those below the least score, except the best of each class."""
    best: dict[str, float] = {}
    for box in state["boxes"]:
        if box["status"] != "rejected":
            best[box["label"]] = max(best.get(box["label"], 0.0), box["score"] or 1.0)
    low = (box for box in state["boxes"] if box["status"] == "proposed" and box["score"] is not None)
    return {box["id"] for box in low if box["score"] < min(least, best[box["label"]])}


def iou(box: list[float], other: list[float]) -> float:
    return float(box_iou(torch.tensor([box]), torch.tensor([other])))


class Review:
    """A review of a file by an annotator who knows the objects, with the actions of the page.

    The classes of drawn boxes are right at once: a key that corrects one is not counted.
    """

    def __init__(self, store: Store, objects: dict[str, Objects]) -> None:
        self.store, self.objects, self.actions = store, objects, Counter[str]()
        self.recent: list[tuple[dict[str, Any], State]] = []  # start and state of the images
        self.names = store.names()
        self.order = [image["id"] for image in store.next_images(_PERSON, len(self.names))]
        store.release(_PERSON)  # reserved images would not get the boxes of a later detector

    def drawn(self) -> int:
        """The boxes that were drawn so far, by earlier reviews of the file, too."""
        images = map(self.store.image, self.names)
        return sum(action.get("how") == "drawn" for image in images for action in image["actions"])

    def draw(self, share: float) -> None:
        """Correct image after image, until this share of all objects was drawn."""
        most, drawn = share * sum(map(len, self.objects.values())), self.drawn()
        for number in self.order:
            if drawn >= most:
                return
            if not self.store.state(number)["decided"]:
                before = self.actions["drawn"]
                self._correct(number)
                drawn += self.actions["drawn"] - before

    def look(self) -> None:
        """Look at all other images without drawing.

        Where every object has a right box, the others are rejected, and the image is complete. Elsewhere
        right boxes are accepted, those of no object rejected, and those that are off stay undecided.
        """
        for number in self.order:
            state = self.store.state(number)
            if state["decided"]:
                continue
            objects, least = self.objects[self.names[number]], self._least()
            shown = self._shown(state, least)
            taken = match(shown, objects)
            overlaps = overlaps_of(objects, taken)
            kept = {box["id"] for box in taken.values()}
            for box in shown:
                if box["id"] not in kept:
                    self._act(number, "looked: rejected", {"kind": "reject", "id": box["id"]})
            if all(overlap >= CORRECT for overlap in overlaps):
                self._finish(number, least, "looked: complete")
                continue
            for index, box in taken.items():
                if overlaps[index] >= CORRECT:
                    self._act(number, "looked: accepted", {"kind": "accept", "id": box["id"]})

    def _correct(self, number: int) -> None:
        objects, least = self.objects[self.names[number]], self._least()
        while self._correct_one(number, objects, least):
            pass
        self._finish(number, least, "complete")
        self.recent = [*self.recent, (self.store.image(number)["start"], self.store.state(number))][-30:]

    def _correct_one(self, number: int, objects: Objects, least: float) -> bool:
        """Correct what is worst: a missing box, one that is off, one too many. False: all is right."""
        shown = self._shown(self.store.state(number), least)
        taken = match(shown, objects)
        overlaps = overlaps_of(objects, taken)
        if objects and min(overlaps) < CORRECT:
            label, target = objects[overlaps.index(min(overlaps))]
            box = _replaced(shown, label, target)
            what = (
                {"kind": "change", "id": box["id"]}
                if box
                else {"kind": "add", "id": f"n{self.actions.total()}", "label": label}
            )
            self.actions["replaced"] += box is not None
            self._act(number, "drawn", what | {"box": target, "how": "drawn"})
            return True
        kept = {box["id"] for box in taken.values()}
        for box in shown:
            if box["id"] not in kept:
                self._act(number, "rejected", {"kind": "reject", "id": box["id"]})
                return True
        return False

    def _finish(self, number: int, least: float, what: str) -> None:
        self._act(number, what, {"kind": "accept_all", "complete": True, "least": least})

    def _act(self, number: int, what: str, action: dict[str, Any]) -> None:
        self.actions[what] += 1
        key = f"{number}-{len(self.store.image(number)['actions'])}"
        self.store.record(number, _PERSON, [(key, action)])

    def _shown(self, state: State, least: float) -> list[dict[str, Any]]:
        low = low_boxes(state, least)
        return [box for box in state["boxes"] if box["id"] not in low and box["status"] != "rejected"]

    def _least(self) -> float:
        suggested = suggest_least_score(self.recent)
        return _LEAST if suggested is None else suggested


def _replaced(shown: Sequence[dict[str, Any]], label: str, target: list[float]) -> dict[str, Any] | None:
    """The undecided box of the class that a drawn box replaces: the most alike, or a part."""
    alike = []
    for box in shown:
        if box["status"] == "proposed" and box["label"] == label:
            sides = torch.tensor([box["box"], target])
            part = float(box_intersection(sides[:1], sides[1:])) / max(_area(box["box"]), 1e-9)
            if (overlap := iou(box["box"], target)) >= _REPLACED or part >= _PART:
                alike.append((overlap, box))
    return max(alike, key=lambda pair: pair[0])[1] if alike else None


def _area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
