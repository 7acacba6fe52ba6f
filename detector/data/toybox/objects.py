"""The objects of Toybox: each class is a function that draws one of its kind as painted parts.

Every class has one small telling part of constant look (a face, a wheel, a door, the heart of a blossom), by
which the class can be told, and a body that varies in shape, pose, color and texture, without which the box
is wrong: a detector trained on image labels alone is tempted to box the telling part.

Parts are polygons (P, 2) of (x, y), y downwards, in any unit: the scene scales the whole. Later parts cover
earlier ones.
"""

from collections.abc import Callable

import numpy as np

from detector.data.toybox.paint import (
    Part,
    box,
    ellipse,
    jointed,
    limb,
    plain,
    polygon,
    random_paint,
    turned,
)

Rng = np.random.Generator

BLACK, WHITE = plain(25, 25, 30), plain(245, 245, 240)


def bird(rng: Rng) -> list[Part]:
    """Telling part: a red head with a yellow beak."""
    body, wing = random_paint(rng), random_paint(rng)
    length, height, tilt = rng.uniform(0.5, 0.75), rng.uniform(0.26, 0.4), rng.uniform(-0.5, 0.2)
    shoulder = turned(np.array([[length * 0.75, -height * 0.3]]), tilt)[0]
    x, y = shoulder[0] + rng.uniform(0.05, 0.25), shoulder[1] - rng.uniform(0.15, 0.5)
    tail = rng.uniform(0.35, 0.8)
    fan = rng.uniform(0.08, 0.25)
    rump = polygon(
        (-length * 0.8, -0.08), (-length - tail, -fan), (-length - tail, fan), (-length * 0.8, 0.12)
    )
    legs = [
        jointed(np.array([x, height * 0.7]), (rng.uniform(-0.3, 0.3),), 0.45, 0.05, plain(225, 140, 30))
        for x in (-0.08, 0.14)
    ]
    span = rng.uniform(0.45, 0.9)
    feathers = polygon(
        (0.28, 0), (0.1, -0.14), (-0.5 * span, -0.1), (-span, 0.06), (-0.4 * span, 0.18), (0.1, 0.14)
    )
    return [
        *(part for leg in legs for part in leg),
        (turned(rump, tilt), wing),
        (limb(shoulder, np.array([x, y]), 0.22), body),
        (ellipse(0, 0, length, height, tilt), body),
        (turned(feathers, tilt + rng.uniform(-0.3, 1.3), 0.1, -height * 0.2), wing),
        (polygon((x + 0.1, y - 0.1), (x + 0.42, y + 0.04), (x + 0.1, y + 0.1)), plain(250, 200, 20)),
        (ellipse(x, y, 0.19, 0.19), plain(210, 30, 40)),
        (ellipse(x + 0.06, y - 0.04, 0.05, 0.05), BLACK),
    ]


def car(rng: Rng) -> list[Part]:
    """Telling part: a wheel, black with a bright hub."""
    body = random_paint(rng)
    roof = body if rng.random() < 0.6 else random_paint(rng)
    height, cabin = rng.uniform(0.22, 0.42), rng.uniform(0.2, 0.36)
    back, front = rng.uniform(-1.0, -0.55), rng.uniform(0.1, 0.65)
    slope_back, slope_front = rng.uniform(0, 0.25), rng.uniform(0.1, 0.35)
    top = -height - cabin
    glass = polygon(
        (back + 0.08, -height),
        (back + slope_back + 0.06, top + 0.07),
        (front - slope_front - 0.04, top + 0.07),
        (front - 0.1, -height),
    )
    wheels = [
        part
        for x in (-rng.uniform(0.5, 0.68), rng.uniform(0.5, 0.68))
        for part in (
            (ellipse(x, 0, 0.2, 0.2), BLACK),
            (ellipse(x, 0, 0.11, 0.11), plain(235, 235, 240)),
            (ellipse(x, 0, 0.045, 0.045), plain(220, 40, 40)),
        )
    ]
    return [
        (
            polygon((back, -height), (back + slope_back, top), (front - slope_front, top), (front, -height)),
            roof,
        ),
        (glass, plain(190, 225, 240)),
        (
            polygon((-1, 0), (-1, -height), (0.85, -height), (1, -height * rng.uniform(0.4, 0.9)), (1, 0)),
            body,
        ),
        *wheels,
    ]


