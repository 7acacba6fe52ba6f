"""Learning-rate schedules, and parameter groups with learning rates of their own."""

import math
from collections.abc import Callable, Mapping, Sequence
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
    """Factor of the learning rate in the step that follows `iteration` finished ones.

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
    lr_factors: Mapping[str, float] | None = None,
    gammas: Mapping[str, float] | None = None,
    bias_lr_factor: float = 2.0,
    bias_weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Groups for an optimizer over the trainable parameters of a model.

    Biases have a learning rate and a weight decay of their own; scales and shifts of norm layers have no
    decay. The backbone has groups of its own in any case. The name of a group, such as "backbone bias", says
    what it holds; "head" is all that is neither the backbone nor named in `lr_factors` or `gammas`.

    Args:
        lr_factors: learning rate of submodules relative to `base_lr`, as in {"head.refinements": 10.0}.
        gammas: for submodules, the `gamma` that :func:`set_lr` passes to the schedule in place of its own.
    """
    factors, gammas = lr_factors or {}, gammas or {}
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for module_name, module in model.named_modules():
        part = next((name for name in (*factors, *gammas) if f"{module_name}.".startswith(f"{name}.")), "")
        if module_name.split(".")[0] == "backbone":
            part = part or "backbone"
        for attribute, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            lr, decay = base_lr * factors.get(part, 1.0), weight_decay
            if isinstance(module, NORM_LAYERS):
                kind, decay = "norm", 0.0
            elif attribute == "bias":
                kind, lr, decay = "bias", lr * bias_lr_factor, bias_weight_decay
            else:
                kind = "weight"
            name = f"{part or 'head'} {kind}"
            group = {"name": name, "params": [], "initial_lr": lr, "lr": lr, "weight_decay": decay}
            if part in gammas:
                group["gamma"] = gammas[part]
            groups.setdefault((part, kind), group)["params"].append(parameter)
    return list(groups.values())


def set_lr(
    optimizer: Optimizer, lr_factor: Callable[..., float], iteration: int, *, scale_momentum: bool = False
) -> None:
    """Give every group its initial learning rate times `lr_factor(iteration)`.

    A group that has a `gamma` takes `lr_factor(iteration, gamma=...)`.

    Args:
        iteration: number of finished steps.
        scale_momentum: where a learning rate changes by more than a tenth at once, scale the momentum of SGD
            by the same factor, as ports of Detectron do. Caffe2's momentum contains the learning rate and
            needs this; torch's does not, so that for some ten steps the updates are smaller.
    """
    for group in optimizer.param_groups:
        own = {"gamma": group["gamma"]} if "gamma" in group else {}
        factor = lr_factor(iteration, **own)
        # A resumed run has not set the learning rate of the step before.
        before = lr_factor(iteration - 1, **own) if scale_momentum and iteration > 0 else factor
        if factor > 0 and before > 0 and not 1 / 1.1 <= factor / before <= 1.1:
            for parameter in group["params"]:
                momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
                if momentum is not None:
                    momentum *= factor / before
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
