"""What the server answers to Label Studio: requests as version 1.23.2 sent them, and a running one."""

import json
import os
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("starlette", reason="needs starlette")

from review_cases import CLASSES, PORT, TOKEN, ask, make_store, new_image

from detector.data.formats import label_studio, review_import
from detector.data.labeled_box import LabeledBox
from detector.review.label_studio import backend_token
from detector.review.pictures import Pictures
from detector.review.server import make_app
from detector.review.store import Store

URL, LS_TOKEN = os.environ.get("LABEL_STUDIO_URL", ""), os.environ.get("LABEL_STUDIO_TOKEN", "")
ROOT = os.environ.get("LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT", "")
PLAIN = {"cookie": None, "sec-fetch-site": None, "origin": None}  # a program, no browser
CONFIG = label_studio.label_config(CLASSES).decode()


def call(app, name: str, content: object, *, token: str = "studio", **headers) -> Any:
    method = "GET" if content is None else "POST"
    return ask(app, method, f"/label-studio/{token}/{name}", content, headers=PLAIN | headers)


def request(name: str) -> dict:
    """A request as Label Studio sent it to the last test of this file, with fewer keys of the project."""
    return json.loads(Path(__file__).with_name("label_studio_requests.json").read_text())[name]


def test_health_and_setup(app) -> None:
    assert call(app, "health", None).json()["status"] == "UP"
    assert call(app, "setup", request("setup")).json() == {"model_version": "first"}


def test_the_version_is_of_the_last_round_that_was_kept(app, store: Store) -> None:
    store.set_meta(rounds=[{"number": 1, "kept": True}, {"number": 2, "kept": False}])
    assert call(app, "setup", request("setup")).json() == {"model_version": "round 1"}


def test_predictions_of_tasks_in_percent_of_the_image(app) -> None:
    (found,) = call(app, "predict", request("predict")).json()["results"]
    first, second = found["result"]
    assert first["value"].pop("rectanglelabels") == [CLASSES[0]]
    assert first["value"] == pytest.approx(
        {"x": 12.5, "y": 100 / 6, "width": 25, "height": 50, "rotation": 0}
    )
    assert (first["from_name"], first["to_name"], first["type"]) == ("label", "image", "rectanglelabels")
    assert (first["original_width"], first["original_height"], first["score"]) == (80, 60, 0.9)
    assert second["meta"] == {"text": ["doubtful"]}
    assert (found["score"], found["model_version"]) == (0.2, "first")


def test_regions_have_the_names_of_the_tags_of_the_project(app) -> None:
    given = request("predict")
    given["label_config"] = CONFIG.replace('name="label"', 'name="kind"').replace('"image"', '"photo"')
    (found,) = call(app, "predict", given).json()["results"]
    assert {(each["from_name"], each["to_name"]) for each in found["result"]} == {("kind", "photo")}


def test_images_are_found_by_the_end_of_their_address_and_others_have_no_boxes(app) -> None:
    tasks = [
        {"id": 1, "data": {"image": address}}
        for address in ("/data/upload/7/1a2b3c4d-2.png", "s3://b/x/1.png", "/data/local-files/?d=a/9.png")
    ]
    results = call(app, "predict", request("predict") | {"tasks": tasks}).json()["results"]
    assert [len(each["result"]) for each in results] == [2, 2, 0]


def test_a_name_that_two_images_end_with_is_of_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "review.sqlite", CLASSES)
    store.add_images(
        [new_image(f"{folder}/a.png", LabeledBox(CLASSES[0], (1, 1, 9, 9), 0.5)) for folder in "xy"], {}
    )
    app = make_app(
        store, Pictures({}, upright=True), title="m", token=TOKEN, port=PORT, label_studio="studio"
    )
    tasks = [{"id": 1, "data": {"image": f"/data/local-files/?d={name}"}} for name in ("a.png", "z/y/a.png")]
    results = call(app, "predict", request("predict") | {"tasks": tasks}).json()["results"]
    assert [len(each["result"]) for each in results] == [0, 1]


