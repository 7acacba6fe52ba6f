"""Hostile files: no code in them runs, nothing outside the output folder changes, nothing hangs.

A command that is led to run code or to write would make the file `harm` or change the sandbox outside of what
the case allows. Memory is limited, so that what expands without bounds ends the command.
"""

import io
import json
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from chaos.harness import Case, check
from chaos.results import CHECK, COCO, FOUND, NEW, OWN, PREDICT, RUN, TEST, TRAIN, measured, predicted
from PIL import Image

from detector.data.proposals import save_proposals
from detector.data.proposals.grid import grid_boxes

pytestmark = pytest.mark.chaos
BRIEF = (*TRAIN[:-1], 2)
SHOW = (*PREDICT, "--format", "coco")
RESUME = ("train", "--config-file", "config.yaml", "--resume")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n%%EOF\n"


class Code:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch harm",)


def write(name, content):
    def prepare(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return prepare


def append(name, text):
    def prepare(folder):
        (folder / name).write_text((folder / name).read_text() + text)

    return prepare


def fifo(name):
    def prepare(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return prepare


def eps_and_ghostscript(folder):
    """A picture that makes Pillow start gs, which would make the file `harm`."""
    write("pictures/cat.jpg", EPS)(folder)
    write("bin/gs", "#!/bin/sh\ntouch harm\n")(folder)
    (folder / "bin/gs").chmod(0o755)


def link(name, target):
    def prepare(folder):
        path = folder / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(folder / target, path.parent))

    return prepare


def checkpoint(name, **changes):
    """Change what a checkpoint holds; a function changes the value that is there."""

    def prepare(folder):
        path = folder / name
        state = torch.load(path, weights_only=True)
        for key, value in changes.items():
            state[key] = value(state[key]) if callable(value) else value
        torch.save(state, path)
        if "checkpoints" in name:
            (folder / "run/model_final.pt").unlink()

    return prepare


def nan_weights(model):
    return {key: torch.full_like(t, float("nan")) if t.is_floating_point() else t for key, t in model.items()}


def torch_code(name):
    def prepare(folder):
        torch.save({"model": Code(), "iteration": 1, "train_seconds": 1.0}, folder / name)

    return prepare


def npz(name, **members):
    """An npz archive whose members are given as bytes or as arrays."""

    def prepare(folder):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for key, value in members.items():
                archive.writestr(f"{key}.npy", value if isinstance(value, bytes) else npy(value))

    return prepare


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)  # a file that an attacker writes; reading must refuse it
    return buffer.getvalue()


def header(text, data=b""):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def zip_bomb(name, member, gigabytes):
    def prepare(folder):
        with (
            zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open(member, "w", force_zip64=True) as file,
        ):
            shape = gigabytes << 26
            file.write(header(f"{{'descr':'<f4','fortran_order':False,'shape':({shape}, 4)}}\n"))
            for _ in range(gigabytes * 64):
                file.write(bytes(1 << 24))

    return prepare


def huge_png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1 << 20))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def table_that_leads_out(folder):
    """A set three folders deep, with a picture whose id leads from the pseudo set to the run's pictures."""
    root = folder / "a/b/own"
    shutil.copytree(folder / "own", root)
    append("a/b/own/train.csv", "../../../pictures/png/picture.png,robot\n")(folder)
    files = [line.partition(",")[0] for line in (root / "train.csv").read_text().splitlines()[1:]]
    files += [json.loads(line)["file"] for line in (root / "val.jsonl").read_text().splitlines()]
    sizes = [Image.open(root / file).size[::-1] for file in files]
    boxes = [grid_boxes(np.zeros((*size, 3), dtype=np.uint8)) for size in sizes]
    save_proposals(root / "out.npz", [str(Path(file).with_suffix("")) for file in files], boxes, sizes)


