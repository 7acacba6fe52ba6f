"""Write a config for a folder of your own pictures.

    detector init pictures
    detector init pictures --labels labels.csv --output fruit.yaml

The labels are looked for in the folder: a table (CSV, JSON lines), annotations (COCO, VOC, YOLO,
Label Studio, CVAT; their classes only), or one folder for each class. Writes NAME.yaml and, in the
folder NAME beside it, tables of labels for training and testing, divided by scene where file names
tell.
"""

from collections.abc import Sequence
from pathlib import Path

from detector.utils.command_line import command_parser, next_step, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser("detector init", __doc__)
    parser.add_argument("pictures", type=Path, metavar="PICTURES", help="a folder")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="a file, or a folder of VOC or YOLO")
    parser.add_argument(
        "--output", type=Path, default=Path("mine.yaml"), metavar="FILE", help="default: mine.yaml"
    )
    options = parser.parse_args(arguments)

    def run() -> None:
        from detector.api.starting import run as init

        config = init(options.pictures, options.labels, options.output)
        next_step("detector", "propose", config)

    return run_command(run)
