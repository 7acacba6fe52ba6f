"""Mixed precision: float32, TF32, bfloat16 or float16."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from detector.engine.loss_log import NonFiniteLoss
from detector.utils.errors import UserError

# The gradient of no healthy step overflows at a smaller loss scale: below, the scaler would halve forever.
_LEAST_SCALE = 1.0


class Precision:
    """Autocast for the model, and the scaler of the loss that float16 needs.

    Weights, their gradients and the optimizer's state are float32 whatever the precision. So are the softmax
    over proposals, the clusters and the losses, which are outside of autocast: of 2,000 proposals a score is
    about 1/2000 and the image's score their sum, while bfloat16 has 8 bits; clusters rank proposals by
    scores, which would tie; and float16 ends at 6e-8, below which pcl_loss still has a gradient.

    Args:
        name: "float32"; "tf32", which rounds the factors of float32 products to 11 bits on a GPU; "bf16" or
            "fp16", autocast of the model to them.
        device: where the model runs.
    """

    def __init__(self, name: Literal["float32", "tf32", "bf16", "fp16"], device: torch.device) -> None:
        dtypes = {"float32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
        if name not in dtypes:
            raise UserError(f"precision is {name!r}, expected one of {', '.join(map(repr, dtypes))}")
        self.name, self.dtype, self.device = name, dtypes[name], device
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> AbstractContextManager:
        """The context in which to call the model, but not the criterion."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype is not None)

    def logged_norm(self, gradient_norm: Tensor) -> Tensor:
        """The norm to log: 0 for a step that the scaler skips, which is no error."""
        return gradient_norm.nan_to_num(0, 0, 0) if self.scaler.is_enabled() else gradient_norm

    def check(self, step: int, image_ids: Iterable[str]) -> None:
        """Raise NonFiniteLoss if no scale of the loss helps; the arguments are for its message.

        On a GPU this waits for the device.
        """
        scale = self.scaler.get_scale()
        if scale < _LEAST_SCALE:
            problem = f"the gradient overflows float16 at every scale of the loss, down to {scale}"
            raise NonFiniteLoss.at(step, problem, image_ids)


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TF32 for matrix products and convolutions; torch's default is convolutions only."""
    _set_tf32(["tf32" if allowed else "ieee"] * 3)


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """:func:`set_tf32` while the block runs; what the process had before is restored."""
    before = [backend.fp32_precision for backend in _tf32_backends()]
    set_tf32(allowed)
    try:
        yield
    finally:
        _set_tf32(before)


def _tf32_backends() -> tuple[Any, Any, Any]:
    """Where torch says whether matrix products, convolutions and recurrent layers use TF32."""
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn


def _set_tf32(precisions: Sequence[str]) -> None:
    """Set the fp32_precision of each backend, and torch's older setting, which torch.compile still reads.

    Reading the older one raises an error where the two differ, so it is not read here.
    """
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = (
        precision == "tf32" for precision in precisions[:2]
    )
    for backend, precision in zip(_tf32_backends(), precisions, strict=True):
        backend.fp32_precision = precision
