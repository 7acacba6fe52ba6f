"""A review of a few drawn pictures, and requests to its server without a network."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from detector.data.formats import ReviewImage
from detector.data.formats.review_file import start_of
from detector.data.labeled_box import LabeledBox
from detector.data.toybox import CLASSES as TOYBOX
from detector.review.store import NewImage, Store

CLASSES = ("bird", "<b>car</b> & co")
TOKEN, PORT, HOST = "secret-token", 8460, "127.0.0.1:8460"


def new_image(name: str, *boxes: LabeledBox, size=(60, 80), tags=CLASSES[:1], **options) -> NewImage:
    image = ReviewImage(name, size, boxes)
    return NewImage(name, size, True, start_of(image, tags), [[1, 2, 30, 40, 0, 0.5]], **options)


def make_store(folder: Path, count: int = 3) -> Store:
    """Images with one sure and one doubtful box each, of which the last is the most doubtful."""
    store = Store(folder / "review.sqlite", CLASSES)
    images = []
    for number in range(count):
        boxes = (
            LabeledBox(CLASSES[0], (10, 10, 30, 40), 0.9),
            LabeledBox(CLASSES[1], (40, 5.5, 70, 50), 0.2, doubtful=True),
        )
        name = f"{number}.png"
        near = [f"{other}.png" for other in reversed(range(count)) if other != number]
        images.append(new_image(name, *boxes, doubt=float(number), tag_doubt=number % 2, similar=near))
    store.add_images(images, {"weights": "w"})
    return store


def draw_pictures(folder: Path, count: int = 3) -> dict[int, Path]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 60, 80, 3), dtype=np.uint8)
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(folder / f"{number}.png")
    return {number + 1: folder / f"{number}.png" for number in range(count)}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: Any,
    method: str,
    path: str,
    content: object = None,
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """A request as the page sends it with its cookie; `headers` change some, None drops one."""
    raw = body if body is not None else b"" if content is None else json.dumps(content).encode()
    sent: dict[str, str | None] = {
        "host": HOST,
        "cookie": f"detector-review-{PORT}={TOKEN}",
        "sec-fetch-site": "same-origin",
        "content-length": str(len(raw)),
    }
    if method != "GET":
        sent |= {"origin": f"http://{HOST}", "content-type": "application/json"}
    sent |= headers or {}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "root_path": "",
        "query_string": query.encode("latin-1"),
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in sent.items() if v is not None],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", PORT),
    }
    messages: list[dict[str, Any]] = []
    parts = [{"type": "http.request", "body": raw, "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return parts.pop(0) if len(parts) > 1 else parts[0]

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    start = messages[0]
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(each.get("body", b"") for each in messages[1:]))


def hold_learner(run: Path, file: Path, told: Path) -> None:
    """Learn as the server of a review does; `told` gets the number of the learning process."""
    from detector.review.learner import Learner

    with Learner(str(run), (), Store(file, TOYBOX), 3) as learner:
        told.write_text(str(learner.process.pid))
        time.sleep(600)