def fish(rng: Rng) -> list[Part]:
    """Telling part: the face, a yellow cap with a big white eye."""
    body, fins = random_paint(rng), random_paint(rng)
    height, bend = rng.uniform(0.28, 0.62), rng.uniform(-0.3, 0.3)
    tail, spread = rng.uniform(0.35, 0.6), rng.uniform(0.25, 0.5)
    fork = polygon(
        (0.15, -0.06), (-tail, -spread), (-tail * rng.uniform(0.4, 0.9), 0), (-tail, spread), (0.15, 0.06)
    )
    fin = polygon(
        (-0.45, -height * 0.6),
        (rng.uniform(-0.6, -0.2), -height - rng.uniform(0.1, 0.35)),
        (0.3, -height * 0.8),
        (0.3, -height * 0.5),
    )
    keel = polygon((-0.2, height * 0.7), (-0.4, height + rng.uniform(0.05, 0.3)), (0.2, height * 0.75))
    outline = ellipse(0, 0, 0.9, height)
    cap = np.concatenate(
        [outline[outline[:, 0] > 0.42][np.argsort(outline[outline[:, 0] > 0.42][:, 1])], [[0.3, 0]]]
    )
    return [
        (turned(fork, bend, -0.85), fins),
        (fin, fins),
        (keel, fins),
        (outline, body),
        (cap, plain(250, 205, 60)),
        (ellipse(0.6, -0.08 * height, 0.13, 0.13), WHITE),
        (ellipse(0.62, -0.08 * height, 0.065, 0.065), BLACK),
    ]


def flower(rng: Rng) -> list[Part]:
    """Telling part: the heart of the blossom, dark with a bright ring."""
    pot, petal = random_paint(rng), random_paint(rng)
    green = plain(50, int(rng.uniform(110, 170)), 60)
    width, taper, depth = rng.uniform(0.3, 0.55), rng.uniform(0.5, 0.9), rng.uniform(0.4, 0.8)
    height, lean = rng.uniform(0.5, 1.1), rng.uniform(-0.35, 0.35)
    root, knee = np.zeros(2), np.array([lean * 0.3, -height * 0.5])
    blossom = np.array([lean, -height])
    count, reach = int(rng.integers(5, 10)), rng.uniform(0.26, 0.42)
    turn = rng.uniform(0, np.pi)
    petals = [
        (
            turned(ellipse(reach * 0.8, 0, reach * 0.6, 1.1 / count), turn + 2 * np.pi * i / count, *blossom),
            petal,
        )
        for i in range(count)
    ]
    leaves = [
        (turned(ellipse(0.22, 0, 0.24, 0.09), angle, knee[0], knee[1] + 0.1), green)
        for angle in (rng.uniform(-0.9, 0.3), np.pi + rng.uniform(-0.3, 0.9))
    ]
    return [
        (limb(root, knee, 0.08), green),
        (limb(knee, blossom, 0.08), green),
        *leaves,
        *petals,
        (ellipse(lean, -height, 0.19, 0.19), plain(250, 225, 60)),
        (ellipse(lean, -height, 0.12, 0.12), plain(95, 50, 30)),
        (polygon((-width, 0), (width, 0), (width * taper, depth), (-width * taper, depth)), pot),
        (box(-width - 0.05, -0.03, width + 0.05, 0.12), pot),
    ]


def house(rng: Rng) -> list[Part]:
    """Telling part: a red door in a white frame."""
    wall, roof = random_paint(rng), random_paint(rng)
    width, height = rng.uniform(0.6, 1.0), rng.uniform(0.6, 1.3)
    eaves, ridge, rise = rng.uniform(0.02, 0.2), rng.uniform(0, 0.7), rng.uniform(0.3, 0.75)
    door = rng.uniform(-width + 0.25, width - 0.25)
    chimney = rng.uniform(-0.6, 0.6) * width
    parts = [
        (box(chimney - 0.08, -height - rise * 0.9, chimney + 0.1, -height - 0.1), plain(120, 70, 60)),
        (box(-width, -height, width, 0), wall),
        (
            polygon(
                (-width - eaves, -height),
                (-width * ridge, -height - rise),
                (width * ridge, -height - rise),
                (width + eaves, -height),
            ),
            roof,
        ),
        (box(door - 0.2, -0.52, door + 0.2, 0), WHITE),
        (box(door - 0.14, -0.46, door + 0.14, 0), plain(200, 35, 45)),
        (ellipse(door + 0.08, -0.2, 0.035, 0.035), plain(250, 215, 70)),
    ]
    storey = -0.6 - 0.32 if height > 1.0 else -0.5
    for x in np.arange(-width + 0.12, width - 0.3, 0.42):
        if height > 1.0 or abs(x + 0.12 - door) > 0.38:
            parts.append((box(x, storey, x + 0.24, storey + 0.24), plain(185, 220, 240)))
    return parts


