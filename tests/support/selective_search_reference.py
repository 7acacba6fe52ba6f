"""Selective search in plain Python, as the docstring of detector.layers.selective_search states it."""

import math

import numpy as np

UNIT, STEEPEST = 4096, 63


def search(
    rgb: np.ndarray, strategies: list[tuple[str, int, tuple[str, ...]]], min_size: int, seed: int
) -> list[tuple[int, ...]]:
    """All boxes of an image (H, W, 3) uint8, best first."""
    order = ("rgb", "hsv", "lab", "opponent")
    ranked = []
    for i, (space, k, measures) in enumerate(sorted(strategies, key=lambda s: (order.index(s[0]), s[1]))):
        image = np.array([[convert(space, *map(int, pixel)) for pixel in row] for row in rgb])  # (H, W, 3)
        smoothed = smooth(image)
        labels, neighbors = segment(smoothed, k, min_size)
        regions = [describe(image, smoothed, labels == r) for r in range(labels.max() + 1)]
        group(regions, neighbors, measures, rgb.shape[0] * rgb.shape[1])
        for r, region in enumerate(regions):
            ranked.append(((len(regions) - r) * (random_bits(seed, i, r) >> 32), region["box"]))
    return list(dict.fromkeys(box for _, box in sorted(ranked, key=lambda pair: pair[0])))


def truncated(a: int, b: int) -> int:
    """Division that rounds towards zero, as in C."""
    return -(-a // b) if a < 0 else a // b


def convert(space: str, r: int, g: int, b: int) -> tuple[int, int, int]:
    if space == "rgb":
        return r, g, b
    if space == "opponent":
        return (r + g + b) // 3, (r - g + 255) // 2, (r + g - 2 * b + 510) // 4
    if space == "hsv":
        value, chroma = max(r, g, b), max(r, g, b) - min(r, g, b)
        if chroma == 0:
            return 0, 0, value
        if value == r:
            hue = truncated(43 * (g - b), chroma)
        elif value == g:
            hue = 85 + truncated(43 * (b - r), chroma)
        else:
            hue = 171 + truncated(43 * (r - g), chroma)
        return hue % 256, chroma * 255 // value, value
    linear = [
        round_half_up(4096 * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4))
        for c in (r / 255, g / 255, b / 255)
    ]
    matrix = ((1777, 1541, 778), (871, 2929, 296), (73, 448, 3575))
    x, y, z = (
        cube_root((sum(w * v for w, v in zip(row, linear, strict=True)) + 2048) >> 12) for row in matrix
    )
    lightness = (truncated(255 * (116 * y - 16 * 65536), 100) + 32768) >> 16
    green_red = 128 + ((500 * (x - y) + 32768) >> 16)
    blue_yellow = 128 + ((200 * (y - z) + 32768) >> 16)
    return tuple(min(max(value, 0), 255) for value in (lightness, green_red, blue_yellow))


def cube_root(value: int) -> int:
    t = value / 4096
    return round_half_up(65536 * (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116))


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)


def smooth(image: np.ndarray) -> np.ndarray:
    """(H, W, 3) in 64ths of a gray level."""
    kernel = np.array([6, 58, 128, 58, 6])
    height, width, _ = image.shape
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="edge")
    rows = sum(kernel[d] * padded[:, d : d + width] for d in range(5))
    return (sum(kernel[d] * rows[d : d + height] for d in range(5)) + 512) >> 10


