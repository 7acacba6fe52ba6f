"""Strange checkpoints, linked folders and names of files: a result, or an error that names what is wrong."""

import os
import pickle
import random
import unicodedata
import zipfile
from pathlib import Path

import pytest
import torch
from chaos.harness import Case, check, repeats
from chaos.results import FOUND, PREDICT, RUN
from chaos.test_mistakes import load

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:Validating sparse"),
]
RESUME = ("train", "--config-file", "config.yaml", "--resume")
HARMLESS = "error or equal"


def shared_lists(draw):
    value = [1.0]
    for _ in range(draw.randrange(20, 200)):
        value = [value, value]
    return value


def cycle(draw):
    value = {}
    value["own"] = [value] * draw.randrange(1, 4)
    return value


STRANGE = {
    "shared lists": shared_lists,
    "a cycle": cycle,
    "values of stride 0": lambda draw: torch.ones(1).expand(10 ** draw.randrange(3, 12)),
    "a quantized tensor": lambda draw: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
    "a sparse tensor": lambda draw: torch.eye(draw.randrange(2, 9)).to_sparse(),
    "a meta tensor": lambda draw: torch.empty(draw.randrange(1, 9), device="meta"),
    "a number of 5,000 digits": lambda draw: 10**5000 + draw.randrange(9),
}
PLACES = ("version", "iteration", "model", "optimizer", "config", "train_seconds", "other")


def strange_checkpoint(name, kind, place, draw):
    def prepare(folder):
        path = folder / name
        state = torch.load(path, weights_only=True)
        state[place] = STRANGE[kind](draw)
        torch.save(state, path)
        if "checkpoints" in name:
            (folder / "run/model_final.pt").unlink()

    return prepare


def deep_checkpoint(name, draw):
    """Lists in lists as Python cannot write them."""

    def prepare(folder):
        path, depth = folder / name, draw.randrange(1000, 100_000)
        with zipfile.ZipFile(path) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        content = pickle.PROTO + b"\2" + b"]" * depth + b"a" * (depth - 1) + b"."
        with zipfile.ZipFile(path, "w") as archive:
            for each, old in members.items():
                archive.writestr(each, content if "data.pkl" in each else old)
        if "checkpoints" in name:
            (folder / "run/model_final.pt").unlink()

    return prepare


# What is read, by which command; the second checkpoint is not the last that can be resumed from.
READERS = {
    "load": ("run/model_final.pt", load("run"), HARMLESS, ()),
    "resume": ("run/checkpoints/000004.pt", RESUME, HARMLESS, RUN),
}


@pytest.mark.parametrize("reader", READERS)
def test_strange_checkpoint(world, tmp_path, reader):
    name, command, expect, writes = READERS[reader]
    cases = []
    for seed in repeats(len(STRANGE) + 1):
        draw = random.Random(f"{reader} {seed}")
        kind = [*STRANGE, "lists in lists"][seed % (len(STRANGE) + 1)]
        place = draw.choice(PLACES)
        harm = strange_checkpoint(name, kind, place, draw) if kind in STRANGE else deep_checkpoint(name, draw)
        what = f"{reader}, {kind} as {place}, seed {seed}"
        named = (Path(name).name,)  # what a command does not read may hold anything
        options = {"result": lambda *_: "", "writes": writes}
        cases.append(Case("strange checkpoint", what, command, expect, named, harm, **options))
    check(cases, world, tmp_path)


def linked(draw):
    """Two folders with a picture each, and links between them and to one above."""

    def prepare(folder):
        source = (folder / "pictures/png/picture.png").read_bytes()
        places = [folder / "tree" / each for each in ("a", "a/deep", "b", "b/deep")]
        for number, place in enumerate(places):
            place.mkdir(parents=True)
            (place / f"{number}.png").write_bytes(source)
        links = [(places[1], places[2]), (places[3], places[0])]  # to each other
        links += [(draw.choice(places), draw.choice((folder / "tree", *places))) for _ in range(3)]
        for number, (place, target) in enumerate(links):
            (place / f"link{number}").symlink_to(os.path.relpath(target, place))

    return prepare


