"""A server that is killed again and again, while two people work; CHAOS_COUNT=20 is a hundred times."""

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs starlette")

from review_cases import CLASSES, draw_pictures, make_store

from detector.data.formats import review_file
from detector.review.pictures import Pictures
from detector.review.server import make_app
from detector.review.store import Store

COUNT = max(1, round(5 * float(os.environ.get("CHAOS_COUNT", "1"))))
SEED = int(os.environ.get("CHAOS_SEED", "0"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def serve(path: Path, listener: socket.socket) -> None:
    """Serve the review until the process is killed."""
    import uvicorn

    app = make_app(
        Store(path, CLASSES), Pictures({}, upright=True), title="m", token="t", port=listener.getsockname()[1]
    )
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).run(sockets=[listener])


class Person(threading.Thread):
    """Sends actions as the page does: one after the other, again until the server has confirmed it."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.port, self.number, self.stop = port, number, threading.Event()
        self.sent, self.confirmed, self.again = 0, 0, 0

    def run(self) -> None:
        while not self.stop.is_set() or self.sent > self.confirmed:
            self.sent = self.confirmed + 1
            if self.send(self.sent):
                self.confirmed = self.sent
            else:
                self.again += 1
                time.sleep(0.002)

    def send(self, count: int) -> bool:
        action = {
            "key": f"p{self.number}-{count}",
            "kind": "count",
            "label": CLASSES[0],
            "count": 1 + count % 99,
        }
        body = json.dumps({"person": f"p{self.number}", "image": self.number, "actions": [action]})
        host = f"127.0.0.1:{self.port}"
        headers = {"cookie": f"detector-review-{self.port}=t", "origin": f"http://{host}"}
        connection = http.client.HTTPConnection(host, timeout=5)
        try:
            connection.request("POST", "/api/actions", body, headers | {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        assert answer.status == 200, answer.status
        return True


def test_kills_of_the_server_lose_no_action(tmp_path: Path) -> None:
    path, chance = make_store(tmp_path).path, random.Random(SEED)
    draw_pictures(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    people = [Person(listener.getsockname()[1], number) for number in (1, 2)]
    for person in people:
        person.start()
    served = 0
    for kill in range(COUNT + 1):
        before = sum(person.confirmed for person in people)
        child = os.fork()
        if child == 0:
            try:
                serve(path, listener)
            finally:
                os._exit(1)
        end = time.monotonic() + 60
        while sum(person.confirmed for person in people) == before:  # it answers
            assert time.monotonic() < end
            time.sleep(0.001)
        if kill < COUNT:
            time.sleep(chance.uniform(0, 0.2))
        else:  # the last one takes what is left
            for person in people:
                person.stop.set()
            for person in people:
                person.join(60)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        served += 1
    listener.close()
    store = Store(path, CLASSES)
    for person in people:
        rows = store._rows("SELECT key FROM actions WHERE image = ? ORDER BY id", (person.number,))
        assert rows == [(f"p{person.number}-{count}",) for count in range(1, person.confirmed + 1)]
    assert store._rows("PRAGMA integrity_check") == [("ok",)]
    assert len(list(review_file.read(path))) == 3
    sent = sum(person.confirmed for person in people)
    print(
        f"{served - 1} kills, {sent} actions, {sum(each.again for each in people)} requests again, none lost"
    )
