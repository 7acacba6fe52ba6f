"""How ops run under torch.func.vmap: on all examples in one call, or in one call for each example."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# A rule takes the function to call, the names of its arguments, the number of examples, the dimension of the
# examples in each argument, and the arguments. It returns the outputs and their dimensions of examples.
Rule = Callable[[Callable[..., Any], Sequence[str], int, tuple, tuple], tuple]


def call_for_each(call: Callable, names: Sequence[str], size: int, in_dims: tuple, arguments: tuple) -> tuple:
    """One call for each example."""

    def example(i: int) -> list:
        return [
            argument.select(dim, i) if isinstance(argument, Tensor) and dim is not None else argument
            for argument, dim in zip(arguments, in_dims, strict=True)
        ]

    outputs = [call(*example(i)) for i in range(size)]
    if isinstance(outputs[0], Tensor):
        return torch.stack(outputs), 0
    return tuple(torch.stack(parts) for parts in zip(*outputs, strict=True)), (0,) * len(outputs[0])


def fold(call: Callable, names: Sequence[str], size: int, in_dims: tuple, arguments: tuple) -> tuple:
    """One call with the rows, images or boxes of all examples, for ops that treat each one by itself.

    Boxes of RoI ops, whose first column is the index of an image, get the index among the images of all
    examples. An `input` that all examples share is not repeated.
    """
    tensors = {
        name: with_examples(argument, dim, size)
        for name, argument, dim in zip(names, arguments, in_dims, strict=True)
        if isinstance(argument, Tensor) and not (name == "input" and dim is None)
    }
    folded = {**dict(zip(names, arguments, strict=True)), **{k: t.flatten(0, 1) for k, t in tensors.items()}}
    if "boxes" in tensors and ("input" in tensors or "images" in folded):
        images = folded["images"] if "images" in folded else tensors["input"].shape[1]
        boxes = tensors["boxes"]
        image = boxes[..., :1]
        first = images * torch.arange(size, device=boxes.device, dtype=boxes.dtype)[:, None, None]
        # An index that is out of range must not become an image of another example.
        image = torch.where((image >= 0) & (image < images), image + first, -1)
        folded["boxes"] = torch.cat([image, boxes[..., 1:]], dim=-1).flatten(0, 1)
    if "images" in folded:
        folded["images"] *= size
    outputs = call(*folded.values())
    if isinstance(outputs, Tensor):
        return outputs.view(size, outputs.shape[0] // size, *outputs.shape[1:]), 0
    return tuple(o.view(size, o.shape[0] // size, *o.shape[1:]) for o in outputs), (0,) * len(outputs)


def no_examples(op: Callable, in_dims: tuple, arguments: tuple) -> tuple:
    """The outputs of an op for no examples, empty; their other dimensions are those of one example."""
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    example: list[Any] = []
    for argument, dim in zip(arguments, in_dims, strict=True):
        if isinstance(argument, Tensor):
            shape = [n for i, n in enumerate(argument.shape) if i != dim]
            example.append(torch.empty(shape, dtype=argument.dtype, device="meta"))
        else:
            example.append(argument)
    outputs = op(*example)
    parts = (outputs,) if isinstance(outputs, Tensor) else outputs
    empty = tuple(torch.empty((0, *part.shape), dtype=part.dtype, device=device) for part in parts)
    return (empty[0], 0) if isinstance(outputs, Tensor) else (empty, (0,) * len(empty))


def with_examples(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """A tensor whose first dimension is that of the examples."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
