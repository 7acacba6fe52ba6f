"""The learning-rate schedule, and the learning rate of each parameter."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from detector.utils.errors import UserError

# torch's base class of batch and instance norms is private; timm's variants derive from it.
NORM_LAYERS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


def lr_factor(
    iteration: int,
    *,
    max_iter: int,
    schedule: Literal["step", "cosine"],
    steps: Sequence[int] = (),
    gamma: float = 0.1,
    warmup_iters: int = 0,
    warmup_factor: float = 1 / 3,
) -> float:
    """What to multiply the learning rate with in the step that follows `iteration` finished ones.

    "step": gamma for each of `steps` that has passed; "cosine": from 1 to 0 at `max_iter`. Times the warm-up,
    which rises in a straight line from `warmup_factor` to 1 over the first `warmup_iters` steps.
    """
    if schedule == "step":
        factor = gamma ** sum(iteration >= step for step in steps)
    elif schedule == "cosine":
        factor = (1 + math.cos(math.pi * iteration / max_iter)) / 2
    else:
        raise UserError(f"schedule is {schedule!r}, expected 'step' or 'cosine'")
    if iteration < warmup_iters:
        factor *= warmup_factor + (1 - warmup_factor) * iteration / warmup_iters
    return factor


def parameter_groups(
    model: nn.Module,
    *,
    base_lr: float,
    weight_decay: float,
    backbone_lr_factor: float = 1.0,
    bias_lr_factor: float = 2.0,
    bias_weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Groups for an optimizer over the trainable parameters of a model that has a `backbone`.

    Biases have a learning rate and a decay of their own; scales and shifts of norm layers have no decay. The
    name of a group, such as "backbone bias", says what it holds.
    """
    groups: dict[tuple[bool, str], dict[str, Any]] = {}
    for module_name, module in model.named_modules():
        in_backbone = module_name.split(".")[0] == "backbone"
        for attribute, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            lr, decay = base_lr * (backbone_lr_factor if in_backbone else 1), weight_decay
            if isinstance(module, NORM_LAYERS):
                kind, decay = "norm", 0.0
            elif attribute == "bias":
                kind, lr, decay = "bias", lr * bias_lr_factor, bias_weight_decay
            else:
                kind = "weight"
            name = f"{'backbone' if in_backbone else 'head'} {kind}"
            group = {"name": name, "params": [], "initial_lr": lr, "lr": lr, "weight_decay": decay}
            groups.setdefault((in_backbone, kind), group)["params"].append(parameter)
    return list(groups.values())


def set_lr(optimizer: Optimizer, factor: float) -> None:
    """Give every group its initial learning rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def logged_lr(optimizer: Optimizer) -> dict[str, float]:
    """The learning rates to log: "lr" is that of the heads, and "lr_backbone" the backbone's if it differs.

    Those of biases, which are a multiple, are not logged. An optimizer whose groups are not those of
    :func:`parameter_groups` logs the learning rate of its first group.
    """
    groups = {group.get("name", ""): group["lr"] for group in reversed(optimizer.param_groups)}
    head = [groups[name] for name in ("head weight", "head norm") if name in groups]
    backbone = [groups[name] for name in ("backbone weight", "backbone norm") if name in groups]
    lr = (head or backbone or [optimizer.param_groups[0]["lr"]])[0]
    return {"lr": lr, "lr_backbone": backbone[0]} if backbone and backbone[0] != lr else {"lr": lr}