def robot(rng: Rng) -> list[Part]:
    """Telling part: the head, a pale case with a dark screen and two cyan eyes."""
    torso, arms, legs = random_paint(rng), random_paint(rng), random_paint(rng)
    width, height, hip = rng.uniform(0.22, 0.4), rng.uniform(0.45, 0.8), rng.uniform(0.15, 0.35)
    length, thick = rng.uniform(0.25, 0.38), rng.uniform(0.12, 0.19)
    parts = []
    for side in (-1, 1):
        stride = side * rng.uniform(0, 0.6)
        knee = stride + rng.uniform(-0.3, 0.3)
        parts += jointed(np.array([side * hip * 0.6, height]), (stride, knee), length, thick, legs)
    for side in (-1, 1):
        raised = side * rng.uniform(0.1, 2.6)
        elbow = raised + side * rng.uniform(-0.3, 1.2)
        parts += jointed(np.array([side * width * 0.9, 0.1]), (raised, elbow), length, thick * 0.85, arms)
    face = [
        (limb(np.array([0, -0.3]), np.array([0, -0.62]), 0.05), plain(90, 90, 100)),
        (ellipse(0, -0.62, 0.06, 0.06), plain(235, 60, 50)),
        (box(-0.24, -0.46, 0.24, -0.02), plain(215, 220, 225)),
        (box(-0.18, -0.38, 0.18, -0.12), BLACK),
        (ellipse(-0.08, -0.25, 0.05, 0.07), plain(40, 230, 240)),
        (ellipse(0.08, -0.25, 0.05, 0.07), plain(40, 230, 240)),
    ]
    nod = rng.uniform(-0.25, 0.25)
    chest = polygon((-width, 0), (width, 0), (hip, height + 0.05), (-hip, height + 0.05))
    return [*parts, (chest, torso), *((turned(points, nod), paint) for points, paint in face)]


MAKERS: dict[str, Callable[[Rng], list[Part]]] = {
    "bird": bird,
    "car": car,
    "fish": fish,
    "flower": flower,
    "house": house,
    "robot": robot,
}


def distractor(rng: Rng) -> list[Part]:
    """A thing of no class: a blob, a star, a ring, a bar or a stack of slabs, painted like the bodies."""
    paint, second = random_paint(rng), random_paint(rng)
    kind = rng.integers(5)
    if kind == 0:  # blob
        corners = int(rng.integers(5, 9))
        turn = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        return [(np.stack([np.cos(turn), np.sin(turn)], axis=1) * rng.uniform(0.5, 1.0, (corners, 1)), paint)]
    if kind == 1:  # star
        points = int(rng.integers(4, 8))
        turn = np.linspace(0, 2 * np.pi, 2 * points, endpoint=False)
        radius = np.where(np.arange(2 * points) % 2, rng.uniform(0.35, 0.6), 1.0)
        return [(np.stack([np.cos(turn), np.sin(turn)], axis=1) * radius[:, None], paint)]
    if kind == 2:  # ring
        return [(ellipse(0, 0, 1, rng.uniform(0.6, 1)), paint), (ellipse(0, 0, 0.5, 0.4), second)]
    if kind == 3:  # bar
        return [(limb(np.zeros(2), np.array([2.0, 0.0]), rng.uniform(0.2, 0.6)), paint)]
    return [(box(-1, 0.5 * i, rng.uniform(0.2, 1), 0.5 * i + 0.5), (paint, second)[i % 2]) for i in range(3)]
