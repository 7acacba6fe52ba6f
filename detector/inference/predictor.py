"""A trained detector as a function: images in, detections out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from detector.data.images import ImageSource, open_image, read_image_size
from detector.data.large_images import LargeImage, exceeds_limit, open_image_file
from detector.data.loader import make_views, tiled_views
from detector.data.pictures import find_pictures
from detector.data.proposals import clean_proposals
from detector.data.proposals.search import Finder
from detector.data.proposals.tiled import find_in
from detector.data.tiles import Tiling
from detector.data.transforms import TestTransform
from detector.engine.passes import predict
from detector.engine.precision import Precision, tf32_allowed
from detector.inference.found import Found
from detector.self_training.build import Student
from detector.self_training.scoring import score_batch, score_picture
from detector.structures import Detections, Sample, Scores, Views, clip_boxes
from detector.utils.errors import UserError, counted, describe_value, shortened


class Predictor:
    """Finds objects in images: `predictor(image)`. `detector.load` makes one.

    This class is for a student of self-training, which needs no proposals; see also :class:`WeakPredictor`.

    Args:
        model: as :func:`detector.engine.passes.score_batch` takes it.
        class_names: the C foreground classes.
        postprocess: from the scores of an image's proposals to its detections.
        precision: of the model, on its device.
        tiling: how larger images are cut into tiles; None: they are not.
    """

    def __init__(
        self,
        model: nn.Module,
        class_names: Sequence[str],
        *,
        postprocess: Callable[[Scores], Detections],
        precision: Precision,
        tiling: Tiling | None = None,
    ) -> None:
        self.model, self.tiling = model.eval(), tiling
        self.kind = str(getattr(model, "kind", "weak detector"))  # for people
        self.class_names = tuple(class_names)
        self.postprocess, self.precision, self.device = postprocess, precision, precision.device

    def __call__(
        self,
        images: ImageSource | Iterable[ImageSource],
        proposals: Tensor | np.ndarray | Sequence[Tensor | np.ndarray | None] | None = None,
    ) -> Detections | list[Detections] | Iterator[Detections]:
        """The objects of one image, or of each of several, which are read one by one.

        Args:
            images: a path, Pillow image, uint8 array or tensor: see detector.data.images.open_image. Or a
                list or tuple of these, or a folder, whose images are searched below it; or a generator of
                them, such as the frames of a camera, of which one at a time is taken.
            proposals: only a weak detector takes them: (R, 4) xyxy in pixels of the image, for a list of
                images one such for each, or None where they are to be found; they are clipped to the image.

        Returns:
            Detections, best first, in pixels of the image (turned as its EXIF orientation says), a list of
            them, or of a generator an iterator. `image_id` is the path of the file, or the image's number.

        Raises:
            FileNotFoundError, TypeError, UserError: an image or proposals that cannot be used.
        """
        if isinstance(images, Iterator):
            if proposals is not None:
                raise UserError("proposals are for an image or a list: call the predictor for each image")
            return (self._found(image, None, str(number)) for number, image in enumerate(images))
        if isinstance(images, (str, Path)) and Path(images).is_dir():
            images = list(find_pictures([Path(images)]).values())
        if not isinstance(images, (list, tuple)):
            image, boxes = cast(ImageSource, images), cast(Tensor | np.ndarray | None, proposals)
            return self._found(image, boxes, "0")
        each = [None] * len(images) if proposals is None else proposals
        if not isinstance(each, (list, tuple)) or len(each) != len(images):
            found = f"a list of {len(each)}" if isinstance(each, (list, tuple)) else type(each).__name__
            raise UserError(f"proposals is {found}, expected a list of {len(images)}, one for each image")
        rows = zip(images, each, map(str, range(len(images))), strict=True)
        return [self._found(*row) for row in rows]

    def _found(self, image: ImageSource, proposals: Tensor | np.ndarray | None, image_id: str) -> Found:
        found = self.detections(self.scores(image, proposals, image_id))
        boxes = found.image_id, found.boxes, found.scores, found.labels, found.names
        return Found(*boxes, image=image, class_names=self.class_names)

    def __repr__(self) -> str:
        """For example `Predictor(Faster R-CNN, 2 classes: cat, dog, on cpu, float32)`."""
        classes = f"{counted(len(self.class_names), 'class', 'classes')}: {shortened(self.class_names, 5)}"
        return f"{type(self).__name__}({self.kind}, {classes}, on {self.device}, {self.precision.name})"

    def open(self, image: ImageSource | LargeImage) -> Tensor | LargeImage:
        """The image (3, H, W) uint8; with tiles, that of a file may be read in parts."""
        if isinstance(image, LargeImage):
            return image
        if self.tiling is not None and isinstance(image, (str, Path)):
            return open_image_file(image, apply_orientation=True)
        return open_image(image)

    def reads_in_parts(self, image: ImageSource) -> bool:
        """Whether :meth:`open` of a file gives a :class:`LargeImage`."""
        return (
            self.tiling is not None
            and isinstance(image, (str, Path))
            and exceeds_limit(*read_image_size(image))
        )

    def find_proposals(self, image: Tensor | LargeImage) -> Tensor | None:
        """What :meth:`scores` takes besides an image (3, H, W) uint8; it may take long."""
        return None

    def scores(
        self,
        image: ImageSource | LargeImage,
        proposals: Tensor | np.ndarray | None = None,
        image_id: str = "0",
    ) -> Scores:
        """The class scores of each proposal of an image, on `device`, before any threshold or NMS.

        Args:
            image, proposals: as in a call.
            image_id: the name of an image that is not a file.
        """
        if proposals is not None:
            raise UserError("a student makes its proposals itself: leave out the argument proposals")
        name = str(image) if isinstance(image, (str, Path)) else image_id
        model, pixels = cast(Student, self.model), self.open(image)
        options: dict[str, Any] = {"device": self.device, "precision": self.precision}
        with tf32_allowed(self.precision.name == "tf32"):
            if self.tiling is not None and self.tiling.cuts(*pixels.shape[1:]):
                return score_picture(model, pixels, name, self.tiling, **options)
            assert isinstance(pixels, Tensor)  # others are larger than a tile
            (scores,) = score_batch(model, [pixels], [name], **options)
        return scores

    def detections(self, scores: Scores) -> Detections:
        """What a call returns for an image, on the CPU, from its :meth:`scores`."""
        found = self.postprocess(scores)
        names = tuple(self.class_names[label] for label in found.labels.tolist())
        return replace(found.to("cpu"), names=names)


class WeakPredictor(Predictor):
    """The predictor of a weak detector, which chooses among proposals that are searched first.

    Args:
        model: as :func:`detector.engine.passes.predict` takes it.
        find: finds the proposals of an image for which none are given: (H, W, 3) uint8 RGB to (R, 4) float32.
        transforms: one per test pass.
        min_size: a proposal whose width or height is at most this, in pixels, is dropped.
        max_count: maximum number of proposals per image, or tile; the first are kept.
        options: the other arguments of :class:`Predictor`.
    """

    def __init__(
        self,
        model: nn.Module,
        class_names: Sequence[str],
        *,
        find: Finder,
        transforms: Sequence[TestTransform],
        min_size: float,
        max_count: int,
        **options: Any,
    ) -> None:
        super().__init__(model, class_names, **options)
        self.find, self.transforms = find, tuple(transforms)
        self.min_size, self.max_count = min_size, max_count

    def find_proposals(self, image: Tensor | LargeImage) -> Tensor:
        return torch.from_numpy(find_in(self.find, image))

    def scores(
        self,
        image: ImageSource | LargeImage,
        proposals: Tensor | np.ndarray | None = None,
        image_id: str = "0",
    ) -> Scores:
        views = self._views(image, proposals, image_id, self.tiling)
        with tf32_allowed(self.precision.name == "tf32"):
            (scores,) = predict(self.model, [views], device=self.device, precision=self.precision)
        return scores

    def views(
        self, source: ImageSource, proposals: Tensor | np.ndarray | None = None, image_id: str = "0"
    ) -> Views:
        """The proposals of an image, found or given, and a sample for each test pass, without tiles."""
        views = self._views(source, proposals, image_id, None)
        assert isinstance(views, Views)
        return views

    def _views(
        self,
        source: ImageSource | LargeImage,
        proposals: Tensor | np.ndarray | None,
        image_id: str,
        tiling: Tiling | None,
    ) -> Views | Iterator[Views]:
        image = self.open(source)
        if proposals is None:
            boxes = self.find_proposals(image)
        else:
            boxes = clip_boxes(_boxes(proposals), *image.shape[1:])
        name = str(source) if isinstance(source, (str, Path)) else image_id
        pixels = image if isinstance(image, Tensor) else torch.zeros(3, 0, 0, dtype=torch.uint8)
        sample = Sample(pixels, boxes, torch.zeros(len(self.class_names)), name)
        if tiling is not None and tiling.cuts(*image.shape[1:]):
            return tiled_views(sample, image, self.transforms, tiling, self.min_size, self.max_count)
        boxes = clean_proposals(boxes, min_size=self.min_size, stride=1, max_count=self.max_count)
        sample = replace(sample, proposals=boxes)
        return make_views(sample, self.transforms)


def _boxes(proposals: Tensor | np.ndarray) -> Tensor:
    """Proposals as a float32 tensor (R, 4) on the CPU; UserError where they are not boxes."""
    try:
        boxes = torch.as_tensor(proposals).detach().cpu().float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"proposals are {describe_value(proposals)}, expected numbers (R, 4)") from error
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise UserError(f"proposals have the shape {tuple(boxes.shape)}, expected (R, 4)")
    bad = ~boxes.isfinite().all(dim=1) | (boxes[:, 2:] < boxes[:, :2]).any(dim=1)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        raise UserError(f"proposal {row} is {boxes[row].tolist()}, expected finite x1 <= x2 and y1 <= y2")
    return boxes
