"""A network in ONNX with convolutions of 8-bit integers, by ONNX Runtime's static quantization."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.images import open_image
from detector.data.loader import is_large
from detector.evaluation.voc import voc_ap
from detector.inference.export import Network, disable_telemetry
from detector.inference.exported_student import INPUTS, pad_images
from detector.inference.results import annotations
from detector.structures import Detections
from detector.utils.errors import MissingPackage

# The layers that give scores and boxes stay in float32, as 8 bits would round a box to 1/256 of its range.
# They take little time.
_OUTPUTS = ("cls_logits", "bbox_pred", "bbox_reg", "bbox_ctrness", "cls_score")


def quantize_onnx(path: Path, quantized: Path, images: Iterable[Tensor]) -> None:
    """Write the network of `path` with int8 weights and uint8 activations of its convolutions to `quantized`.

    Args:
        images: (3, H, W) uint8 each; the range of each activation is that on these.

    Raises:
        MissingPackage: onnx or onnxruntime is not installed.
    """
    disable_telemetry()
    try:
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    except ImportError as error:
        raise MissingPackage(f"int8 needs onnx ({error}): pip install onnx onnxscript onnxruntime") from None

    class Images(CalibrationDataReader):
        """The images one by one, None at their end, as ONNX Runtime asks for them."""

        def __init__(self) -> None:
            self.left = iter(images)

        def get_next(self) -> dict[str, np.ndarray] | None:
            image = next(self.left, None)
            if image is None:
                return None
            return {name: tensor.numpy() for name, tensor in zip(INPUTS, pad_images([image]), strict=True)}

    model = onnx.load(path)
    weights = {node.name: node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    quiet = logging.root.manager.disable
    logging.disable(logging.WARNING)  # ONNX Runtime advises on the root logger
    try:
        with TemporaryDirectory() as folder:
            whole = Path(folder, "whole.onnx")
            quantize_static(
                path,
                whole,
                Images(),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["Conv"],
                nodes_to_exclude=[
                    name for name, weight in weights.items() if any(output in weight for output in _OUTPUTS)
                ],
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
            quantized.write_bytes(whole.read_bytes())
    finally:
        logging.disable(quiet)


def mean_ap(network: Network, dataset: AnnotatedImages, most: int) -> tuple[float, int]:
    """mAP50 in percent of an exported student on the first `most` images with boxes, and their number.

    Images that are read in parts are left out, since the network takes whole ones. NaN where none has boxes.
    """
    truth = annotations(dataset)
    truth = {i: truth[i] for i in [i for i in truth if not is_large(dataset, i)][:most]}
    found = []
    for index in truth:
        boxes, scores, labels, _ = network(*pad_images([open_image(dataset.image_path(index))]))
        found.append(Detections(dataset.image_ids[index], boxes, scores, labels))
    if not truth:
        return float("nan"), 0
    return 100 * float(np.nanmean(voc_ap(found, list(truth.values()), len(dataset.class_names)))), len(truth)


def spread(paths: Sequence[Path], most: int) -> list[Path]:
    """At most `most` of the paths, from the first to the last at equal distances."""
    return [paths[i * len(paths) // most] for i in range(most)] if len(paths) > most else list(paths)
