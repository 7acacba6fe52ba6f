"""Doom as a folder in the layout of PASCAL VOC: JPEGImages, Annotations, ImageSets/Main."""

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.utils.errors import UserError
from detector.utils.files import encode_image, write_new
from doom.game import Game
from doom.scene import KINDS, scenes

# Every fourth map is for testing: the maps get larger and darker with their number.
TEST_MAPS = tuple(range(4, 33, 4))
TRAIN_MAPS = tuple(number for number in range(1, 33) if number not in TEST_MAPS)
JPEG_QUALITY = 75


def render_doom(
    root: str | Path, *, seed: int = 0, train: int = 1200, test: int = 400, workers: int = 1
) -> None:
    """Renders the data set into the new folder `root`: `trainval` (`train` images) and `test`, of other maps.

    Each picture depends on (seed, map, its number on the map) alone: the same call writes the same bytes, in
    any number of worker processes. The folder appears when it is complete.

    Raises:
        FileExistsError: there is one already.
        UserError: a map has no room for so many pictures.
    """
    splits = {"trainval": share(TRAIN_MAPS, train), "test": share(TEST_MAPS, test)}
    with (
        new_voc_folder(root) as folder,
        ProcessPoolExecutor(workers, get_context("spawn")) as pool,
        tqdm(total=train + test, unit="image", disable=None) as bar,
    ):
        jobs = [
            (folder.resolve(), number, seed, count)
            for maps in splits.values()
            for number, count in maps.items()
        ]
        for count in pool.map(render_map, *zip(*jobs, strict=True)):
            bar.update(count)
        for split, maps in splits.items():
            write_split(folder, split, [image_id(m, k) for m, count in maps.items() for k in range(count)])


def share(maps: tuple[int, ...], count: int) -> dict[int, int]:
    """How many of `count` pictures each map gives; the first maps give one more where it does not divide."""
    return {number: count // len(maps) + (i < count % len(maps)) for i, number in enumerate(maps)}


def image_id(map_number: int, index: int) -> str:
    return f"map{map_number:02d}_{index:04d}"


def render_map(root: Path, map_number: int, seed: int, count: int) -> int:
    """Writes JPEGImages/ID.jpg and Annotations/ID.xml for `count` pictures of one map; returns `count`.

    `root` is absolute. The working directory changes: call it in a process of its own.
    """
    if count == 0:
        return 0
    entropy = np.random.SeedSequence((seed, map_number))
    random = np.random.default_rng(entropy)
    name = f"MAP{map_number:02d}"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # of this worker process: the engine leaves a folder where it runs
        kinds = tuple(kind.engine_name for kind in KINDS.values())
        game = Game(name, int(entropy.generate_state(1)[0]), Path(folder), kinds)
        try:
            for index, (picture, objects) in enumerate(scenes(game, random, count)):
                file = f"{image_id(map_number, index)}.jpg"
                content = encode_image(Image.fromarray(picture), "jpeg", quality=JPEG_QUALITY, optimize=True)
                write_new(root / "JPEGImages" / file, content)
                write_annotation(root, file, picture.shape[:2], objects, folder="doom")
        except UserError as error:
            raise UserError(f"{name}: {error}; ask for fewer pictures") from None
        finally:
            game.close()
            os.chdir(root)
    return count
