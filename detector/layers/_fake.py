"""Registration of fake (meta) implementations, which infer output shapes and dtypes without running an op."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., Any]


def register_fake(name: str, *, on_cpu: frozenset[str] = frozenset()) -> Callable[[Formula], Formula]:
    """torch.library.register_fake with a check that all tensors are on one device.

    torch calls the fake implementation as soon as one tensor is a meta tensor. If the others were on a real
    device, the result would be uninitialized memory there. The kernels themselves check all other devices.

    Args:
        name: name of an op in the library `detector`.
        on_cpu: arguments that may be on the CPU while the others are on another device.
    """
    names = [argument.name for argument in getattr(torch.ops.detector, name).default._schema.arguments]

    def register(formula: Formula) -> Formula:
        @functools.wraps(formula)
        def checked(*arguments: Any) -> Any:
            _check_devices(name, dict(zip(names, arguments, strict=False)), on_cpu)
            return formula(*arguments)

        torch.library.register_fake(f"detector::{name}", checked)
        return formula

    return register


def has_values(tensor: Tensor) -> bool:
    """Whether Python can check values at no cost: on the CPU, and neither traced, fake nor transformed."""
    return not (
        torch.compiler.is_compiling()
        or tensor.device.type != "cpu"
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _check_devices(name: str, arguments: dict[str, Any], on_cpu: frozenset[str]) -> None:
    tensors = {key: tensor for key, tensor in arguments.items() if isinstance(tensor, Tensor)}
    (first_name, first), *others = tensors.items()
    for other_name, other in others:
        if other.device != first.device and not (other_name in on_cpu and other.device.type == "cpu"):
            raise RuntimeError(
                f"{name.removesuffix('_forward')}: {other_name} is on {other.device},"
                f" but {first_name} is on {first.device}"
            )
