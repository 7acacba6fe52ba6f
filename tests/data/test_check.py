import torch

from detector.data.check import odd_boxes, read_all
from detector.structures import Annotation


class Pictures:
    image_ids = ("a", "b", "c", "d")

    def read_image(self, index):
        if index == 1:
            raise ValueError("image b cannot be read")
        shape = (3, 2, 4) if index == 3 else (3, 4, 2)
        return torch.full(shape, 7, dtype=torch.uint8)


def test_every_image_is_read_whatever_the_others_are():
    for threads in (0, 1, 3):
        a, b, c, d = read_all(Pictures(), threads)
        assert b.error == "image b cannot be read"
        assert a.error is c.error is d.error is None
        assert a.digest == c.digest != d.digest  # the same bytes, but another shape


def annotation_of(boxes, labels, crowd=False):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    no, crowds = torch.zeros(len(boxes), dtype=torch.bool), torch.full((len(boxes),), crowd)
    return Annotation("a", boxes, torch.tensor(labels, dtype=torch.int64), no, crowds)


def test_odd_boxes():
    same = [[10, 10, 50, 50], [10, 10, 50, 51], [10, 10, 50, 50]]
    boxes = [[0, 0, 100, 99], [5, 5, 7, 20], [5, 5, 60, 10], *same]
    annotation = annotation_of(boxes, [0, 0, 0, 0, 0, 1])
    odd = odd_boxes(annotation, (100, 100), min_side=2)
    assert list(odd.values()) == [1, 1, 1, 1]
    assert list(odd) == [
        "with a side of at most 2 pixels, as no proposal has",
        "over 10 times as long as wide",
        "as large as the image",
        "on another of the same class",
    ]
    assert odd_boxes(annotation_of([], []), (100, 100), min_side=2) == {}


def test_crowds_are_not_odd():
    crowd = annotation_of([[0, 0, 100, 100]], [0], crowd=True)
    assert odd_boxes(crowd, (100, 100), min_side=2) == {}