def pictures_read(folder, outcome):
    """How many of the four pictures a command reports."""
    texts = [path.read_text() for path in folder.glob("found/*.json")] + [outcome.output]
    return "all" if all(any(f"{number}.png" in text for text in texts) for number in range(4)) else "some"


def test_folders_that_link_to_each_other(world, tmp_path):
    cases = []
    for seed in repeats(3):
        prepare = linked(random.Random(f"links {seed}"))
        for command, result, reference, writes in (
            ((*PREDICT, "--format", "coco", "tree"), pictures_read, "all", FOUND),
            (
                ("propose", "--images", "tree", "--mode", "grid", "--output", "made.npz", "--workers", 1),
                lambda folder, outcome: "all" if "4 images" in outcome.output else outcome.output,
                "all",
                ("made.npz*", ".made.npz*"),
            ),
            (("init", "tree", "--output", "mine.yaml"), lambda *_: "", "", ("mine*",)),
        ):
            what = f"{command[0]}, seed {seed}"
            expect = HARMLESS if command[0] == "init" else "equal"
            options = {"result": result, "reference": reference, "writes": writes}
            cases.append(Case("linked folders", what, command, expect, (), prepare, **options))
    check(cases, world, tmp_path)


def draw_name(draw):
    """A name that a file system takes, of a kind that files of text, shells or programs stumble over."""
    accents = "".join(draw.choices("éüñçåÅ", k=3))
    return draw.choice(
        (
            os.fsdecode(bytes(draw.choices(range(0x80, 0x100), k=3))),  # not UTF-8
            unicodedata.normalize("NFC", accents),
            unicodedata.normalize("NFD", accents),
            draw.choice(("x", "é")).encode().ljust(2, b"x").decode() * 123,  # 246 or 369 bytes
            " ".join(["", "a", "b", ""][draw.randrange(2) :]),
            "-" * draw.randrange(1, 3) + draw.choice(("o", "help", "x")),
            "a\nb",
            draw.choice(("%s", "{}", "$HOME", "*", "a:b", "'", '"', "#", "a,b;c", ".hidden", "~")),
        )
    )


def named_files(names):
    """The pictures own/pictures/*.png under such names, in a folder of such a name, and a table of them."""

    def prepare(folder):
        (folder / "odd").mkdir()
        lines = []
        for number, name in enumerate(names):
            place = folder / "odd" / name
            with_suffix = place.with_name(os.fsdecode(os.fsencode(f"{name}.png")[-250:]))
            with_suffix.write_bytes((folder / "pictures/png/picture.png").read_bytes())
            quoted = with_suffix.name.replace('"', '""')
            lines.append(f'"{quoted}",{"bird" if number % 2 else "car"}')
        text = "\n".join(["file,labels", *lines]) + "\n"
        (folder / "odd/labels.csv").write_bytes(text.encode("utf-8", "surrogateescape"))

    return prepare


def test_names_of_files(world, tmp_path):
    cases = []
    for seed in repeats(8):
        draw = random.Random(f"names {seed}")
        names = sorted({draw_name(draw) for _ in range(4)})
        for command, writes in (
            ((*PREDICT, "--format", "coco", "--format", "voc", "--format", "pictures", "odd"), FOUND),
            (
                ("propose", "--images", "odd", "--mode", "grid", "--output", "made.npz", "--workers", 1),
                ("made.npz*", ".made.npz*"),
            ),
            (("init", "odd", "--output", "mine.yaml"), ("mine*",)),
        ):
            what = f"{command[0]}, {names!a}, seed {seed}"
            options = {"result": lambda *_: "", "writes": writes}
            cases.append(
                Case("names of files", what, command, HARMLESS, ("odd",), named_files(names), **options)
            )
    check(cases, world, tmp_path)
