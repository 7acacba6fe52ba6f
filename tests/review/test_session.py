"""From a run to its review, and the command around it."""

import json
import os
import re
import signal
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from distributed_cases import CONTEXT, command_until_ctrl_c
from random_run import make_student, make_toybox_run

from detector.commands.main import main
from detector.data.doubted_tags import TABLE, DoubtedTag, encode_doubted_tags
from detector.data.formats import FORMATS, review_import
from detector.data.toybox import CLASSES
from detector.labeling.suggest import suggest
from detector.review.session import Session, open_session
from detector.utils.errors import DataError, UserError

pytestmark = pytest.mark.usefixtures("process_as_before")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toybox_run(tmp_path_factory.mktemp("few"), train=6)


def opened(run: Path, file: Path, *words: object, **options) -> Session:
    return open_session(str(run), words, file=file, **options)


def names(session: Session, count: int = 99) -> list[str]:
    return [image["name"] for image in session.store.next_images("ann", count)]


def test_the_order_of_tags_begins_with_those_that_check_doubts(run: Path, tmp_path: Path) -> None:
    last = [
        image["name"]
        for image in opened(run, tmp_path / "a.sqlite").store.next_images("ann", 9, order="tags")
    ][-1]
    tag = DoubtedTag(
        last.removesuffix(".jpg").removesuffix(".png"),
        CLASSES[0],
        "shown",
        "not shown",
        0.7,
        0.1,
        *[0.0] * 4,
        "",
    )
    table = run / TABLE
    table.parent.mkdir(exist_ok=True)
    table.write_bytes(encode_doubted_tags([tag]))
    session = opened(run, tmp_path / "a.sqlite")
    assert session.store.next_images("ben", 1, order="tags") == []  # Ann has them all
    session.store.release("ann")
    assert [image["name"] for image in session.store.next_images("ben", 1, order="tags")] == [last]
    table.write_text("image,probability\na,much\n")
    with pytest.raises(DataError, match="line 2: expected the columns"):
        opened(run, tmp_path / "a.sqlite")
    table.unlink()


def test_images_come_in_the_order_of_suggest_with_its_boxes(run: Path, tmp_path: Path) -> None:
    session = opened(run, tmp_path / "review.sqlite")
    by = {"by": "information-density", "output": tmp_path / "next", "formats": ("coco",)}
    suggested = suggest(str(run), (), count=6, **by)
    images = session.store.next_images("ann", 99)
    assert [image["name"] for image in images] == [image.name for image in suggested]
    for image, expected in zip(images, suggested, strict=True):
        assert [tuple(box["box"]) for box in image["start"]["boxes"]] == [box.box for box in expected.boxes]
        assert {box["label"] for box in image["start"]["boxes"]} <= {*image["start"]["tags"]}
        assert 0 < len(image["candidates"]) <= 200
        scores = [candidate[5] for candidate in image["candidates"]]
        assert scores == sorted(scores, reverse=True)
        assert session.pictures.paths[image["id"]].name == image["name"]
    near = session.store.next_images("ann", 99, order="similar", near=images[0]["id"])
    assert len(near) == 5