def test_an_annotation_is_a_reviewed_image(app, store: Store) -> None:
    given = request("webhook")
    assert call(app, "webhook", given).status == 200
    (image, *_) = review_import(store.path)
    assert (image.complete, image.name) == (True, "0.png")
    assert [(box.label, [round(x, 2) for x in box.box]) for box in image.boxes] == [
        (CLASSES[0], [10, 10, 30, 40]),  # as it was found
        (CLASSES[1], [20, 5.5, 50, 50]),  # moved
    ]
    actions = len(store.image(1)["actions"])
    assert call(app, "webhook", given).status == 200  # sent twice
    assert len(store.image(1)["actions"]) == actions
    assert store.progress()["recent"][-1]["corrections"] == 2  # the moved box: one rejected, one drawn


def test_an_updated_annotation_replaces_the_one_before(app, store: Store) -> None:
    given = request("webhook")
    call(app, "webhook", given)
    given["annotation"] |= {"result": given["annotation"]["result"][:1], "updated_at": "2026-11-28T10:00:00Z"}
    call(app, "webhook", given | {"action": "ANNOTATION_UPDATED"})
    (image, *_) = review_import(store.path)
    assert (image.complete, len(image.boxes)) == (True, 1)


def test_an_empty_annotation_and_a_skipped_task(app, store: Store) -> None:
    given = request("webhook")
    empty, skipped = ({**given["annotation"], "result": []} | more for more in ({}, {"was_cancelled": True}))
    call(app, "webhook", given | {"annotation": empty})
    assert store.state(1)["complete"]
    assert all(box["status"] == "rejected" for box in store.state(1)["boxes"])
    call(app, "webhook", given | {"annotation": skipped})
    assert store.state(1)["skipped"]


def test_an_image_that_somebody_works_on_is_refused_and_told(app, store: Store, caplog) -> None:
    store.next_images("ann", 1)
    assert call(app, "webhook", request("webhook")).status == 409
    assert (
        "an annotation of Label Studio was not saved, which it does not show: somebody else works on image 1"
        in caplog.text
    )
    assert store.image(1)["actions"] == []


def test_a_round_is_asked_for_and_other_events_do_nothing(app, store: Store) -> None:
    assert call(app, "webhook", request("train")).status == 200
    assert store.get_meta("asked") is not None
    for event in ("TASKS_CREATED", "ANNOTATIONS_DELETED", "PROJECT_UPDATED", None):
        assert call(app, "webhook", {"action": event}).status == 200
    assert store.progress()["decided"] == 0


def test_what_cannot_be_used_is_named(app) -> None:
    bad = [
        ("setup", {"schema": "<View/>"}, "no <RectangleLabels>"),
        ("setup", {"schema": CONFIG.replace("bird", "fly")}, "no label 'bird'"),
        (
            "setup",
            {"schema": "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><View>&b;</View>"},
            "DOCTYPE",
        ),
        ("setup", {"schema": "<View"}, "XML"),
        ("setup", {"schema": "\ud800"}, "XML"),
        ("predict", request("predict") | {"tasks": 1}, "`tasks` is"),
        ("predict", request("predict") | {"tasks": [{"id": 1}]}, "no `data`"),
        ("webhook", request("webhook") | {"annotation": None}, "`annotation` is"),
        ("webhook", request("webhook") | {"task": {"id": 3, "data": {"image": "x.png"}}}, "task 3"),
    ]
    for name, given, expected in bad:
        answer = call(app, name, given)
        assert (answer.status, expected in answer.json()["error"]) == (400, True), (name, answer)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8460"},
        {"sec-fetch-site": "none"},
        {"host": "evil.example"},
        {"content-type": None},
    ],
    ids=str,
)
def test_browsers_and_other_hosts_are_refused(app, store: Store, headers: dict) -> None:
    assert call(app, "webhook", request("webhook"), **headers).status in (403, 415, 421)
    assert store.image(1)["actions"] == []


