"""What `detector init` writes into a config: the recipe, steps and sizes that this machine affords, tiles."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detector.config import load_cfg
from detector.data.images import read_image_size
from detector.data.large_images import exceeds_limit
from detector.data.sources.tagged import Tagged
from detector.data.tile_choice import choose_tile, quartile
from detector.data.tiles import Tiling
from detector.utils.errors import UserError, counted

RECIPE = "own_mist_lite0"
_STEPS_PER_IMAGE = 4  # as of photos_mist_lite0: 1,500 steps for 385 photographs
_GPU_STEPS = (500, 20_000)  # least and most
_CPU_STEPS, _CPU_SIZE, _CPU_BOXES = 300, 320, 500
_MEASURED = 200  # pictures whose sizes are read
_SMALL_OBJECT = 32  # pixels: two cells of the backbone's features


def choose_values(folder: Path, num_images: int, gpu: bool) -> tuple[dict[str, Any], str]:
    """The values of a config, and why they are so."""
    values: dict[str, Any] = {
        "_BASE_": RECIPE,
        "OUTPUT_DIR": str(Path("runs", folder.name)),
        # Absolute, so that the run can be tested from any working directory.
        "DATASETS": {"ROOT": str(folder.resolve()), "PROPOSALS": str(folder.resolve() / "proposals.npz")},
    }
    steps = _STEPS_PER_IMAGE * num_images
    if gpu:
        least, most = _GPU_STEPS
        steps = min(max(steps, least), most)
        values["SOLVER"] = {"MAX_ITER": steps}
        return values, f"there is a GPU; {steps} steps for {num_images} pictures"
    steps = min(steps, _CPU_STEPS)
    warmup = min(steps // 5, load_cfg(RECIPE).solver.warmup_iters)
    values |= {
        "SOLVER": {"MAX_ITER": steps, "WARMUP_ITERS": warmup},
        "PROPOSALS": {"MAX_COUNT": _CPU_BOXES},
        "INPUT": {"TRAIN_SIZES": [_CPU_SIZE], "TEST_SIZES": [_CPU_SIZE]},
        "SELF_TRAIN": {
            "MAX_ITER": 2 * steps,
            "IMAGES_PER_BATCH": 4,
            "SIZES": [_CPU_SIZE * 3 // 4],
            "MAX_SIZE": _CPU_SIZE,
            "CHANNELS": 128,
            "ROIS": 128,
            "TEACHER_STEPS": 0,  # it would add half of the time, and was not measured with so few pixels
        },
    }
    reason = (
        f"there is no GPU, so {steps} steps at {_CPU_SIZE} pixels with {_CPU_BOXES} proposals of an image; "
        "on a GPU leave out SOLVER, PROPOSALS, INPUT and SELF_TRAIN"
    )
    return values, reason


def choose_tiles(values: dict[str, Any], tagged: Sequence[Tagged], tile: str) -> str:
    """Write INPUT.TILE into the values of a config; returns what to say of it, "" if pictures are not cut."""
    if tile != "auto" and not tile.isdecimal():
        raise UserError(f"--tile is {tile!r}, expected auto or a number of pixels, 0 for no tiles")
    sizes = [
        picture.size or read_image_size(picture.file) for picture in tagged[:: len(tagged) // _MEASURED + 1]
    ]
    # Some that are read in parts ask for tiles, however small the others are.
    large = [size for size in sizes if exceeds_limit(*size)]
    sizes = large or sizes
    longest = statistics.median(max(size) for size in sizes)
    size = max(values.get("INPUT", {}).get("TEST_SIZES", load_cfg(RECIPE).input.test_sizes))
    sides = [side * longest for picture in tagged for side in picture.sides]
    if tile == "auto":
        side = choose_tile(longest, sides, size) or (round(longest / 2) if large else 0)
    else:
        side = int(tile)
    if not side:
        return ""
    values["INPUT"] = {**values.get("INPUT", {}), "TILE": side}
    heights, widths = zip(*sizes, strict=True)
    count = len(Tiling(side).boxes(round(statistics.median(heights)), round(statistics.median(widths))))
    known = (
        f"and a quarter of the objects less than {quartile(sides):.0f}" if sides else "objects are unknown"
    )
    return (
        f"pictures are {longest:.0f} pixels long, {known}: INPUT.TILE {side} cuts them into "
        f"{counted(count, 'view', 'views')} of {size} pixels; --tile 0 does not (docs/large_pictures.md)"
    )


def describe_objects(side: float, config: Path, source: str) -> str:
    """What the median side of the objects, in longer sides of the picture, asks for."""
    cfg = load_cfg(config)
    pixels = side * max(cfg.input.test_sizes)
    text = f"median side {100 * side:.0f} % of the picture, {pixels:.0f} pixels of the network's input"
    if pixels >= _SMALL_OBJECT:
        return text
    return (
        f"{text}, which is small: choose their proposals with detector propose {config} --tune {source}, and "
        "larger INPUT.TRAIN_SIZES and TEST_SIZES"
    )
