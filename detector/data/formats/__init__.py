"""Files of boxes for labeling tools: COCO, VOC, YOLO, Label Studio and CVAT, written and read back."""

from detector.data.formats.coco import encode as encode_coco
from detector.data.formats.files import FORMATS, encode_review, review_import
from detector.data.formats.review import ReviewBox, ReviewImage, review_image

__all__ = [
    "FORMATS",
    "ReviewBox",
    "ReviewImage",
    "encode_coco",
    "encode_review",
    "review_image",
    "review_import",
]
