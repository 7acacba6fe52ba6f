"""Draw boxes in images whose tags are known, for a person to correct.

    detector label runs/demo --labels photos/train.csv --output boxes --format label-studio

Only tagged classes get boxes, each at least its best one, flagged doubtful where its score is low. An image
without tags gets no box. docs/labeling.md describes the files.
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import command_parser, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector label", __doc__)
    add = parser.add_argument
    add("weights", type=Path, metavar="RUN", help="a run folder or a checkpoint")
    add("--labels", required=True, type=Path, metavar="TABLE", help="images and tags, .csv or .jsonl")
    add("--images", type=Path, metavar="FOLDER", help="of the images (default: that of the table)")
    add("--output", required=True, type=Path, metavar="FOLDER", help="to write to")
    add("--format", action="append", metavar="NAME", help="coco, voc, yolo, label-studio or cvat; repeatable")
    add("--score-threshold", type=float, default=0.3, help="a box below is doubtful (default: 0.3)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.labeling import label

        found = label(
            options.weights,
            options.labels,
            options.images,
            device=options.device,
            score_threshold=options.score_threshold,
            output=options.output,
            formats=options.format or ["label-studio"],
        )
        boxes = [box for image in found for box in image.boxes]
        doubtful = sum(box.doubtful for box in boxes)
        print(f"{len(boxes)} boxes, {doubtful} of them doubtful, in {len(found)} images: {options.output}")
        print("next: correct them in a labeling tool, then detector review-import")

    return run_command(run)