def test_the_token_of_the_page_is_none_of_label_studio_and_the_other_way_round(app, store: Store) -> None:
    assert call(app, "webhook", request("webhook"), token=TOKEN).status in (401, 403)
    assert call(app, "health", None, token="studi").status == 401
    cookie = {"cookie": f"detector-review-{PORT}=studio"}
    assert ask(app, "GET", "/api/session", headers=cookie).status == 401
    closed = make_app(store, Pictures({}, upright=True), title="m", token=TOKEN, port=PORT)
    assert ask(closed, "GET", "/label-studio//health").status == 404
    assert call(closed, "health", None).status == 401


def test_the_address_stays_the_same(store: Store) -> None:
    assert backend_token(store) == backend_token(store)
    assert len(backend_token(store)) > 30


# --- a running Label Studio; docs/review.md has the commands ---


def studio(path: str, content: object = None, method: str | None = None) -> Any:
    headers = {"Authorization": f"Token {LS_TOKEN}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    asked = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@pytest.fixture
def served() -> Iterator[tuple[Store, str, dict[str, Any]]]:
    """A review of three pictures that Label Studio serves, the address, and the requests that came."""
    import uvicorn

    folder = Path(ROOT, "detector-review")
    folder.mkdir()
    store = make_store(folder)
    for number in range(3):
        Image.new("RGB", (80, 60)).save(folder / f"{number}.png")
    listener, came = socket.create_server(("127.0.0.1", 0)), dict[str, Any]()
    port = listener.getsockname()[1]
    app = make_app(store, Pictures({}, upright=True), title="m", token="t", port=port, label_studio="studio")

    async def recording(scope, receive, send):
        async def heard():
            message = await receive()
            if body := message.get("body"):
                given = json.loads(body)
                came[given.get("action") or scope["path"].rpartition("/")[2]] = given
            return message

        await app(scope, heard, send)

    server = uvicorn.Server(uvicorn.Config(recording, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield store, f"http://127.0.0.1:{port}/label-studio/studio", came
    server.should_exit = True
    thread.join(10)
    shutil.rmtree(folder)


@pytest.mark.label_studio
@pytest.mark.skipif(not (URL and LS_TOKEN and ROOT), reason="needs a running Label Studio")
def test_a_running_label_studio_shows_our_boxes_and_sends_its_own(served) -> None:
    store, address, came = served
    project = studio("/api/projects", {"title": "detector", "label_config": CONFIG})["id"]
    try:
        model = studio("/api/ml", {"project": project, "url": address, "title": "detector"})
        assert (model["readable_state"], model["model_version"]) == ("Connected", "first")
        tasks = [{"image": f"/data/local-files/?d=detector-review/{number}.png"} for number in range(3)]
        studio(f"/api/projects/{project}/import", tasks)
        everything = {"selectedItems": {"all": True, "excluded": []}}
        studio(f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", everything)
        found = studio(f"/api/tasks?project={project}&fields=all")["tasks"]
        assert [len(task["predictions"][0]["result"]) for task in found] == [2, 2, 2]
        result = found[0]["predictions"][0]["result"]
        result[1]["value"]["x"] = 25.0
        studio(f"/api/tasks/{found[0]['id']}/annotations", {"result": result})
        end = time.monotonic() + 30
        while not store.state(1)["complete"] and time.monotonic() < end:
            time.sleep(0.1)
        assert store.state(1)["complete"]
        assert [
            round(box["box"][0], 3) for box in store.state(1)["boxes"] if box["status"] == "accepted"
        ] == [10, 20]
        studio(f"/api/ml/{model['id']}/train", {})
        assert store.get_meta("asked") is not None
    finally:
        studio(f"/api/projects/{project}", method="DELETE")
        if folder := os.environ.get("LABEL_STUDIO_RECORD"):
            Path(folder, "requests.json").write_text(json.dumps(came, indent=1))
