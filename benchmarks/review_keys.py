"""From a key to the screen in the page of `detector review`, with 300 boxes on 4,000 x 3,000 pixels.

    python benchmarks/review_keys.py --save

Keys choose, accept, move, reject and undo. Wall time is from the key until the frame that shows it is handed
on. CPU time is that of the page's main thread until then, which other work on the machine changes less. Then
the time from Enter to the next image. --busy measures again beside busy processes.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import torch
from measure import print_table, write_result
from PIL import Image
from playwright.sync_api import CDPSession, Page
from review_page import WATCH, open_page

from detector.data.formats.review import ReviewImage
from detector.data.formats.review_file import start_of
from detector.data.labeled_box import LabeledBox
from detector.review.pictures import Pictures
from detector.review.session import Session
from detector.review.store import NewImage, Store

CLASSES, SIZE, COUNT = ("bird", "car"), (3000, 4000), 300
KEYS = [".", *(8 * [".", "a", "ArrowRight", "x", ",", "Control+z"])]
LIMIT_MS = 50
_IMAGES = 30
_PAUSE = 0.15  # seconds between keys
TIMED = """() => {
  window.times = [];
  addEventListener("keydown", (event) => event.key !== "Control" && requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel(); // answered after the frame is drawn
    port1.onmessage = () => window.times.push(performance.now() - event.timeStamp);
    port2.postMessage(0);
  }), true);
}"""


@dataclass(frozen=True)
class Keys:
    """Times of the keys of a run, in milliseconds."""

    case: str
    load: float  # processes that wanted a core, averaged over the last minute, as the run ended
    keys: int
    wall_median_ms: float
    wall_90_percent_ms: float
    over_50_ms: int
    cpu_median_ms: float
    cpu_most_ms: float
    next_image_median_ms: float  # from Enter
    next_image_most_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2, help="times that all keys are pressed (default: 2)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="again beside N busy processes")
    parser.add_argument("--save", action="store_true", help="write the result file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _page(Path(folder)) as page:
        rows = [_measure(page, "as it is", options.rounds)]
        busy = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(options.busy)]
        for process in busy:
            process.start()
        if busy:
            rows.append(_measure(page, f"beside {options.busy} busy processes", options.rounds))
        for process in busy:
            process.terminate()
    print_table(rows)
    if options.save:
        write_result("review_keys", torch.device("cpu"), rows)


def _burn() -> None:
    while True:
        pass


@contextmanager
def _page(folder: Path) -> Iterator[Page]:
    """The page with one image and its boxes."""
    store = Store(folder / "review.sqlite", CLASSES)
    Image.effect_noise(SIZE[::-1], 60).save(folder / "0.jpg")
    corners = [(200 * (number % 20), 200 * (number // 20)) for number in range(COUNT)]
    boxes = tuple(
        LabeledBox(CLASSES[row % 2], (x, y, x + 150, y + 150), 0.9) for row, (x, y) in enumerate(corners)
    )
    names = [f"{number}.jpg" for number in range(_IMAGES)]
    for name in names[1:]:
        shutil.copy(folder / names[0], folder / name)
    starts = [start_of(ReviewImage(name, SIZE, boxes, complete=False), CLASSES) for name in names]
    store.add_images([NewImage(*row, []) for row in zip(names, repeat(SIZE), repeat(True), starts)], {})
    pictures = Pictures({number: folder / name for number, name in store.names().items()}, upright=True)
    with open_page(Session(store, pictures, "benchmark"), 1280, 800) as page:
        while page.locator("#boxes li").count() < COUNT:
            time.sleep(0.05)
        page.evaluate(TIMED)
        page.evaluate(WATCH)
        yield page


def _measure(page: Page, case: str, rounds: int) -> Keys:
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
    devtools.send("Performance.enable")
    page.evaluate("window.times.length = 0")
    cpu = []
    for number, key in enumerate(rounds * KEYS, start=1):
        begin = _cpu_ms(devtools)
        page.keyboard.press(key)
        while page.evaluate("window.times.length") < number:
            time.sleep(0.01)
        cpu.append(_cpu_ms(devtools) - begin)
        time.sleep(_PAUSE)
    times = page.evaluate("window.times")
    page.evaluate("window.waits.length = 0")
    for number in range(1, _IMAGES // 3):
        time.sleep(1)  # as long as a person looks at an image at least
        page.keyboard.press("Enter")
        while page.evaluate("window.waits.length") < number:
            time.sleep(0.01)
    waits = page.evaluate("window.waits")
    over, tenths = sum(each > LIMIT_MS for each in times), statistics.quantiles(times, n=10)
    return Keys(
        case,
        os.getloadavg()[0],
        len(times),
        statistics.median(times),
        tenths[-1],
        over,
        statistics.median(cpu),
        max(cpu),
        statistics.median(waits),
        max(waits),
    )


def _cpu_ms(devtools: CDPSession) -> float:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return 1e3 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