def test_a_second_start_goes_on_without_the_detector(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(run, tmp_path / "review.sqlite")
    first.store.record(1, "ann", [("k", {"kind": "accept_all", "complete": True})])
    monkeypatch.setattr("detector.review.session.assess", lambda *_: pytest.fail("the images are assessed"))
    assert opened(run, tmp_path / "review.sqlite").store.progress()["decided"] == 1


def test_another_detector_brings_new_boxes_where_nobody_has_begun(run: Path, tmp_path: Path) -> None:
    first = opened(run, tmp_path / "review.sqlite")
    first.store.record(1, "ann", [("k", {"kind": "accept", "id": "d0"})])
    before = {number: first.store.image(number)["start"] for number in first.store.names()}
    student = make_student(run)
    try:
        second = opened(run, tmp_path / "review.sqlite")
    finally:
        for file in student.iterdir():
            file.unlink()
        student.rmdir()
    after = {number: second.store.image(number)["start"] for number in second.store.names()}
    assert before.keys() == after.keys()
    assert [number for number in before if before[number] == after[number]] == [1]


def test_going_on_from_every_format(run: Path, tmp_path: Path) -> None:
    first = opened(run, tmp_path / "review.sqlite")
    first.store.record(1, "ann", [("k", {"kind": "accept_all", "complete": True})])
    (expected,) = [image for image in review_import(first.store.path) if image.complete]
    words = [str(run), "--file", str(first.store.path), "--output", str(tmp_path / "out")]
    assert main(["review", *words, *(f"--format={name}" for name in FORMATS)]) == 0
    files = {"coco": "coco.json", "cvat": "annotations.xml", "voc": "Annotations"}
    for form, name in files.items():
        session = opened(run, tmp_path / f"{form}.sqlite", boxes=tmp_path / "out" / name)
        (found,) = [image for image in review_import(session.store.path) if image.complete]
        assert (found.name, len(found.boxes)) == (expected.name, len(expected.boxes)), form
        assert expected.name not in names(session)
    third = opened(run, tmp_path / "again.sqlite", boxes=first.store.path)  # its own file
    assert third.store.progress()["decided"] == 1


def test_boxes_of_other_images_or_classes_are_named(run: Path, tmp_path: Path) -> None:
    image = {"id": 1, "file_name": "000001.jpg", "width": 10, "height": 10, "reviewed": True}
    content = {"images": [image], "annotations": [], "categories": []}
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"other\.json: image '000001.jpg' has the"):
        opened(run, tmp_path / "a.sqlite", boxes=path)
    path.write_text(json.dumps(content | {"images": [image | {"file_name": "x.jpg"}]}))
    with pytest.raises(DataError, match="none of its 1 images"):
        opened(run, tmp_path / "a.sqlite", boxes=path)


def test_reviewed_images_of_the_config_are_left_out(run: Path, tmp_path: Path) -> None:
    first = opened(run, tmp_path / "first.sqlite")
    first.store.record(1, "ann", [("k", {"kind": "accept_all", "complete": True})])
    second = opened(run, tmp_path / "second.sqlite", "DATASETS.BOXED", str(first.store.path))
    assert first.store.names()[1] not in names(second)
    assert len(second.store.names()) == 5


def test_wrong_arguments(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(UserError, match="expected the suffix"):
        opened(run, tmp_path / "review.db")
    assert main(["review", str(run), "--format", "coco"]) == 2
    assert main(["review", str(run), "--learn", "-1", "--file", str(tmp_path / "l.sqlite")]) == 2
    assert main(["review", str(tmp_path / "none")]) == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ["--file", str(tmp_path / "r.sqlite"), "--learn", "0", "--port", port]
        assert main(["review", str(run), *words]) == 2
    assert "cannot be used" in capsys.readouterr().err


def start(run: Path, file: Path, learn: int, said: Path) -> tuple[Any, str, str]:
    """The command in a process, its address and its token; what it prints goes to the file `said`."""
    words = ["review", str(run), "--file", str(file), "--no-browser", "--learn", str(learn)]
    process = CONTEXT.Process(target=command_until_ctrl_c, args=(words, said), daemon=True)
    process.start()
    while process.is_alive():
        text = said.read_text() if said.exists() else ""
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", text):
            return process, found[1], found[2]
        time.sleep(0.02)
    raise AssertionError(f"no address was printed: {said.read_text()}")


def post(address: str, token: str, path: str, content: object) -> dict:
    port = address.rpartition(":")[2]
    headers = {"cookie": f"detector-review-{port}={token}", "origin": address}
    headers["content-type"] = "application/json"
    request = urllib.request.Request(address + path, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_the_command_serves_stops_with_ctrl_c_and_loses_nothing_in_a_kill(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "review.sqlite"
    opened(run, file)
    for number, how in enumerate((signal.SIGKILL, signal.SIGINT), start=1):  # test_kills.py kills more often
        said = tmp_path / f"{number}.txt"
        process, address, token = start(run, file, 10 if how == signal.SIGINT else 0, said)
        action = {"key": f"k{number}", "kind": "accept_all", "complete": True}
        post(address, token, "/api/actions", {"person": "ann", "image": number, "actions": [action]})
        os.kill(process.pid, how)
        process.join(60)
        assert process.exitcode == (0 if how == signal.SIGINT else -how)
    output = said.read_text()
    assert "2 of 6 images reviewed" in output
    assert f"DATASETS.BOXED {file}" in output
    assert sum(image.complete for image in review_import(file)) == 2
