"""`detector report`: one page that shows a run and needs nothing else, in a browser where there is one."""

import base64
import hashlib
import html
import io
import json
import re
import shutil
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
import torch
from browser import open_browser
from PIL import Image

import detector
from detector.data.toybox import CLASSES
from detector.evaluation.summary import encode_detections, load_detections
from detector.structures import Detections

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")
HOSTILE = "<img src=x onerror=alert(1)>&"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the run is kept for all tests, once the first of them has made it."""
    return tmp_path_factory.mktemp("kept") / "run"


@pytest.fixture
def run_folder(command, overrides, tmp_path, kept):
    """A tested run of four steps with two snapshots, and a class whose name is HTML."""
    if not kept.exists():
        values = {"OUTPUT_DIR": kept, "DATASETS.CLASSES": (*CLASSES, HOSTILE), "SOLVER.PICTURE_PERIOD": 2}
        words = [str(word) for pair in values.items() for word in pair]
        arguments = ["--config-file", CONFIG, *overrides, *words, "TEST.PICTURES", "3"]
        assert command("train")(arguments) == 0
        assert command("test")(arguments) == 0
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def report(command):
    """Run the command; returns its exit status."""
    main = command("report")
    return lambda *words: main([str(word) for word in words])


class Page(HTMLParser):
    """What a page is made of."""

    EMPTY = ("meta", "link", "img", "br", "input")  # never closed

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.sources, self.links, self.ids, self.text = [], [], [], [], [], ""
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        assert not any(name.startswith("on") for name in named)
        self.tags.append(tag)
        self.sources += [named["src"]] if "src" in named else []
        self.links += [named["href"]] if "href" in named else []
        self.ids += [named["id"]] if "id" in named else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_student_that_is_training_is_told(report, run_folder, capsys, monkeypatch):
    (run_folder / "self_train" / "checkpoints").mkdir(parents=True)
    (run_folder / "self_train" / "checkpoints" / "0000200.pt").touch()
    assert report(run_folder) == 0
    told = capsys.readouterr().out
    assert (
        "about the weak detector: its student is training or was interrupted (step 200 of 600 is kept)"
        in told
    )
    for words in ([], ["--model", "weak"]):
        assert report(run_folder, *words) == 0
        assert ("note " in capsys.readouterr().out) == (not words)
    (run_folder / "self_train" / "model_final.pt").touch()
    monkeypatch.setattr(
        "detector.reporting.build.choose_run", lambda folder, model: folder
    )  # measured better
    assert report(run_folder) == 0
    assert "note " not in capsys.readouterr().out


def test_the_page_holds_all_that_it_shows(report, run_folder, tmp_path, capsys):
    output = tmp_path / "page.html"
    assert report(run_folder, "--output", output) == 0
    assert f"report    {output}" in capsys.readouterr().out
    page = Page(output.read_text())
    assert [place for place in page.ids if not place.startswith("picture-")] == [
        *("classes", "errors", "pictures", "thresholds", "images", "precision-and-recall", "confusion"),
        *("streams", "training", "run"),
    ]
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.links) == {"data:,"} | {f"#{place}" for place in page.ids}
    assert page.tags.count("script") == 1
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', output.read_text())[1]
    script = re.search("<script>(.*?)</script>", output.read_text(), re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in html.unescape(policy)
    assert page.tags.count("img") == len(page.sources) > 3 * 2 * 4  # galleries, and 2 snapshots of 4 streams
    for source in page.sources:
        start, _, data = source.partition(",")
        assert start == "data:image/jpeg;base64"
        assert min(Image.open(io.BytesIO(base64.b64decode(data))).size) > 20
    assert HOSTILE in page.text
    assert HOSTILE not in output.read_text()
    assert "PCL, trained for 4 steps, reaches" in page.text
    for word in ("mAP50", "CorLoc", "grouped", "missed", "step 2", "step 4", "stream 3", "AP50:95"):
        assert word in page.text


def test_keys_are_compared_with_the_config_that_the_command_names(report, run_folder):
    info = json.loads((run_folder / "run.json").read_text())
    info["command"] = f"detector train --config-file {CONFIG} SOLVER.MAX_ITER 4"
    (run_folder / "run.json").write_text(json.dumps(info))
    assert report(run_folder) == 0
    page = Page((run_folder / "report.html").read_text())
    assert "Keys that differ from toybox_pcl.yaml" in page.text
    assert "SOLVER.MAX_ITER" in page.text
    assert "MODEL.IMAGE_HEAD" not in page.text  # as in the recipe
    for command in ("detector train 'it", "detector train gone.yaml"):
        (run_folder / "run.json").write_text(json.dumps(info | {"command": command}))
        assert report(run_folder) == 0
        page = Page((run_folder / "report.html").read_text())
    assert "Keys that differ from the defaults" in page.text
    assert "MODEL.IMAGE_HEAD" in page.text


def test_a_notebook_shows_the_page_in_a_frame(run_folder, tmp_path):
    shown = detector.report(run_folder, {"TEST.PICTURES": 1}, output=tmp_path / "page.html")
    assert shown.path == tmp_path / "page.html"
    frame = re.fullmatch('<iframe srcdoc="([^"]*)" sandbox="allow-scripts" .*></iframe>', shown._repr_html_())
    assert html.unescape(frame[1]) == shown.path.read_text()
    shown.path.unlink()
    assert shown._repr_html_() is None


def test_nothing_detected_and_no_snapshots(report, run_folder):
    ids = [image.image_id for image in load_detections(run_folder / "detections.npz")]
    none = [Detections(each, torch.zeros(0, 4), torch.zeros(0), torch.zeros(0).long()) for each in ids]
    (run_folder / "detections.npz").write_bytes(encode_detections(none))
    shutil.rmtree(run_folder / "snapshots")
    for path in run_folder.glob("events.*"):
        path.unlink()
    assert report(run_folder) == 0
    page = Page((run_folder / "report.html").read_text())
    assert "There are none." in page.text
    assert not {"streams", "training", "pseudo-boxes"} & set(page.ids)


def test_what_is_missing_or_damaged_is_named(report, run_folder, tmp_path, capsys):
    def error(*words):
        assert report(*words) == 2
        return capsys.readouterr().err

    assert "is no run folder" in error(tmp_path)
    assert "cannot write" in error(run_folder, "--output", tmp_path / "nowhere" / "page.html")
    saved = load_detections(run_folder / "detections.npz")
    (run_folder / "detections.npz").write_bytes(encode_detections(saved[:-1]))
    assert "run `detector test` again" in error(run_folder)
    (run_folder / "detections.npz").write_bytes(b"PK\3\4 not one")
    assert "detections.npz is damaged" in error(run_folder)
    (run_folder / "detections.npz").unlink()
    assert "run `detector test` first" in error(run_folder)
    (run_folder / "metrics.json").unlink()
    assert "has no test results: run `detector test" in error(run_folder)
    assert not (run_folder / "report.html").exists()


def set_metric(path, *keys_and_value):
    *keys, last, value = keys_and_value
    metrics = json.loads(path.read_text())
    node = metrics
    for key in keys:
        node = node[key]
    node[last] = value
    path.write_text(json.dumps(metrics))


@pytest.mark.parametrize(
    "change",
    [
        ("mAP50", "high"),
        ("train_seconds", None),
        ("train_seconds", 1e300),
        ("train_seconds", float("nan")),
        ("iteration", []),
        ("method", 3),
        ("per_class", []),
        ("per_class", {}),
        ("per_class", CLASSES[0], "AP50", "<b>"),
        ("per_class", CLASSES[0], {}),
        ("per_class", CLASSES[0], 5),
        ("CorLoc", 1e400),
    ],
)
def test_forged_metrics_are_one_line(report, run_folder, capsys, change):
    set_metric(run_folder / "metrics.json", *change)
    assert report(run_folder) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "metrics.json" in line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.json", b"{}"),
        *product(["metrics.json", "run.json"], [b"\xff\xfe", b"{", b"[1]", b"[" * 100_000, b""]),
    ],
)
def test_damaged_json_is_one_line(report, run_folder, capsys, name, content):
    (run_folder / name).write_bytes(content)
    assert report(run_folder) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line


def test_a_page_of_others_is_kept(report, run_folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert report(run_folder, "--output", page) == 2
    assert f"{page} exists and is not what this command wrote" in capsys.readouterr().err
    assert page.read_text() == "mine"


# Elements that reach beyond the window or whose content is wider than they are. Only the confusion matrix may
# scroll sideways, and charts scale their text.
CUT_OFF = """
[...document.querySelectorAll("body *:not(.confusion, .confusion *, svg *)")]
    .filter(e => !e.matches(":has(> .confusion), .zoom input"))
    .filter(e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)
    .filter(e => getComputedStyle(e).display != "inline" && e.clientWidth > 0)
    .map(e => e.outerHTML.slice(0, 200))
