"""One picture of Toybox: a background, distractors and objects, some over others, their boxes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from detector.data.labeled_box import LabeledBox
from detector.data.toybox.objects import MAKERS, distractor
from detector.data.toybox.paint import Part, blend, pattern, random_background

SUPERSAMPLING = 3  # drawn this many times larger, then averaged: smooth edges
OBJECT_SIDE = (28, 108)  # longest side in pixels, log-uniform
DISTRACTOR_SIDE = (10, 45)
MAX_DISTRACTORS = 4
CLASSES_AN_IMAGE = (0.45, 0.38, 0.17)  # probabilities of 1, 2, 3 classes
MAX_OBJECTS = 4
# No sprite is put where it would leave less than MIN_VISIBLE of itself or of another object to see; only a
# share OVERLAPPING of them may hide anything, or be cut by the edge of the picture, at all.
MIN_VISIBLE = 0.4
OVERLAPPING = 0.4
ATTEMPTS = 20  # to find such a place
DIFFICULT_BELOW = 0.5  # visible share under which an object is flagged difficult
TRUNCATED_BELOW = 0.95
GRAIN = 4.0  # standard deviation of the pixel noise, of 255
OUTLINE = (35, 30, 40)


@dataclass(frozen=True)
class Sprite:
    """A drawn object, supersampled: `colors` RGB, `mask` L (255 inside), both as large as the object."""

    colors: Image.Image
    mask: Image.Image
    area: int  # pixels inside


def render(rng: np.random.Generator, parts: list[Part], side: float) -> Sprite:
    """Draws the parts, flipped, squeezed and turned at random; the longest side has `side` pixels."""
    angle = rng.normal(0, 0.12)
    flip = rng.choice([-1.0, 1.0])
    squeeze = np.exp(rng.uniform(-0.18, 0.18))
    warp = np.array(
        [
            [flip * squeeze * np.cos(angle), np.sin(angle)],
            [-flip * squeeze * np.sin(angle), np.cos(angle)],
        ]
    )
    outlines = [points @ warp for points, _ in parts]
    everything = np.concatenate(outlines)
    low, high = everything.min(axis=0), everything.max(axis=0)
    scale = (side - 1) / (high - low).max()
    width, height = np.ceil((high - low) * scale).astype(int) + 1
    colors = Image.new("RGB", (width, height))
    mask = Image.new("L", (width, height))
    for outline, (_, paint) in zip(outlines, parts, strict=True):
        points = (outline - low) * scale
        corners = [tuple(point) for point in points.tolist()]
        ImageDraw.Draw(mask).polygon(corners, fill=255)
        if paint.texture == "plain":
            ImageDraw.Draw(colors).polygon(corners, fill=paint.color, outline=OUTLINE, width=2)
            continue
        x1, y1 = np.floor(points.min(axis=0)).astype(int)
        x2, y2 = np.ceil(points.max(axis=0)).astype(int) + 1
        amount = pattern(rng, paint.texture, y2 - y1, x2 - x1, max(4.0, paint.period * side), paint.angle)
        stencil = Image.new("L", (x2 - x1, y2 - y1))
        ImageDraw.Draw(stencil).polygon([(x - x1, y - y1) for x, y in corners], fill=255)
        colors.paste(blend(amount, paint.color, paint.second), (x1, y1), stencil)
        ImageDraw.Draw(colors).polygon(corners, outline=OUTLINE, width=2)
    return Sprite(colors, mask, mask.histogram()[255])


class Canvas:
    """A picture being composed; `owners` (L) says which object each pixel shows, 0 for none."""

    def __init__(self, rng: np.random.Generator, height: int, width: int):
        self.rng = rng
        size = (width * SUPERSAMPLING, height * SUPERSAMPLING)
        self.picture = Image.fromarray(random_background(rng, height, width)).resize(
            size, Image.Resampling.NEAREST
        )
        self.owners = Image.new("L", size)
        self.areas: list[int] = []  # of the objects, as if nothing hid them

    def visible(self, owners: Image.Image) -> np.ndarray:
        """The visible share (objects,) of every object under an owner map."""
        return np.array(owners.histogram()[1 : len(self.areas) + 1]) / np.array(self.areas, float)

    def place(self, sprite: Sprite, is_object: bool) -> bool:
        """Puts the sprite where enough of every object stays in view; False when no such place was found."""
        width, height = self.picture.size
        shares = self.visible(self.owners)
        if is_object:
            self.areas.append(sprite.area)
            shares = np.append(shares, 1.0)
        least = np.maximum(MIN_VISIBLE, 0 if self.rng.random() < OVERLAPPING else 0.95 * shares)
        for _ in range(ATTEMPTS):
            # The jitter lets an edge of the picture cut a little off now and then.
            reach_x, reach_y = width - sprite.mask.width, height - sprite.mask.height
            x = round(reach_x * self.rng.uniform(0, 1) + self.rng.normal(0, 0.06) * sprite.mask.width)
            y = round(reach_y * self.rng.uniform(0, 1) + self.rng.normal(0, 0.06) * sprite.mask.height)
            owners = self.owners.copy()
            owners.paste(len(self.areas) if is_object else 0, (x, y), sprite.mask)
            if np.all(self.visible(owners) >= least):
                self.owners = owners
                self.picture.paste(sprite.colors, (x, y), sprite.mask)
                return True
        if is_object:
            self.areas.pop()
        return False


def draw_scene(
    rng: np.random.Generator, classes: Sequence[str] = tuple(MAKERS)
) -> tuple[np.ndarray, list[LabeledBox]]:
    """A picture (H, W, 3) uint8 RGB near 200 x 160 pixels, landscape or portrait, and its objects.

    Args:
        classes: of at least three, those that it may show.
    """
    long, short = int(rng.integers(184, 217)), int(rng.integers(144, 177))
    height, width = (long, short) if rng.random() < 0.3 else (short, long)
    canvas = Canvas(rng, height, width)

    def scatter(count: int) -> None:
        for _ in range(count):
            canvas.place(
                render(rng, distractor(rng), SUPERSAMPLING * log_uniform(rng, DISTRACTOR_SIDE)), False
            )

    scatter(int(rng.integers(1, MAX_DISTRACTORS + 1)))
    kinds = rng.choice(list(classes), size=1 + rng.choice(3, p=CLASSES_AN_IMAGE), replace=False)
    extra = rng.choice(kinds, size=rng.integers(0, MAX_OBJECTS - len(kinds) + 1))
    names = []
    for name in rng.permutation(np.concatenate([kinds, extra])):
        sprite = render(rng, MAKERS[name](rng), SUPERSAMPLING * log_uniform(rng, OBJECT_SIDE))
        if canvas.place(sprite, True):
            names.append(str(name))
    scatter(int(rng.random() < 0.4))

    picture = np.asarray(canvas.picture.reduce(SUPERSAMPLING)).astype(np.float32)
    picture += rng.standard_normal(picture.shape, dtype=np.float32) * GRAIN
    return picture.clip(0, 255).astype(np.uint8), annotate(canvas, names)


def log_uniform(rng: np.random.Generator, limits: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(limits))))


def annotate(canvas: Canvas, names: list[str]) -> list[LabeledBox]:
    """The box and the flags of each object of a finished canvas, from its owner map."""
    owners = np.asarray(canvas.owners)
    objects = []
    for number, (name, share) in enumerate(zip(names, canvas.visible(canvas.owners), strict=True), start=1):
        rows, columns = (np.flatnonzero((owners == number).any(axis=axis)) for axis in (1, 0))
        edges = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / SUPERSAMPLING
        x1, y1, x2, y2 = (int(edge) for edge in np.rint(edges))
        flags = {"truncated": bool(share < TRUNCATED_BELOW), "difficult": bool(share < DIFFICULT_BELOW)}
        objects.append(LabeledBox(name, (x1, y1, x2, y2), **flags))
    return objects
