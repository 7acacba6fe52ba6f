"""Boxes as plain tensors, and the types that the stages of the pipeline exchange."""

from detector.structures.boxes import (
    box_area,
    box_intersection,
    box_iou,
    boxes_to_rois,
    clip_boxes,
    decode_boxes,
    encode_boxes,
    flip_boxes,
    scale_boxes,
)
from detector.structures.detections import Detections, Scores
from detector.structures.sample import (
    Annotation,
    Batch,
    Hints,
    ImageDataset,
    ReviewedBoxes,
    Sample,
    TeacherBoxes,
    TiledSample,
    Views,
)

__all__ = [
    "Annotation",
    "Batch",
    "Detections",
    "Hints",
    "ImageDataset",
    "ReviewedBoxes",
    "Sample",
    "Scores",
    "TeacherBoxes",
    "TiledSample",
    "Views",
    "box_area",
    "box_intersection",
    "box_iou",
    "boxes_to_rois",
    "clip_boxes",
    "decode_boxes",
    "encode_boxes",
    "flip_boxes",
    "scale_boxes",
]
