"""The page of `detector review` in Chromium, for the benchmarks and the pictures of the docs."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from playwright.sync_api import Page, sync_playwright

from detector.review.server import Learning, make_app
from detector.review.session import Session

NAME = "document.getElementById('name').textContent"  # of the image that is shown
WATCH = """() => {
  let begin = null;
  window.waits = [];
  addEventListener("keydown", (event) => event.key === "Enter" && (begin = event.timeStamp), true);
  new MutationObserver(() => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel(); // answered after the frame is drawn
    port1.onmessage = () => window.waits.push(performance.now() - begin);
    port2.postMessage(0);
  })).observe(document.getElementById("name"), { childList: true });
}"""  # keeps the milliseconds from Enter to the next image
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def open_page(session: Session, width: int, height: int, learning: Learning = lambda: None) -> Iterator[Page]:
    """The page with its first image, of a server that runs in a thread; `learning` as for `make_app`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    words = {"title": session.title, "token": "t", "port": port, "learning": learning}
    app = make_app(session.store, session.pictures, **words)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, _BROWSERS)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(f"http://127.0.0.1:{port}/?token=t")
        page.locator("#stage .picture").wait_for()
        yield page
        browser.close()
    server.should_exit = True
    thread.join(10)