def segment(smoothed: np.ndarray, k: int, min_size: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The region of each pixel (H, W), and the pairs of regions that touch."""
    height, width, _ = smoothed.shape
    edges = []
    for direction, (right, down) in enumerate(((1, 0), (0, 1), (1, 1), (-1, 1))):
        for y in range(height - down):
            for x in range(max(0, -right), width - max(0, right)):
                difference = smoothed[y, x] - smoothed[y + down, x + right]
                weight = int(2 * np.sqrt(np.float32((difference**2).sum())))
                edges.append((weight, direction, y * width + x, (y + down) * width + x + right))
    edges.sort()
    members = {i: {i} for i in range(height * width)}  # by root
    roots = list(range(height * width))
    scale = np.float32(128 * k)
    limits = [scale] * (height * width)

    def merge(a: int, b: int) -> int:
        if len(members[a]) < len(members[b]):
            a, b = b, a
        for i in members[b]:
            roots[i] = a
        members[a] |= members.pop(b)
        return a

    for weight, _, first, second in edges:
        a, b = roots[first], roots[second]
        if a != b and weight <= min(limits[a], limits[b]):
            root = merge(a, b)
            limits[root] = np.float32(weight) + scale / np.float32(len(members[root]))
    for _, _, first, second in edges:
        a, b = roots[first], roots[second]
        if a != b and min(len(members[a]), len(members[b])) < min_size:
            merge(a, b)
    numbers = {root: number for number, root in enumerate(dict.fromkeys(roots))}
    labels = np.array([numbers[root] for root in roots])
    pairs = {tuple(sorted((labels[a], labels[b]))) for _, _, a, b in edges if labels[a] != labels[b]}
    return labels.reshape(height, width), sorted(pairs)


def describe(image: np.ndarray, smoothed: np.ndarray, mask: np.ndarray) -> dict:
    """Box, size and histograms of a region."""
    ys, xs = np.nonzero(mask)
    color = np.zeros((3, 25), int)
    texture = np.zeros((3, 9), int)
    height, width = mask.shape
    for y, x in zip(ys, xs, strict=True):
        dx = smoothed[y, min(x + 1, width - 1)] - smoothed[y, max(x - 1, 0)]
        dy = smoothed[min(y + 1, height - 1), x] - smoothed[max(y - 1, 0), x]
        for p in range(3):
            color[p, image[y, x, p] * 25 >> 8] += 1
            along, across = int(dx[p]), int(dy[p])
            diagonals = truncated((along + across) * 181, 256), truncated((along - across) * 181, 256)
            for d, slope in enumerate((along, across, *diagonals)):
                slope = min(max(truncated(slope, 64), -STEEPEST), STEEPEST)
                texture[p, 2 * d + (slope < 0)] += abs(slope)
    texture[:, 8] = 4 * STEEPEST * len(ys) - texture[:, :8].sum(axis=1)
    box = (int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1)
    return {"box": box, "size": len(ys), "color": color, "texture": texture}


def normalize(region: dict, name: str) -> np.ndarray:
    """A histogram as integers, of which each plane sums to 4096 or, rounded down, a little less."""
    whole = region["size"] if name == "color" else 4 * STEEPEST * np.float32(region["size"])
    scale = np.float32(UNIT) / np.float32(whole)
    return (region[name].astype(np.float32) * scale).astype(int)


def similarity(a: dict, b: dict, measures: tuple[str, ...], area: int) -> float:
    box, size = hull(a, b), a["size"] + b["size"]
    parts = {
        name: np.minimum(normalize(a, name), normalize(b, name)).sum() / (3.0 * UNIT)
        for name in ("color", "texture")
    }
    parts["size"] = 1 - size / area
    parts["fill"] = 1 - ((box[2] - box[0]) * (box[3] - box[1]) - size) / area
    return sum(float(part) for name, part in parts.items() if name in measures)


def hull(a: dict, b: dict) -> tuple[int, int, int, int]:
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a["box"], b["box"]
    return min(ax1, bx1), min(ay1, by1), max(ax2, bx2), max(ay2, by2)


def group(
    regions: list[dict], neighbors: list[tuple[int, int]], measures: tuple[str, ...], area: int
) -> None:
    """Appends the merged regions."""
    touching = {pair: similarity(regions[pair[0]], regions[pair[1]], measures, area) for pair in neighbors}
    while touching:
        a, b = max(touching, key=lambda pair: (touching[pair], -pair[0], -pair[1]))
        new = len(regions)
        merged = {
            "box": hull(regions[a], regions[b]),
            "size": regions[a]["size"] + regions[b]["size"],
            "color": regions[a]["color"] + regions[b]["color"],
            "texture": regions[a]["texture"] + regions[b]["texture"],
        }
        regions.append(merged)
        others = {i for pair in touching if a in pair or b in pair for i in pair} - {a, b}
        touching = {pair: value for pair, value in touching.items() if a not in pair and b not in pair}
        for other in others:
            touching[other, new] = similarity(regions[other], merged, measures, area)


def random_bits(seed: int, strategy: int, region: int) -> int:
    """splitmix64 of Sebastiano Vigna."""
    mask = 2**64 - 1
    z = (seed * 0x9E3779B97F4A7C15 + (strategy << 32) + region + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31