"""


def check_zoom(page):
    """A click on a picture fills the window with it; another click closes it."""
    picture = page.locator("figure .picture").first
    small = {side: picture.bounding_box()[side] for side in ("width", "height")}
    picture.click()
    window = page.viewport_size
    assert picture.bounding_box() == {"x": 0, "y": 0, **window}
    image, overlay = (picture.locator(part).bounding_box() for part in ("img", "svg"))
    assert image == overlay
    assert picture.locator(".caption").is_visible()
    picture.click()
    assert {side: picture.bounding_box()[side] for side in small} == small


def check_sliders(page):
    """A slider hides the boxes of its class that do not score more, and counts those that are left."""
    rows = page.locator(".thresholds tr.class").all()
    label = max(range(len(rows)), key=lambda i: int(rows[i].locator("td").nth(2).inner_text()))
    boxes = page.locator(f".thresholds g[data-label='{label}']")
    before = [
        rows[label].locator("td").nth(2).inner_text(),
        boxes.evaluate_all("all => all.map(each => each.classList.value)"),
    ]
    slider = rows[label].locator("input")
    for stop in (0, 100):
        slider.fill(str(stop))
        hidden = boxes.evaluate_all(
            "all => all.filter(each => getComputedStyle(each).display == 'none').length"
        )
        assert hidden == (boxes.count() if stop else 0)
    assert rows[label].locator("td").nth(2).inner_text() == "0"
    page.get_by_role("button", name="as chosen").click()
    after = [
        rows[label].locator("td").nth(2).inner_text(),
        boxes.evaluate_all("all => all.map(each => each.classList.value)"),
    ]
    assert after == before


def check_filter(page):
    """The list shows all images at first, then only those that match the chosen class and result."""
    rows = page.locator(".by-image .row:not(.heads)").all()
    words = [row.get_attribute("class").split() for row in rows]
    assert all(row.is_visible() for row in rows)
    counts = [sum(f"c{label}" in each for each in words) for label in range(len(CLASSES))]
    label, result = next(i for i, count in enumerate(counts) if 0 < count < len(rows)), "r-missed"
    by_class, by_result = page.locator(".by-image select").all()
    by_class.select_option(f"c{label}")
    assert [row.is_visible() for row in rows] == [f"c{label}" in each for each in words]
    by_result.select_option(result)
    assert [row.is_visible() for row in rows] == [{f"c{label}", result} <= set(each) for each in words]
    by_class.select_option("")
    assert [row.is_visible() for row in rows] == [result in each for each in words]
    by_result.select_option("")


def test_in_a_browser(report, run_folder):
    """On a desktop and a phone: no request, no error, all pictures load, and nothing is cut off."""
    assert report(run_folder) == 0
    with open_browser() as browser:
        for width, scheme in ((1280, "light"), (390, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            told, asked = [], []
            page.on("console", lambda message, told=told: told.append(message.text))
            page.on("pageerror", lambda error, told=told: told.append(str(error)))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto((run_folder / "report.html").as_uri())
            assert told == []
            assert [url for url in asked if not url.startswith("data:")] == [page.url]
            widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
            assert len(widths) > 24
            assert min(widths) > 20
            assert page.evaluate("document.documentElement.scrollWidth") == width
            for place in page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash)"):
                assert page.locator(place).bounding_box()["height"] > 60
            assert page.evaluate(CUT_OFF) == []
            page.get_by_text("Definitions").click()
            assert page.get_by_text("part domination").is_visible()
            check_zoom(page)
            check_sliders(page)
            check_filter(page)
