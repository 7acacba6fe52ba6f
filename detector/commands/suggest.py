"""The command `detector suggest`."""

from argparse import Namespace

from detector.commands.hints import export_of
from detector.labeling.suggest import suggest
from detector.utils.command_line import next_step
from detector.utils.errors import counted


def run(options: Namespace) -> None:
    found = suggest(**vars(options))
    print(f"{counted(len(found), 'image', 'images')} to box: {options.output}")
    corrected = export_of(options.output, options.formats or ["label-studio"])
    next_step("detector", "review-import", corrected, "--output", "reviewed.json")
