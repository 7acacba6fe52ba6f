"""Draws the pictures of docs/review.md: the page of `detector review` on Toybox, light, dark, and at work.

    python docs/make/review_pictures.py runs/demo

A script corrects images towards the ground truth, as benchmarks/review_actions.py does, while the detector
learns in the background. It needs playwright and Chromium.
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from PIL import Image
from playwright.sync_api import Page
from review_actions import Annotator, objects_of
from review_page import NAME, open_page

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.review.learner import Learner
from detector.review.session import Session, open_session
from detector.utils.files import atomic_write, encode_image

FOLDER = Path(__file__).parents[1] / "images"
SIZE = (1000, 700)  # pixels
FRAME_MS, REVIEWED = 1100, 12  # of a frame; images before the pictures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="a run on Toybox")
    options = parser.parse_args()
    cfg = load_cfg(options.run, ())
    objects = objects_of(build_dataset(cfg, cfg.datasets.train_split))
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(options.run, (), file=Path(folder, "review.sqlite"))
        learner = Learner(options.run, (), session.store, 10)
        with learner, open_page(session, *SIZE, learner.status) as page:
            annotator = Annotator(page, session.store)
            for _ in range(REVIEWED):
                annotator.review(objects[page.evaluate(NAME)])
                _wait_while(learner, "training")
            _show("review_light.webp", _picture(page))
            page.get_by_role("button", name="Theme").click()
            _show("review_dark.webp", _picture(page))
            page.get_by_role("button", name="Theme").click()
            _animate(page, session, objects)


def _wait_while(learner: Learner, doing: str) -> None:
    time.sleep(0.2)
    while learner.status()["doing"] in ("", doing):
        time.sleep(0.2)


def _picture(page: Page) -> Image.Image:
    page.evaluate("document.getElementById('learning').scrollIntoView()")
    time.sleep(0.4)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _animate(page: Page, session: Session, objects: dict[str, list[tuple[str, list[float]]]]) -> None:
    """Write what the page shows after each key, click and drag."""
    frames = [_picture(page)]

    class Watched(Annotator):
        def _key(self, key: str, kind: str) -> None:
            super()._key(key, kind)
            frames.append(_picture(page))

        def _draw(self, label: str, box: list[float]) -> None:
            super()._draw(label, box)
            frames.append(_picture(page))

    annotator = Watched(page, session.store)
    while len(frames) * FRAME_MS < 29_000:
        annotator.review(objects[page.evaluate(NAME)])
    _show("review.webp", *frames)


def _show(name: str, first: Image.Image, *others: Image.Image) -> None:
    more = {"save_all": True, "append_images": others, "duration": FRAME_MS, "loop": 0} if others else {}
    content = encode_image(first, "WEBP", quality=55 if others else 70, method=6, **more)
    with atomic_write(FOLDER / name) as file:
        file.write(content)
    print(f"{FOLDER / name}: {len(content) // 1024} KiB, {1 + len(others)} frames")


if __name__ == "__main__":
    main()
