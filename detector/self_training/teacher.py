"""A student that learns from what the moving average of its own weights finds."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.transforms import v2

from detector.data.tiles import to_picture, to_view
from detector.self_training.build import Student
from detector.structures import Detections, Scores, flip_boxes

# Strong augmentation of the student's images: other colors and an erased part; with a teacher also less
# detail. Nothing moves, so boxes stay valid.
_COLORS = v2.RandomApply([v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)], p=0.8)
_ERASED = v2.RandomErasing(p=0.5, scale=(0.02, 0.2), ratio=(0.3, 3.3), value=0.5)
_LESS_DETAIL = v2.RandomGrayscale(p=0.2), v2.RandomApply([v2.GaussianBlur(9, sigma=(0.1, 2.0))], p=0.5)
VIEW = v2.Compose([_COLORS, _ERASED])
STRONG_VIEW = v2.Compose([_COLORS, *_LESS_DETAIL, _ERASED])


def distort_images(model: nn.Module, inputs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
    """A forward pre-hook of a detector: in training it gets a VIEW of each of its images."""
    images, *others = inputs
    return ([VIEW(image) for image in images], *others) if model.training else inputs


def teacher_decay(steps: int) -> float:
    """The decay of the average for `steps` steps, whose time constant is a third of them, at most 1,000.

    So little of the initial student remains at the end (exp(-3), 5 %). 300 steps give 0.99, 3,000 the 0.999
    that is usual in long training.
    """
    return max(0.0, 1 - max(3 / steps, 1e-3))


class TeacherStudent(nn.Module):
    """Maps images to the losses of the student on boxes that the teacher finds in them.

    The teacher is the exponential moving average of the student and sees each image as it is; the student
    sees it flipped or not, and distorted (Unbiased Teacher, arXiv 2102.09480, without its separate stage of
    labeled images; SoS-WSOD, arXiv 2106.04073, brings such training to weak supervision).

    Args:
        student: whose parameters are trained.
        decay: of the average.
        choose: maps the index of an image, the teacher's scores and, where it saw a tile, that tile to the
            boxes to learn from.
        flip: whether the student sees half of the images flipped.
    """

    def __init__(
        self,
        student: Student,
        *,
        decay: float,
        choose: Callable[[int, Scores, Tensor | None], Detections],
        flip: bool,
    ):
        super().__init__()
        self.student, self.choose, self.flip = student, choose, flip
        self.average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
        self.average.update_parameters(student)  # the first call copies, so the first step already averages
        self.average.requires_grad_(False)

    @property
    def teacher(self) -> Student:
        assert isinstance(self.average.module, Student)
        return self.average.module

    def train(self, mode: bool = True) -> "TeacherStudent":
        super().train(mode)
        self.average.eval()
        return self

    def update(self, *_: object) -> None:
        """Add the student's weights to the average; to be called after each step of the optimizer."""
        self.average.update_parameters(self.student)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The losses of a batch.

        Args:
            images: (3, H, W) float32 in [0, 1], each.
            targets: the `index` () of each image in the data set, and its `tile` (4,) where it is a part of
                a large one; what else they hold the student gets.
        """
        with torch.no_grad():
            found = list(self.teacher.scores(images))
        views, boxes = [], []
        for image, target, (all_boxes, scores) in zip(images, targets, found, strict=True):
            pseudo = self._choose(target, all_boxes, scores, image.shape[1:]).to(image.device)
            view, moved = STRONG_VIEW(image), pseudo.boxes
            if "tile" in target and "reviewed" in target:  # of the whole; those here have the score 1
                here = (pseudo.scores == 1).sum()
                target = {**target, "reviewed": torch.minimum(target["reviewed"], here)}
            if self.flip and torch.rand(()) < 0.5:
                view, moved = view.flip(2), flip_boxes(moved, image.shape[2])
            views.append(view)
            boxes.append({**target, "boxes": moved, "labels": pseudo.labels + 1})  # 0 is background
        return self.student(views, boxes)

    def _choose(
        self, target: dict[str, Tensor], boxes: Tensor, scores: Tensor, size: Sequence[int]
    ) -> Detections:
        """The boxes to learn from, in pixels of the image, which has `size` (height, width)."""
        index, tile = int(target["index"]), target.get("tile")
        if tile is None:
            return self.choose(index, Scores("", boxes, scores), None)
        tile = tile.cpu()
        found = self.choose(index, Scores("", to_picture(boxes, tile, size), scores), tile)
        return replace(found, boxes=to_view(found.boxes, tile, size))
