"""Colors, textures and outlines of Toybox. An outline is a polygon (P, 2) of (x, y), y downwards."""

import colorsys
from dataclasses import dataclass

import numpy as np
from PIL import Image

Color = tuple[int, ...]  # red, green, blue, each 0..255

TEXTURES = ("plain", "stripes", "dots", "checks", "noise")


@dataclass(frozen=True)
class Paint:
    """A texture between two colors; `period` and `angle` (radians) are unused by the plain one."""

    texture: str
    color: Color
    second: Color
    period: float  # fraction of the object's longest side
    angle: float


def plain(*color: int) -> Paint:
    """The paint of one color: red, green, blue."""
    return Paint("plain", color, color, 1.0, 0.0)


def random_color(
    rng: np.random.Generator, saturation: tuple[float, float], value: tuple[float, float]
) -> Color:
    """A color of any hue, its saturation and value drawn from ranges within [0, 1]."""
    red, green, blue = colorsys.hsv_to_rgb(rng.random(), rng.uniform(*saturation), rng.uniform(*value))
    return round(255 * red), round(255 * green), round(255 * blue)


def random_paint(rng: np.random.Generator) -> Paint:
    """A vivid paint, textured more often than not."""
    color = random_color(rng, (0.45, 1.0), (0.45, 1.0))
    shade = rng.choice([0.55, 0.65, 1.4, 1.6])
    second = tuple(min(255, round(shade * channel + (30 if shade > 1 else 0))) for channel in color)
    return Paint(str(rng.choice(TEXTURES)), color, second, rng.uniform(0.09, 0.2), rng.uniform(0, np.pi))


def noise(rng: np.random.Generator, height: int, width: int, cell: float) -> np.ndarray:
    """Smooth noise (height, width) in [0, 1] whose bumps are about `cell` pixels across."""
    coarse = rng.random((max(2, round(height / cell) + 1), max(2, round(width / cell) + 1)), dtype=np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).clip(0, 1)


def pattern(
    rng: np.random.Generator, texture: str, height: int, width: int, period: float, angle: float
) -> np.ndarray:
    """The share of the second color at each pixel: (height, width) float32 in [0, 1]; `period` in pixels."""
    if texture == "plain":
        return np.zeros((height, width), np.float32)
    if texture == "noise":
        return noise(rng, height, width, period / 2)
    y, x = np.mgrid[:height, :width].astype(np.float32) * np.float32(2 * np.pi / period)
    u = np.sin(x * np.float32(np.cos(angle)) + y * np.float32(np.sin(angle)))
    if texture == "stripes":
        return (u > 0).astype(np.float32)
    v = np.sin(y * np.float32(np.cos(angle)) - x * np.float32(np.sin(angle)))
    if texture == "checks":
        return (u * v > 0).astype(np.float32)
    return (u * v > 0.35).astype(np.float32)  # dots


def blend(amount: np.ndarray, color: Color, second: Color) -> Image.Image:
    """The picture (height, width) that goes from `color` (amount 0) to `second` (amount 1)."""
    mask = Image.fromarray((255 * amount).astype(np.uint8))
    return Image.composite(Image.new("RGB", mask.size, second), Image.new("RGB", mask.size, color), mask)


def random_background(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A muted backdrop (height, width, 3) uint8: a gradient under soft noise and a faint texture."""
    value = rng.uniform(0.35, 0.9)
    first, second = (random_color(rng, (0.05, 0.35), (value - 0.12, value + 0.1)) for _ in range(2))
    gradient = np.asarray(blend(noise(rng, height, width, max(height, width)), first, second), np.float32)
    grain = noise(rng, height, width, rng.uniform(4, 16)) - 0.5
    texture = str(rng.choice(TEXTURES))
    fabric = pattern(rng, texture, height, width, rng.uniform(8, 30), rng.uniform(0, np.pi)) - 0.5
    return (gradient + (36 * grain + 16 * fabric)[..., None]).clip(0, 255).astype(np.uint8)


Part = tuple[np.ndarray, Paint]


def polygon(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, float)


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return polygon((left, top), (right, top), (right, bottom), (left, bottom))


def turned(points: np.ndarray, angle: float, x: float = 0.0, y: float = 0.0) -> np.ndarray:
    """`points` turned about the origin by `angle` (radians, clockwise on screen), then moved by (x, y)."""
    cos, sin = np.cos(angle), np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]]) + (x, y)


def ellipse(x: float, y: float, radius_x: float, radius_y: float, angle: float = 0.0) -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    return turned(np.stack([radius_x * np.cos(turn), radius_y * np.sin(turn)], axis=1), angle, x, y)


def limb(start: np.ndarray, end: np.ndarray, width: float) -> np.ndarray:
    """A bar from start to end with round ends."""
    along = end - start
    angle = np.arctan2(along[1], along[0])
    turn = np.linspace(np.pi / 2, 3 * np.pi / 2, 8)
    cap = np.stack([np.cos(turn), np.sin(turn)], axis=1) * width / 2
    straight = np.concatenate([cap, -cap + (np.hypot(*along), 0)])
    return turned(straight, angle, *start)


def jointed(
    start: np.ndarray, angles: tuple[float, ...], length: float, width: float, paint: Paint
) -> list[Part]:
    """A chain of bars of equal length; angle 0 hangs straight down."""
    parts = []
    for angle in angles:
        end = start + length * np.array([np.sin(angle), np.cos(angle)])
        parts.append((limb(start, end, width), paint))
        start = end
    return parts
