"""The server of a review: what it answers, and to whom."""

import io
import os
import random
import sys
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("starlette", reason="needs starlette")

from review_cases import CLASSES, HOST, PORT, TOKEN, ask

from detector.data.formats import label_studio
from detector.review.pictures import Pictures
from detector.review.server import read_page
from detector.review.store import Store

ACCEPT_ALL = {"key": "k1", "kind": "accept_all", "complete": True}


def test_the_address_with_the_token_leads_to_the_page(app) -> None:
    answer = ask(app, "GET", "/", query=f"token={TOKEN}", headers={"cookie": ""})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in (TOKEN, "HttpOnly", "SameSite=strict"))
    page = ask(app, "GET", "/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def test_every_file_of_the_page_is_answered_with_its_type(app) -> None:
    types = {"mjs": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
    for name, (content, _) in read_page().items():
        answer = ask(app, "GET", f"/page/{name}")
        assert answer.body == content
        assert answer.headers["content-type"].startswith(types[name.rpartition(".")[2]])


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": ""},
        {"cookie": f"detector-review-{PORT}=wrong"},
        {"cookie": f"detector-review-{PORT + 1}={TOKEN}"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8460"},
        {"host": None},
        {"host": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": f"http://{HOST}".replace("8460", "8461")},
        {"content-type": "text/plain"},
        {"content-type": None},
        {"content-length": "9999999"},
    ],
    ids=str,
)
def test_requests_from_elsewhere_change_nothing(app, store: Store, headers: dict) -> None:
    given = {"person": "ann", "image": 1, "actions": [ACCEPT_ALL]}
    assert ask(app, "POST", "/api/actions", given, headers=headers).status in (400, 401, 403, 413, 415, 421)
    assert store.image(1)["actions"] == []
    assert ask(app, "POST", "/api/actions", given).status == 200


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/images/1", "/api/images/1/pixels"])
@pytest.mark.parametrize("headers", [{"cookie": ""}, {"host": "evil.example"}], ids=str)
def test_nothing_is_shown_without_the_token_or_under_another_name(app, path: str, headers: dict) -> None:
    assert ask(app, "GET", path, headers=headers).status in (401, 421)


def test_another_page_may_show_no_picture(app) -> None:
    answer = ask(app, "GET", "/api/images/1/pixels", headers={"sec-fetch-site": "same-site"})
    assert answer.status == 403


def test_an_image_its_pixels_and_a_crop(app, tmp_path: Path) -> None:
    (image,) = ask(app, "POST", "/api/next", {"person": "ann", "count": 1}).json()["images"]
    assert (image["name"], image["width"], image["height"]) == ("0.png", 80, 60)
    assert [box["label"] for box in image["start"]["boxes"]] == [*CLASSES]
    pixels = ask(app, "GET", "/api/images/1/pixels")
    assert pixels.headers["content-type"] == "image/png"
    assert pixels.body == (tmp_path / "0.png").read_bytes()
    crop = Image.open(io.BytesIO(ask(app, "GET", "/api/images/1/crops/d0").body))
    assert max(crop.size) == 192
    assert ask(app, "GET", "/api/images/1/crops/d7").status == 400
    for path in ("/api/images/9", "/api/images/9/pixels", f"/api/images/{10**30}", "/api/images/9/crops/d0"):
        assert ask(app, "GET", path).status in (400, 404)


def test_what_browsers_do_not_show_is_sent_as_png(store: Store, tmp_path: Path) -> None:
    Image.new("RGB", (80, 60), (9, 8, 7)).save(tmp_path / "a.tiff")
    turned = Image.new("RGB", (80, 60)).getexif()
    turned[274] = 6
    Image.new("RGB", (60, 80), (9, 8, 7)).save(tmp_path / "b.jpg", exif=turned)
    paths = {1: tmp_path / "a.tiff", 2: tmp_path / "b.jpg"}
    content, kind = Pictures(paths, upright=True).encoded(1)
    assert kind == "image/png"
    assert Image.open(io.BytesIO(content)).getpixel((0, 0)) == (9, 8, 7)
    assert Pictures(paths, upright=True).encoded(2)[1] == "image/jpeg"  # a browser turns it
    stored, kind = Pictures(paths, upright=False).encoded(2)
    assert (Image.open(io.BytesIO(stored)).size, kind) == ((60, 80), "image/png")
    Image.new("RGB", (60, 80)).save(tmp_path / "b.png", exif=turned)  # not all browsers turn it
    for upright, size in ((True, (80, 60)), (False, (60, 80))):
        shown = Image.open(io.BytesIO(Pictures({1: tmp_path / "b.png"}, upright=upright).encoded(1)[0]))
        assert shown.size == size
        assert 274 not in shown.getexif()
    frames = [Image.new("RGB", (8, 6), color) for color in ("white", "black")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    content, kind = Pictures({1: tmp_path / "a.gif"}, upright=True).encoded(1)  # the frame that has the boxes
    assert (Image.open(io.BytesIO(content)).getpixel((0, 0)), kind) == ((255, 255, 255), "image/png")


def test_a_picture_that_is_read_in_parts_is_sent_reduced_and_cropped_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Image.new("RGB", (160, 80), (9, 8, 7))
    picture.paste((200, 0, 0), (96, 32, 128, 64))
    picture.save(tmp_path / "a.tiff")
    pictures = Pictures({1: tmp_path / "a.tiff"}, upright=True)
    with monkeypatch.context() as context:
        context.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
        context.setattr("detector.data.large_images._SHOWN", 20)
        context.setattr("detector.data.large_images._BAND", 16)
        content, kind = pictures.encoded(1)
        cut = pictures.crop(1, (96, 32, 128, 64))
    assert (Image.open(io.BytesIO(content)).size, kind) == ((40, 20), "image/jpeg")
    crop = Image.open(io.BytesIO(cut))
    assert crop.size == (192, 192)
    assert crop.getpixel((96, 96))[0] > 190


def test_a_picture_that_was_deleted_is_an_error_of_its_own(app, tmp_path: Path) -> None:
    (tmp_path / "0.png").unlink()
    answer = ask(app, "GET", "/api/images/1/pixels")
    assert answer.status == 500
    assert str(tmp_path) not in answer.body.decode()
    assert ask(app, "GET", "/api/images/2/pixels").status == 200


def test_actions_progress_grid_and_release(app, store: Store) -> None:
    given = {"person": "ann", "image": 1, "actions": [ACCEPT_ALL]}
    state = ask(app, "POST", "/api/actions", given).json()["state"]
    assert state["complete"]
    assert [box["status"] for box in state["boxes"]] == ["accepted", "accepted"]
    assert ask(app, "POST", "/api/actions", given | {"person": "ben"}).status == 409
    assert ask(app, "GET", "/api/progress").json()["decided"] == 1
    grid = ask(app, "POST", "/api/grid", {"person": "ann", "label": CLASSES[0], "count": 9}).json()["boxes"]
    assert [(box["image"], box["id"]) for box in grid] == [(2, "d0"), (3, "d0")]
    assert ask(app, "POST", "/api/release", {"person": "ann"}).status == 200
    assert ask(app, "POST", "/api/actions", given | {"person": "ben"}).status == 200


def test_a_full_disk_is_said(app, store: Store) -> None:
    pages = store._rows("PRAGMA page_count")[0][0]
    store._rows(f"PRAGMA max_page_count = {pages}")
    points = [
        {"key": f"p{i}", "kind": "point", "label": CLASSES[0], "point": [1.123456789, i / 9]}
        for i in range(100)
    ]
    given = {"person": "ann", "image": 1, "actions": points}
    answers = [
        ask(
            app, "POST", "/api/actions", given | {"actions": [p | {"key": f"{n}-{p['key']}"} for p in points]}
        )
        for n in range(4)
    ]
    assert answers[-1].status == 507
    assert "not saved" in answers[-1].json()["error"]


VALUES = [
    None, True, -1, 0, 1, 2**70, 1e308, float("nan"), float("inf"), "", "d0", "../../etc/passwd", "\ud800",
    "\x00", "x" * 5000, [], [1], [[[]]], [0, 0, 5, 5], [5, 5, 0, 0], [1, 2, 3, "4"], {},
    {"kind": "add"}, CLASSES[0],
]  # fmt: skip
HOSTILE = round(500 * float(os.environ.get("CHAOS_COUNT", "1")))  # requests; 20 makes 10,000 of them
STUDIO = label_studio.label_config(CLASSES).decode()
NAMES = ["..", "%2e%2e", "....//", "/etc/passwd", "page", "api", "images", "1", "pixels", "\\", "a\x00b", "é"]


def hostile_request(chance: random.Random) -> dict:
    """A request that has the token, and anything else."""
    what = chance.random()
    if what < 0.15:
        name = chance.choice(["health", "setup", "predict", "webhook", "../api/session", "%2e%2e/page"])
        return {
            "method": chance.choice(["GET", "POST", "POST", "POST"]),
            "path": f"/label-studio/{chance.choice(['studio', 'studio', TOKEN, '..', ''])}/{name}",
            "content": hostile_call(chance),
            "headers": {"cookie": None, "origin": None, "sec-fetch-site": None},
        }
    if what < 0.3:
        parts = [chance.choice(NAMES) for _ in range(chance.randint(1, 6))]
        return {"method": chance.choice(["GET", "POST", "PUT", "OPTIONS"]), "path": "/" + "/".join(parts)}
    if what < 0.5:
        name = chance.choice(
            ["../pyproject.toml", "..%2f..", "/etc/passwd", "index.html/..", "\x00", "server.py"]
        )
        return {
            "method": "GET",
            "path": chance.choice(["/page/", "/api/images/", "/api/images/1/crops/"]) + name,
        }
    if what < 0.6:
        body = bytes(chance.randrange(256) for _ in range(chance.randint(0, 60)))
        return {
            "method": "POST",
            "path": "/api/actions",
            "body": chance.choice([body, b"[" * 5000, b"{}", b"[]"]),
        }
    path = chance.choice(["/api/actions", "/api/next", "/api/grid", "/api/release"])
    given = {
        key: chance.choice([fine, chance.choice(VALUES)])
        for key, fine in {
            "person": "ann", "image": 1, "count": 2, "label": CLASSES[0], "order": "class", "near": 1,
            "held": [1], "actions": [hostile_action(chance)],
        }.items()
        if chance.random() < 0.9
    }  # fmt: skip
    return {"method": "POST", "path": path, "content": given}


def hostile_call(chance: random.Random) -> dict:
    """A call of Label Studio, with anything in it."""
    address = chance.choice(
        ["/data/local-files/?d=0.png", "../../etc/passwd", "file:///etc/passwd", "data:,x"]
    )
    value = {"x": chance.choice(VALUES), "y": 1, "width": 9, "height": chance.choice([9, 1e9, -1, "9"])}
    value["rectanglelabels"] = chance.choice([[CLASSES[0]], ["x"], chance.choice(VALUES)])
    region = {"id": chance.choice(VALUES), "type": "rectanglelabels", "value": value, "original_width": 80}
    region["original_height"] = chance.choice([60, 0, None, "60"])
    task = {"id": chance.choice(VALUES), "data": chance.choice([{"image": address}, {}, *VALUES])}
    annotation = {"id": 1, "result": chance.choice([[region], [], region, chance.choice(VALUES)])}
    config = chance.choice([STUDIO, "<View>", "<View><RectangleLabels/></View>", *VALUES])
    given = {
        "action": chance.choice(["ANNOTATION_CREATED", "ANNOTATION_UPDATED", "START_TRAINING", *VALUES]),
        "task": chance.choice([task, task, *VALUES]),
        "annotation": chance.choice([annotation, annotation, *VALUES]),
        "tasks": chance.choice([[task], [task, task], *VALUES]),
        "label_config": config,
        "schema": config,
    }
    return {key: each for key, each in given.items() if chance.random() < 0.95}


def hostile_action(chance: random.Random) -> object:
    kinds = [
        "add",
        "change",
        "accept",
        "reject",
        "accept_all",
        "tag",
        "point",
        "unpoint",
        "count",
        "skip",
        "undo",
    ]
    action = {"key": f"h{chance.randrange(10**9)}", "kind": chance.choice([*kinds, "redo", "drop"])}
    for key in ("id", "label", "box", "complete", "shown", "point", "index", "count", "how", "least"):
        if chance.random() < 0.4:
            action[key] = chance.choice(VALUES)
    return action


def test_hostile_requests_touch_no_file(app, store: Store, tmp_path: Path) -> None:
    touched: set[str] = set()
    active = [False]

    def watch(event: str, arguments: tuple) -> None:
        # Each request here has an event loop of its own, which is what makes sockets.
        if active[0] and event.startswith(("open", "os.", "shutil.", "subprocess.", "sqlite3.")):
            touched.add(f"{event} {arguments[:1]}")

    ask(app, "GET", "/api/images/1/crops/d0")  # what is imported at first use
    sys.addaudithook(watch)
    chance = random.Random(int(os.environ.get("CHAOS_SEED", "0")))
    statuses = set()
    try:
        for _ in range(HOSTILE):
            request = hostile_request(chance)
            active[0] = True
            answer = ask(app, **request)
            active[0] = False
            statuses.add(answer.status)
            assert answer.status != 500, (request, answer)
    finally:
        active[0] = False
    allowed = {str(tmp_path / f"{number}.png") for number in range(3)}
    assert not {each for each in touched if not any(path in each for path in allowed)}
    assert {200, 400, 404, 405} <= statuses
    for number in store.names():
        store.state(number)  # what was written can be read
