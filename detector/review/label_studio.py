"""The calls of Label Studio to a "model", its ML backend: boxes for its tasks, annotations into the review.

As label-studio 1.23.2 asks (ml/api_connector.py, ml/models.py, webhooks/) and label-studio-ml-backend answers
(label_studio_ml/api.py at commit d02cedf35d0e5d21f2f437c120174c62f66bf57a). Label Studio sends no password
with its webhooks, so the token is part of the address.
"""

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from detector.data.formats import ReviewImage, label_studio
from detector.data.formats.review_file import Action, State, as_review_image
from detector.review.store import Busy, Store
from detector.utils.errors import DataError, describe_value
from detector.utils.xml import parse_xml_bytes

logger = logging.getLogger(__name__)

PREFIX = "/label-studio/"  # of the paths; the token follows
PERSON = "label-studio"
_SAME = 0.5  # pixels; an unmoved box may differ by less, as the tool stores percentages
_MOST_TASKS = 1000


def backend_token(store: Store) -> str:
    """The token of a review; it stays the same because Label Studio stores the address."""
    if store.get_meta("label_studio_token") is None:
        store.set_meta(label_studio_token=secrets.token_urlsafe(24))
    found: str = json.loads(store.get_meta("label_studio_token") or "")
    return found


class Backend:
    """Answers the requests of Label Studio from the file of a review alone; none reads a picture."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names = {name: number for number, name in store.names().items()}
        self.files: dict[str, list[str]] = {}  # names by their last part
        for name in self.names:
            self.files.setdefault(PurePosixPath(name).name, []).append(name)

    def health(self) -> dict[str, Any]:
        return {"status": "UP", "model_class": "detector"}

    def setup(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The version of the detector, after a check of the labeling interface (`schema`)."""
        if given.get("schema"):
            self._tags(given["schema"])
        return {"model_version": self.version()}

    def version(self) -> str:
        """Which detector finds the boxes: "first", or the last round that was kept."""
        rounds = [
            past["number"] for past in json.loads(self.store.get_meta("rounds") or "[]") if past["kept"]
        ]
        return f"round {rounds[-1]}" if rounds else "first"

    def predict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The boxes of each task; none for images that are not in the review."""
        tasks = given.get("tasks")
        if not isinstance(tasks, list) or len(tasks) > _MOST_TASKS:
            raise DataError(f"`tasks` is {describe_value(tasks)}, expected a list of up to {_MOST_TASKS}")
        tags = self._tags(given.get("label_config"))
        return {"results": [self._predict(task, tags) for task in tasks]}

    def _predict(self, task: Any, tags: Mapping[str, str]) -> dict[str, Any]:
        number = self._find(task)
        if number is None:
            return {"result": [], "score": 0.0, "model_version": self.version()}
        image, state = self._image(number)
        (written,) = json.loads(label_studio.encode([image], ""))
        found = (written.get("predictions") or written["annotations"])[0]
        result = [region | tags for region in found["result"]]
        scores = [box["score"] for box in state["boxes"] if box["score"] is not None]
        return {"result": result, "score": min(scores, default=0.0), "model_version": self.version()}

    def webhook(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Copy an annotation into the review, or request a round of training; other events are ignored."""
        event = given.get("action")
        if event == "START_TRAINING":
            self.store.set_meta(asked=time.time())
        elif event in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
            try:
                self._annotated(given.get("task"), given.get("annotation"))
            except (Busy, DataError) as error:
                logger.warning(
                    "an annotation of Label Studio was not saved, which it does not show: %s", error
                )
                raise
        return {"status": "ok"}

    def _annotated(self, task: Any, annotation: Any) -> None:
        if not isinstance(annotation, dict):
            raise DataError(f"`annotation` is {describe_value(annotation)}, expected an object")
        number = self._find(task)
        if number is None:
            raise DataError(f"the image of task {describe_value(task.get('id'))} is not in the review")
        image, state = self._image(number)
        (height, width), data = image.size, {"width": image.size[1], "height": image.size[0]}
        task = task | {"data": {**data, "image": image.name, "file": image.name}, "annotations": [annotation]}
        skipped = annotation.get("was_cancelled")
        found = [] if skipped else list(label_studio.read([task], None, "Label Studio"))
        actions = [{"kind": "skip"}] if not found else _actions(state, found[0], (height, width))
        text = json.dumps([annotation.get(key) for key in ("id", "updated_at", "result", "was_cancelled")])
        name = hashlib.sha256(text.encode()).hexdigest()[:16]  # so that a repeated call changes nothing
        keyed = [(f"ls-{name}-{row}", _named(action, name)) for row, action in enumerate(actions)]
        self.store.record(number, PERSON, keyed)
        self.store.release(PERSON)

    def _image(self, number: int) -> tuple[ReviewImage, State]:
        row = self.store.image(number)
        state, size = self.store.state(number), (row["height"], row["width"])
        return as_review_image(row["name"], size, state, upright=True), state

    def _find(self, task: Any) -> int | None:
        """The number of a task's image, by its name or the end of it; None: no image, or several."""
        (name,) = label_studio.image_names([task])
        if name in self.names:
            return self.names[name]
        ends = [
            image_name
            for image_name in self.files.get(PurePosixPath(name).name, ())
            if name.endswith(f"/{image_name}") or image_name.endswith(f"/{name}")
        ]
        return self.names[ends[0]] if len(ends) == 1 else None

    def _tags(self, config: Any) -> dict[str, str]:
        """`from_name` and `to_name` of regions, from the labeling interface.

        Raises:
            DataError: it has no tag for boxes, or lacks one of the classes.
        """
        if not isinstance(config, str):
            raise DataError(f"the labeling interface is {describe_value(config)}, expected XML")
        root = parse_xml_bytes(config.encode("utf-8", "replace"), "View")
        for tag in root.iter("RectangleLabels"):
            labels = {label.get("value") or "" for label in tag.iter("Label")}
            if missing := [name for name in self.store.class_names if name not in labels]:
                raise DataError(f"the labeling interface has no label {missing[0]!r} in <RectangleLabels>")
            return {"from_name": tag.get("name") or "", "to_name": tag.get("toName") or ""}
        raise DataError("the labeling interface has no <RectangleLabels>: label_config.xml has one")


def _named(action: Action, name: str) -> Action:
    return {**action, "id": f"ls-{name}-{action['id']}"} if action["kind"] == "add" else action


def _actions(state: State, image: ReviewImage, size: tuple[int, int]) -> list[dict[str, Any]]:
    """The actions that turn the boxes of a review into those of an annotation; equal boxes are accepted."""
    height, width = size
    left = [box for box in state["boxes"] if box["status"] != "rejected"]
    actions: list[dict[str, Any]] = []
    for row, box in enumerate(image.boxes):
        x1, y1, x2, y2 = box.box
        new = [max(0.0, x1), max(0.0, y1), min(float(width), x2), min(float(height), y2)]
        same = [known for known in left if known["label"] == box.label and _is_same(known["box"], new)]
        if same:
            left.remove(same[0])
            actions.append({"kind": "accept", "id": same[0]["id"]})
        else:
            actions.append({"kind": "add", "id": str(row), "label": box.label, "box": new})
    actions += [{"kind": "reject", "id": known["id"]} for known in left]
    return [*actions, {"kind": "accept_all", "complete": True}]


def _is_same(box: list[float], other: list[float]) -> bool:
    return all(abs(a - b) < _SAME for a, b in zip(box, other, strict=True))
