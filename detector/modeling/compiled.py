"""torch.compile of the parts of a detector where it pays: those of fixed structure and varying size."""

from collections.abc import Callable

import torch

from detector.modeling.weak_rcnn import WeakRCNN


def compile_model(model: WeakRCNN, backend: str | Callable = "inductor") -> None:
    """Compile the backbone and the fully connected layers, at their first call; names of weights stay.

    Sizes of images and numbers of proposals are symbols of the compiled code, so that a new size is no new
    code; what is compiled anew, once each, are training and testing, and one image and several (each number
    of them in a VGG16 that takes them one by one). The rest is left: our ops are compiled already, and the
    head divides proposals by counts, which only the host knows.
    """
    # For symbols torch.compile takes no size to be 1, and tells features of some sizes apart: bounded here.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 16)
    model.backbone.compile(dynamic=True, backend=backend)
    model.box_features.layers.compile(dynamic=True, backend=backend)