ERROR, EITHER, EQUAL = "error", "error or warning", "equal"
# An error or the result of the undamaged file; an error or any result, as long as nothing else is written.
UNUSED, HARMLESS = "error or equal", "harmless"
BOXES = "{'descr':'<f4','fortran_order':False,'shape':(1099511627776, 4)}\n"
WEIGHTS = ("convert_weights", "classifier.pth", "made.pth")
CONVERT = ("convert-proposals", "--config-file", "config.yaml", "--format")
HOSTILE = {
    "EPS named .jpg": ((*SHOW, "pictures/cat.jpg"), ERROR, ("cat.jpg",), eps_and_ghostscript, FOUND),
    "FIFO as picture": ((*SHOW, "pictures/cat.jpg"), ERROR, ("cat.jpg",), fifo("pictures/cat.jpg"), FOUND),
    "FIFO as config": (CHECK, ERROR, ("config.yaml",), fifo("config.yaml"), ()),
    "FIFO as table": ((*CHECK, *OWN), ERROR, ("train.csv",), fifo("own/train.csv"), ()),
    "FIFO as split": (CHECK, ERROR, ("trainval.txt",), fifo("toybox/ImageSets/Main/trainval.txt"), ()),
    "FIFO as COCO": ((*CHECK, *COCO), ERROR, ("trainval.json",), fifo("coco/trainval.json"), ()),
    "FIFO as proposals": (BRIEF, ERROR, ("proposals.npz",), fifo("toybox/proposals.npz"), NEW),
    "FIFO as checkpoint": (TEST, ERROR, ("model_final.pt",), fifo("run/model_final.pt"), RUN),
    "FIFO as weights": (WEIGHTS, ERROR, ("classifier.pth",), fifo("classifier.pth"), ()),
    "a device as picture": ((*SHOW, "/dev/zero"), ERROR, ("/dev/zero",), lambda f: None, FOUND),
    "file of the user as .metrics.json.tmp": (
        TEST,
        EQUAL,
        (),
        write("run/.metrics.json.tmp", "precious"),
        (*RUN, "!run/.metrics.json.tmp"),
    ),
    "file of the user as .lock": (
        BRIEF,
        ERROR,
        (".lock", "rename it"),
        write("new/.lock", "precious"),
        (*NEW, "!new/.lock"),
    ),
    "link as log.txt": (
        BRIEF,
        HARMLESS,
        ("log.txt",),
        link("new/log.txt", "classifier.pth"),
        ("!classifier.pth",),
    ),
    "link as .lock": (
        BRIEF,
        ERROR,
        (".lock",),
        link("new/.lock", "classifier.pth"),
        (*NEW, "!classifier.pth"),
    ),
    "self-training on a picture of ../": (
        (
            *("self-train", "--config-file", "config.yaml", *OWN, "DATASETS.ROOT", "a/b/own"),
            *("DATASETS.PROPOSALS", "a/b/own/out.npz"),
            *("SELF_TRAIN.SIZES", "(48,)", "SELF_TRAIN.MAX_ITER", 1, "SELF_TRAIN.IMAGES_PER_BATCH", 1),
        ),
        HARMLESS,
        ("../",),
        table_that_leads_out,
        ("!run/pictures/*",),
    ),
    "code in a checkpoint": (TEST, ERROR, ("model_final.pt",), torch_code("run/model_final.pt"), RUN),
    "code in weights": (WEIGHTS, ERROR, ("classifier.pth",), torch_code("classifier.pth"), ()),
    "code in a pickle of proposals": (
        (*CONVERT, "detectron", "--train", "p.pkl", "DATASETS.PROPOSALS", "made.npz"),
        ERROR,
        ("p.pkl",),
        write("p.pkl", pickle.dumps({"boxes": Code(), "indexes": Code()})),
        (),
    ),
    "code in npz": (
        BRIEF,
        ERROR,
        ("proposals.npz",),
        npz("toybox/proposals.npz", boxes=np.array([Code()], dtype=object)),
        NEW,
    ),
    "code in detections.npz": (
        ("report", "run"),
        ERROR,
        ("detections.npz",),
        npz("run/detections.npz", boxes=np.array([Code()], dtype=object)),
        RUN,
    ),
    "a header that lies in npz": (
        BRIEF,
        ERROR,
        ("proposals.npz",),
        npz("toybox/proposals.npz", boxes=header(BOXES)),
        NEW,
    ),
    "8 GiB of zeros in npz": (
        BRIEF,
        ERROR,
        ("proposals.npz",),
        zip_bomb("toybox/proposals.npz", "boxes.npy", 8),
        NEW,
    ),
    "a PNG of 2^31 x 1": (
        (*SHOW, "pictures/cat.png"),
        ERROR,
        ("cat.png",),
        write("pictures/cat.png", huge_png(2**31 - 1, 1)),
        FOUND,
    ),
    **{
        f"{what} in a {where}": (
            command,
            expect,
            (name.rpartition("/")[2],),
            checkpoint(name, **changes),
            writes,
        )
        for where, name, command, expect, writes in (
            ("final checkpoint", "run/model_final.pt", (*SHOW, "pictures/png"), ERROR, FOUND),
            ("tested checkpoint", "run/model_final.pt", TEST, ERROR, RUN),
            # The warning says that the checkpoint before it is used.
            ("resumed checkpoint", "run/checkpoints/000004.pt", RESUME, EITHER, RUN),
        )
        for what, changes in {
            "NaN": {"model": nan_weights},
            "a list as config": {"config": "[1, 2]"},
        }.items()
    },
}
RESULTS = {TEST: measured, (*SHOW, "pictures/png"): predicted}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(world, reference, tmp_path, name):
    command, expect, names, prepare, writes = HOSTILE[name]
    options = {}
    if expect in (EQUAL, UNUSED):
        options = {"result": RESULTS[command], "reference": reference(command, RESULTS[command])[0]}
    elif expect == HARMLESS:
        expect, options = UNUSED, {"result": lambda folder, outcome: ""}
    writes = (*writes, *RUN, *NEW, *FOUND)
    check(
        [Case("hostile file", name, command, expect, names, prepare, writes=writes, **options)],
        world,
        tmp_path,
    )
