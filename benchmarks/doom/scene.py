"""One picture of Doom: where to stand, what to put there, and whether it can be seen."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from detector.data.labeled_box import LabeledBox
from detector.utils.errors import UserError
from doom.game import FOCAL, HEIGHT, WIDTH, Game, Thing


@dataclass(frozen=True)
class Kind:
    """A class of the data set."""

    engine_name: str
    reach: float  # map units; farther away its box has less than MIN_AREA


KINDS = {
    "barrel": Kind("ExplosiveBarrel", 215),
    "cacodemon": Kind("Cacodemon", 400),
    "demon": Kind("Demon", 350),
    "green_armor": Kind("GreenArmor", 220),
    "imp": Kind("DoomImp", 350),
    "lamp": Kind("TechLamp", 280),
    "lost_soul": Kind("LostSoul", 245),
    "medikit": Kind("Medikit", 165),
    "revenant": Kind("Revenant", 390),
    "zombieman": Kind("Zombieman", 320),
}
CLASSES = tuple(sorted(KINDS))
NAMES = {kind.engine_name: name for name, kind in KINDS.items()}

NEAREST = 75.0  # map units
MARGIN = 24.0  # map units between a thing and the wall behind it
APART = 40.0  # map units between two things, at least
PLACES_TRIED = 4  # for each thing
CLASSES_A_PICTURE = (0.25, 0.4, 0.35)  # probabilities of 1, 2, 3 classes
THINGS_A_CLASS = (0.5, 0.3, 0.2)  # probabilities of 1, 2, 3 things of each

# A picture is kept if all things of our classes in it pass, so that none is there without its box.
MIN_AREA = 400  # square pixels of the box
MIN_FILL = 0.25  # visible pixels over those of the box
MIN_BRIGHTNESS = 14.0  # of 255
MIN_PICTURE_BRIGHTNESS = 25.0
MAX_SHARE = 0.6  # of the picture, that one box may cover
ATTEMPTS = 60  # times the number of pictures, before a map is given up


def scenes(
    game: Game, random: np.random.Generator, count: int
) -> Iterator[tuple[np.ndarray, list[LabeledBox]]]:
    """`count` pictures (H, W, 3) uint8 RGB of one map with their objects.

    The classes that were seen least so far are put up first, so that all are seen about as often.

    Raises:
        UserError: the map has no room for that many.
    """
    seen: Counter[str] = Counter()
    for _ in range(ATTEMPTS * max(count, 1)):
        if count == 0:
            return
        shot = shoot(game, random, seen)
        if shot is not None:
            seen.update(thing.label for thing in shot[1])
            count -= 1
            yield shot
    raise UserError(f"{count} pictures are missing after {ATTEMPTS} attempts for each")


def shoot(
    game: Game, random: np.random.Generator, seen: Counter[str]
) -> tuple[np.ndarray, list[LabeledBox]] | None:
    """One attempt: a picture with its objects, or None."""
    game.stand_at(*game.spots[random.integers(len(game.spots))])
    game.turn(random.uniform(-180, 180))
    places = choose_places(random, game.free_depths(), choose_names(random, seen))
    if not places:
        return None
    for name, depth, column in places:
        game.put(KINDS[name].engine_name, depth, column, facing=random.integers(360))
    game.wait(int(random.integers(4, 40)))  # they fall to the ground, and begin to move
    picture, things = game.look()
    game.command(*(f"remove {kind.engine_name}" for kind in KINDS.values()))
    ours = [thing for thing in things if thing.kind in NAMES]
    if not ours or not all(map(is_visible, ours)) or picture.mean() < MIN_PICTURE_BRIGHTNESS:
        return None
    return picture, [LabeledBox(NAMES[thing.kind], thing.box) for thing in ours]


def choose_names(random: np.random.Generator, seen: Counter[str]) -> list[str]:
    """Class names of the things to put up, the least seen classes before others."""
    shuffled = [CLASSES[i] for i in random.permutation(len(CLASSES))]
    classes = sorted(shuffled, key=seen.__getitem__)[: 1 + random.choice(3, p=CLASSES_A_PICTURE)]
    return [name for name in classes for _ in range(1 + random.choice(3, p=THINGS_A_CLASS))]


def choose_places(
    random: np.random.Generator, depths: np.ndarray, names: list[str]
) -> list[tuple[str, float, float]]:
    """Name, depth and column of those of the things for which a place was found.

    Args:
        depths: map units (W,) that are free in each column.
    """
    places: list[tuple[str, float, float]] = []
    for name in names:
        for _ in range(PLACES_TRIED):
            column = random.uniform(0.08, 0.92) * WIDTH
            farthest = min(KINDS[name].reach, depths[int(column)] - MARGIN)
            if farthest <= NEAREST:
                continue
            depth = float(np.exp(random.uniform(*np.log([NEAREST, farthest]))))
            if all(distance(depth, column, *other) >= APART for _, *other in places):
                places.append((name, depth, column))
                break
    return places


def distance(depth: float, column: float, other_depth: float, other_column: float) -> float:
    """Map units on the ground between two places in view."""
    right, other_right = (
        d * (c - WIDTH / 2) / FOCAL for d, c in ((depth, column), (other_depth, other_column))
    )
    return math.hypot(depth - other_depth, right - other_right)


def is_visible(thing: Thing) -> bool:
    x1, y1, x2, y2 = thing.box
    area = (x2 - x1) * (y2 - y1)
    return (
        MIN_AREA <= area <= MAX_SHARE * WIDTH * HEIGHT
        and thing.pixels >= MIN_FILL * area
        and thing.brightness >= MIN_BRIGHTNESS
    )
