"""Draws the picture at the top of README.md: training images with their tags, new images with detected boxes.

    python docs/make/tags_to_boxes.py RUN --train ID ID ID ID --test ID ID ID ID

RUN is the run folder of a trained detector. The commands that made docs/images/tags_to_boxes.jpg are in
docs/doom.md.
"""

import argparse
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import detector
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.evaluation.pictures import class_color, draw_labeled
from detector.structures import Detections

OUTPUT = Path(__file__).parents[1] / "images/tags_to_boxes.jpg"
WIDTH, ENLARGED = 300, 400  # of an image on the sheet and of the one that boxes are drawn on, in pixels
TAGS, TITLE, GAP, MIDDLE = 26, 40, 10, 90  # heights of texts, and the distances between images and halves


def tagged(image: Image.Image, names: list[str]) -> Image.Image:
    """The image with its tags below it: all that training is given."""
    height = round(WIDTH * image.height / image.width)
    panel = Image.new("RGB", (WIDTH, height + TAGS), "white")
    panel.paste(image.resize((WIDTH, height), Image.Resampling.LANCZOS))
    text = ", ".join(name.replace("_", " ") for name in names)
    ImageDraw.Draw(panel).text((2, height + 4), text, fill="black", font=ImageFont.load_default(size=16))
    return panel


def detected(image: Image.Image, found: Detections) -> Image.Image:
    """The image with the detected boxes, drawn on an enlarged copy so that lines and labels are small."""
    scale = ENLARGED / image.width
    picture = image.resize((ENLARGED, round(image.height * scale)), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(picture)
    for row in range(len(found.boxes)):
        name = found.names[row].replace("_", " ")
        box = (found.boxes[row] * scale).tolist()
        draw_labeled(draw, box, name, class_color(int(found.labels[row])), picture.width)
    return picture.resize((WIDTH, round(WIDTH * image.height / image.width)), Image.Resampling.LANCZOS)


def half(title: str, panels: list[Image.Image]) -> Image.Image:
    """A title above a grid of two columns."""
    height = max(panel.height for panel in panels)
    rows = (len(panels) + 1) // 2
    sheet = Image.new("RGB", (2 * WIDTH + GAP, TITLE + rows * (height + GAP) - GAP), "white")
    ImageDraw.Draw(sheet).text((0, 6), title, fill="black", font=ImageFont.load_default(size=20))
    for i, panel in enumerate(panels):
        sheet.paste(panel, (i % 2 * (WIDTH + GAP), TITLE + i // 2 * (height + GAP)))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--train", nargs="+", required=True, help="ids of training images")
    parser.add_argument("--test", nargs="+", required=True, help="ids of test images")
    parser.add_argument("--score-threshold", type=float, default=0.3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    cfg = load_cfg(options.run / "config.yaml", [])

    train = build_dataset(cfg, cfg.datasets.train_split)
    left = []
    for image_id in options.train:
        index = train.image_ids.index(image_id)
        names = [train.class_names[c] for c in train.labels(index).nonzero()[:, 0].tolist()]
        left.append(tagged(Image.fromarray(train.read_image(index).permute(1, 2, 0).numpy()), names))

    test = build_dataset(cfg, cfg.datasets.test_split)
    predictor = detector.load(options.run, score_threshold=options.score_threshold)
    right = []
    for image_id in options.test:
        image = Image.fromarray(test.read_image(test.image_ids.index(image_id)).permute(1, 2, 0).numpy())
        right.append(detected(image, predictor(image)))

    halves = [half("Input: images with tags", left), half("Output: boxes in new images", right)]
    height = max(picture.height for picture in halves)
    sheet = Image.new("RGB", (2 * halves[0].width + MIDDLE, height), "white")
    sheet.paste(halves[0], (0, 0))
    sheet.paste(halves[1], (halves[0].width + MIDDLE, 0))
    draw, x, y = ImageDraw.Draw(sheet), halves[0].width + MIDDLE // 2, height // 2
    draw.line((x - 28, y, x + 10, y), fill="black", width=6)
    draw.polygon([(x + 8, y - 14), (x + 30, y), (x + 8, y + 14)], fill="black")
    sheet.save(options.output, "jpeg", quality=80, optimize=True)


if __name__ == "__main__":
    main()
