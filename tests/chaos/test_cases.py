"""Labels that other tools write, from cases.tar.xz: read as meant, or refused by name; also damaged ones."""

import os
import random
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from chaos import harness
from chaos.harness import Case, check, damage, repeats

pytestmark = pytest.mark.chaos
HARMLESS, REVIEWED = "error or equal", ("--output", "rev.json")


def init(name, *words):
    return "init", f"input/{name}", *words, "--output", "mine.yaml"


def review(name, *words):
    return "review-import", f"input/{name}", *words, *REVIEWED


def at_home():
    """`~` in the config is the home folder."""
    os.environ["HOME"] = str(Path("home").resolve())
    sys.exit(harness.call(("propose", "c.yaml", "--mode", "grid", "--workers", 1)))


def encoded_as_cp1252():
    sys.stdout.reconfigure(encoding="cp1252")
    sys.exit(harness.call(("init", "p", "--output", "mine.yaml")) or harness.call(("check", "c.yaml")))


PROPOSE = ("propose", "--images", "input/p", "--output", "x.npz", "--mode", "grid", "--workers", 1)
# Inputs and what is done with them: commands, the outcome, what an error names, and what is written nowhere.
CASES = {
    "01-folders-of-splits-as-classes": (
        [init(name) for name in ("kaggle", "lower", "mixed", "coco")],
        *(HARMLESS, ("split",), r"classes \(.*rain|\(Testing"),
    ),
    "02-stated-split-ignored": (
        [init(name) for name in ("suffix", "path", "yolo")],
        "equal",
        (),
        r"at random",
    ),
    "03-label-studio-date-prefix": ([review("export.json")], "equal", (), r'"file_name": "000.jpg"'),
    "04-label-studio-percent-names": ([review("export.json")], "equal", (), r"%C3"),
    "06-coco-masks-as-iscrowd": ([init("p", "--labels", "input/coco.json")], "warning", ("iscrowd",), ""),
    "07-exif-same-size-turned": (
        [init("p", "--labels", "input/coco.json")],
        *("equal", (), r'00\.jpg.*"box": \[5\.0, 5\.0, 30\.0, 30\.0\]'),
    ),
    "08-exif-odd-tag": ([PROPOSE], "equal", (), "damaged"),
    "09-terminal-cannot-encode": ([encoded_as_cp1252], "equal", (), "internal error"),
    "11-label-studio-several-annotators": ([review("export.json")], "equal", (), '"name": "bird"'),
    "12-label-studio-other-regions": (
        [review(f"{name}.json") for name in ("relation", "choice", "pair")],
        *("equal", (), ""),
    ),
    "13-label-studio-addresses": (
        [review(f"{name}.json") for name in ("folders", "key", "storage", "resolve")],
        *("equal", (), ""),
    ),
    "14-cvat-video-frames-and-tasks": (
        [init("p", "--labels", "input/annotations.xml"), review("project.xml")],
        *(HARMLESS, ("project.xml",), "there is frame|keep one"),
    ),
    "15-voc-filename-and-size": (
        [init(name) for name in ("size0", "nosize", "nosuffix", "othersuffix")],
        *("equal", (), ""),
    ),
    "16-one-bad-box-stops-init": ([init("voc"), init("yolo")], "equal", (), ""),
    "17-voc-encodings-and-flags": (
        [init(name) for name in ("gb2312", "gbk", "cp1252", "unspecified", "true")],
        *(HARMLESS, ("UTF-8",), ""),
    ),
    "18-yolo-names-and-numbers": (
        [init(name) for name in ("bool", "int", "mapping", "strkeys", "float")],
        *(HARMLESS, ("quotes",), ""),
    ),
    "19-yolo-classes-txt-and-orphans": ([init("classes"), init("orphan")], "equal", (), ""),
    "20-yolo-without-data-yaml": (
        [init(name) for name in ("dataset", "yml", "classes", "labelstudio")],
        *(HARMLESS, ("data.yaml",), ""),
    ),
    "21-files-of-other-tools": (
        [init(name) for name in ("labelme", "via", "createml", "completions")],
        *(HARMLESS, ("LabelMe|VGG|CreateML|completions",), ""),
    ),
    "22-coco-ids-sizes-boxes": (
        [init("p", "--labels", f"input/{name}.json") for name in ("strings", "category", "nosize")],
        *("equal", (), ""),
    ),
    "23-backslashes-in-exports": (
        [review("p/result.json", "--reviewed", "all")],
        *("equal", (), r"images\\\\00\.png"),
    ),
    "24-tilde-in-config": ([at_home], HARMLESS, ("~|home",), r"(?m)^~$"),
    "25-message-with-1200-classes": ([("check", "c.yaml")], HARMLESS, ("1200|1,200",), r"(?s).{20000}"),
    "26-excel-sep-line": ([init("p")], "equal", (), "sep="),
    "28-split-folders-in-capitals-and-data": ([init("capitals"), init("fiftyone")], "equal", (), ""),
}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    with tarfile.open(Path(__file__).with_name("cases.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    assert sorted(path.name for path in folder.iterdir()) == sorted(CASES)
    return folder


def at_the_top(folder):
    """What the configs of a case read is beside them."""
    if (folder / "input/c.yaml").is_file():
        shutil.copytree(folder / "input", folder, dirs_exist_ok=True)
        (folder / "home").mkdir()


def without(never):
    """Whether no text that was printed or written, and no name of a file, matches a pattern."""

    def result(folder, outcome):
        written = [*folder.glob("*.json"), *folder.glob("*.yaml"), *folder.glob("mine/*.jsonl")]
        texts = [outcome.output, *os.listdir(folder), *(path.read_text() for path in written)]
        return "as meant" if not never or not any(re.search(never, text) for text in texts) else "as before"

    return result


@pytest.mark.parametrize("name", CASES)
def test_labels_of_another_tool(inputs, tmp_path, name):
    commands, expect, names, never = CASES[name]
    options = {"result": without(never), "reference": "as meant", "writes": ("*", "!input/*")}
    cases = [
        Case("labels of another tool", f"{name}, {command}", command, expect, names, at_the_top, **options)
        for command in commands
    ]
    check(cases, inputs / name, tmp_path / "whole")


@pytest.mark.parametrize("name", CASES)
def test_damaged_labels_of_another_tool(inputs, tmp_path, name):
    files = [
        path for path in sorted((inputs / name).rglob("*")) if path.suffix in LABELS and path.stat().st_size
    ]
    cases = []
    for seed in repeats(2):
        draw = random.Random(f"{name} {seed}")
        file = draw.choice(files).relative_to(inputs / name).as_posix()
        what, harm = damage(file, seed)

        def prepare(folder, harm=harm):
            harm(folder)
            at_the_top(folder)

        options = {"result": lambda *_: "", "writes": ("*", "!input/*")}
        command = draw.choice(CASES[name][0])
        cases.append(
            Case("damaged labels", f"{name}: {what}, {command}", command, HARMLESS, (), prepare, **options)
        )
    check(cases, inputs / name, tmp_path)


LABELS = {".xml", ".json", ".txt", ".csv", ".yaml", ".yml", ".jsonl", ".png", ".jpg"}
