"""Writing a network to a file that runs without the code of its model, and reading it back."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from detector.structures import Detections
from detector.utils.errors import MissingPackage, UserError
from detector.utils.progress import progress_bar

Network = Callable[..., Sequence[Tensor]]  # INPUTS -> OUTPUTS of exported.py or exported_student.py

SUFFIXES = {"torch_export": ".pt2", "aot_inductor": ".pt2", "onnx": ".onnx"}


def save_program(
    program: ExportedProgram,
    form: str,
    path: Path,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    metadata: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write an exported program to `path`, which has the suffix of the form.

    Args:
        form: a key of SUFFIXES.
        inputs, outputs: their names in ONNX.
        metadata: what a file of ONNX says of itself; values that are no text are written as JSON.

    Raises:
        UserError: ONNX does not support an op of the program; or a package or a compiler is missing.
    """
    if form == "torch_export":
        torch.export.save(program, path)
    elif form == "aot_inductor":
        if shutil.which("c++") is None and shutil.which("g++") is None:
            raise UserError("aot_inductor needs a C++ compiler, and there is none: install g++")
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    else:
        _save_onnx(program, path, inputs, outputs, metadata)


def load_program(form: str, path: Path) -> Network:
    """A file of :func:`save_program` as a function of its inputs, without the model's code.

    torch needs `import detector.layers` for our ops; ONNX Runtime has all that it needs.
    """
    if form == "torch_export":
        return torch.export.load(path).module()
    if form == "aot_inductor":
        return torch._inductor.aoti_load_package(str(path))
    disable_telemetry()
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(*inputs: Tensor) -> list[Tensor]:
        named = zip(session.get_inputs(), inputs, strict=True)
        arrays = session.run(None, {each.name: tensor.numpy() for each, tensor in named})
        return [torch.from_numpy(np.asarray(array)) for array in arrays]

    return run


def disable_telemetry() -> None:
    """Keep ONNX Runtime, if it is not imported yet, from sending names and hashes of networks to its makers.

    It would also leave a file `.ses` in the folder for temporary files.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _save_onnx(
    program: ExportedProgram,
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    metadata: Mapping[str, object],
) -> None:
    """Write a program as ONNX, opset 18, with the ops of detector/layers/onnx_ops.py."""
    disable_telemetry()
    try:
        from detector.layers.onnx_ops import translations
    except ImportError as error:
        raise MissingPackage(
            f"ONNX needs onnxscript ({error}): pip install onnx onnxscript onnxruntime"
        ) from None
    known = translations()
    ops = {node.target for node in program.graph.nodes if node.op == "call_function"}
    ours = {op for op in ops if str(op).startswith("detector.")}
    if unknown := sorted(str(op) for op in ours - known.keys()):
        raise UserError(f"ONNX has no counterpart of {', '.join(unknown)}")
    try:
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=18,
            custom_translation_table=known,
            input_names=list(inputs),
            output_names=list(outputs),
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"ONNX of torch {torch.__version__} does not support this model: {reason}") from error
    assert exported is not None  # only without `dynamo`
    texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in metadata.items()}
    exported.model.metadata_props.update(texts)
    exported.save(str(path), external_data=False)


def largest_difference(ours: Network, other: Network, inputs: Sequence[tuple[Tensor, ...]]) -> float:
    """The largest difference between two networks, NaN where one gives NaN; that of boxes relative to the
    image's longer side.
    """
    worst = torch.zeros(())
    with torch.no_grad():
        for batch in progress_bar(inputs, total=len(inputs), desc="compared", unit="batch"):
            (scores, boxes), (others, moved) = ours(*batch), other(*batch)
            if scores.shape != others.shape or boxes.shape != moved.shape:
                raise UserError(f"scores {tuple(others.shape)}, expected {tuple(scores.shape)}")
            if len(scores):
                side = max(batch[0].shape[2:])
                for difference in (scores - others, (boxes - moved) / side):
                    worst = torch.maximum(worst, difference.abs().max())  # unlike max(), of NaN as well
    return float(worst)


def detection_differences(
    found: Detections, others: Detections, *, side: float, floor: float, most: int
) -> Tensor:
    """How far each detection (D,) is from the nearest of the same label in `others`, in score and box.

    Args:
        side: of the image in pixels; boxes count as shares of it.
        floor: what detections score more than. A score close to it, or close to that of the last of `most`
            detections, may be missing.
    """
    if not len(found):
        return torch.zeros(0)
    floor = float(found.scores[-1]) if len(found) == most else floor
    moved = (found.boxes[:, None] - others.boxes).abs().amax(dim=2) / side  # (D, E)
    far = torch.maximum(moved, (found.scores[:, None] - others.scores).abs())
    far = far.where(found.labels[:, None] == others.labels, torch.inf)
    return torch.cat([far, found.scores[:, None] - floor], dim=1).amin(dim=1)


def _is_striped(image: Tensor) -> bool:
    """Whether all rows, or all columns, of an image (3, H, W) are the same."""
    return bool((image == image[:, :1]).all()) or bool((image == image[:, :, :1]).all())


def typical_difference(found: Sequence[tuple[Tensor, Tensor]]) -> float:
    """How far the detections of two networks are apart, of :func:`detection_differences` of several images.

    Rounding may decide between two boxes of nearly the same score in NMS: 1 % of all may differ by more,
    but not half of those of any image, as they would if it were resized to another size. In an image of one
    color, or of stripes, all cells of a row or column have the same scores up to rounding, so that ties
    decide about many boxes: there only the half counts.

    Args:
        found: of each image (3, H, W), itself and the differences (D,) of its detections.
    """
    some = [differences for _, differences in found if len(differences)]
    varied = [differences for image, differences in found if len(differences) and not _is_striped(image)]
    worst = [differences.quantile(0.5) for differences in some]
    if varied:
        every = torch.cat(varied).sort().values
        worst.append(every[int(0.99 * (len(every) - 1))])
    return float(torch.stack(worst).amax()) if worst else 0.0
