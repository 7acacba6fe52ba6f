"""Make a file of ImageNet weights that states the preprocessing that they expect, for MODEL.WEIGHTS.

    python tools/convert_weights.py vgg16-397923af.pth datasets/vgg16.pth                  # torchvision's
    python tools/convert_weights.py vgg16_caffe.pth datasets/vgg16_caffe.pth --caffe-vgg16
    python tools/convert_weights.py model.pth datasets/model.pth --mean 0.5 0.5 0.5 --std 0.5 0.5 0.5

INPUT is the state dict of a classifier or a checkpoint with one, loaded with weights_only=True. Its
preprocessing is torchvision's by default. Caffe's VGG16 expects blue, green, red in 0 to 255 minus the mean
color: --caffe-vgg16 changes the first convolution so that OUTPUT expects torchvision's preprocessing.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    from detector.modeling.weights import (
        TORCHVISION,
        Preprocessing,
        convert_caffe_vgg16,
        convert_weights,
        load_tensors,
        save_weights,
    )
    from detector.utils.command_line import run_command
    from detector.utils.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Make a file of ImageNet weights that MODEL.WEIGHTS can name."
    )
    parser.add_argument("input", help="a .pth file: torchvision's, timm's or Caffe's, of a classifier")
    parser.add_argument("output", help="the file to write")
    parser.add_argument("--caffe-vgg16", action="store_true", help="the weights are those of Caffe's VGG16")
    for name, default in (("mean", TORCHVISION.mean), ("std", TORCHVISION.std)):
        parser.add_argument(
            f"--{name}",
            type=float,
            nargs=3,
            default=default,
            metavar=("RED", "GREEN", "BLUE"),
            help=f"of values in [0, 1]; default: torchvision's, {' '.join(map(str, default))}",
        )
    options = parser.parse_args(arguments)
    return run_command(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    if Path(options.output).exists():  # it may be the input
        raise FileExistsError(f"{options.output} exists: delete it to make it again, or name another file")
    if not all(map(math.isfinite, options.mean)) or not all(0 < value < math.inf for value in options.std):
        raise UserError(f"--mean {options.mean} must be finite, and --std {options.std} more than 0")
    content = load_tensors(options.input)
    if options.caffe_vgg16:
        weights = convert_caffe_vgg16(content)
    else:
        weights = convert_weights(content, Preprocessing(tuple(options.mean), tuple(options.std)))
    save_weights(options.output, weights)
    print(f"{options.output}: {len(weights.tensors)} tensors that expect {weights.preprocessing}")


if __name__ == "__main__":
    sys.exit(main())
