"""Outlines of the parts of Toybox's objects: polygons (P, 2) of (x, y), y downwards."""

import numpy as np

from detector.data.toybox.paint import Paint

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
