"""Find boxes for images whose tags are known, for a person to correct in a labeling tool.

    detector label runs/mine --labels mine/train.jsonl --output boxes --format label-studio

Only the classes that an image is tagged with get boxes: each at least its best one, which is
flagged as doubtful if it does not score more than the threshold (docs/labeling.md).
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import add_model_option, command_parser, next_step, run_command

FORMATS = ("coco", "voc", "yolo", "label-studio", "cvat")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector label", __doc__)
    add = parser.add_argument
    add("weights", metavar="RUN", help="a run folder or a checkpoint")
    add("--labels", required=True, metavar="FILE", help="a table of images and tags, CSV or JSON lines")
    add("--images", metavar="DIR", help="what its files are relative to; default: its folder")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    names = f"{', '.join(FORMATS)}; may be repeated"
    add("--format", required=True, action="append", choices=FORMATS, metavar="NAME", help=names)
    add("--score-threshold", type=float, default=0.3, metavar="X", help="default: 0.3")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add_model_option(parser)
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.labeling import label
        from detector.utils.distributed import is_main

        found = label(
            options.weights,
            options.labels,
            options.images,
            device=options.device,
            score_threshold=options.score_threshold,
            output=options.output,
            formats=options.format,
            model=options.model,
        )
        if not is_main():
            return
        doubtful = sum(box.doubtful for image in found for box in image.boxes)
        boxes = sum(len(image.boxes) for image in found)
        print(f"{boxes} boxes in {len(found)} images, {doubtful} of them doubtful: {options.output}")
        next_step("detector", "review-import", "CORRECTED", "--output", "reviewed.json")

    return run_command(run)
