"""Boxes as plain tensors, and the types that pass between the stages."""

from detector.structures.boxes import (
    apply_deltas,
    box_area,
    box_deltas,
    box_intersection,
    box_iou,
    boxes_to_rois,
    clip_boxes,
    flip_boxes,
    scale_boxes,
)
from detector.structures.sample import Annotation, Batch, Detections, Sample, Scores, Views

__all__ = [
    "Annotation",
    "Batch",
    "Detections",
    "Sample",
    "Scores",
    "Views",
    "apply_deltas",
    "box_area",
    "box_deltas",
    "box_intersection",
    "box_iou",
    "boxes_to_rois",
    "clip_boxes",
    "flip_boxes",
    "scale_boxes",
]
