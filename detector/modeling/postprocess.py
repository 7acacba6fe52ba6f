"""From scores of proposals to detections."""

from detector.layers import batched_nms
from detector.structures import Detections, Scores


def postprocess(
    scores: Scores, *, score_threshold: float = 1e-5, nms_threshold: float = 0.3, max_detections: int = 100
) -> Detections:
    """The boxes of one image after non-maximum suppression by class, best first.

    Args:
        score_threshold: a box is kept where its score is greater.
        nms_threshold: of two boxes of a class whose IoU is greater, the lower-scored goes.
        max_detections: most boxes an image.
    """
    rows, labels = (scores.scores > score_threshold).nonzero().unbind(dim=1)  # (D,), (D,)
    boxes, values = scores.boxes[rows, labels], scores.scores[rows, labels]  # (D, 4), (D,)
    keep = batched_nms(boxes, values, labels, nms_threshold)  # best first
    keep = keep[:max_detections]
    return Detections(scores.image_id, boxes[keep], values[keep], labels[keep])
