"""Linked folders and strange names of files: a result, or an error that names what is wrong."""

import os
import random
import unicodedata

import pytest
from chaos.harness import Case, check, repeats
from chaos.results import FOUND, PREDICT

pytestmark = pytest.mark.chaos
HARMLESS = "error or equal"


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
