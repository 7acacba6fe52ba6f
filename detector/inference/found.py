"""What a predictor finds in an image, with the image, so that it can be shown."""

from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from torch import Tensor

from detector.data.images import ImageSource, open_image
from detector.evaluation.pictures import draw_detections
from detector.structures import Detections
from detector.utils.errors import UserError
from detector.utils.files import atomic_write, encode_image

_FORMS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


@dataclass(frozen=True, eq=False, repr=False)
class Found(Detections):
    """Detections that know their image: `found.plot()`, `found.show()`, `found.save("a.jpg")`.

    In Jupyter, the last line of a cell shows the picture. Two are equal if their detections are.
    """

    image: ImageSource | None = None  # as the predictor was given it; a file is read again
    class_names: tuple[str, ...] = ()

    def plot(self) -> Image.Image:
        """The image with the boxes, their classes and scores; a small one is enlarged, to be legible.

        Raises:
            UserError, OSError: there is no image, or its file is gone or was changed to another size.
        """
        if self.image is None:
            raise UserError("these detections have no image to draw on: draw those that a predictor returns")
        return draw_detections(open_image(self.image), self, None, self.class_names, score_threshold=0.0)

    def show(self) -> None:
        """Open :meth:`plot` in the viewer of the system."""
        self.plot().show()

    def save(self, path: str | Path) -> Path:
        """Write :meth:`plot` to a .jpg or .png file, and return its path."""
        path = Path(path)
        if (form := _FORMS.get(path.suffix.lower())) is None:
            raise UserError(f"{path} has the suffix {path.suffix!r}, expected .jpg or .png")
        content = encode_image(self.plot(), form, **({"quality": 90} if form == "jpeg" else {}))
        with atomic_write(path) as file:
            file.write(content)
        return path

    def __getitem__(self, index: int | slice | Tensor) -> "Found":
        chosen = super().__getitem__(index)
        fields = {name: getattr(chosen, name) for name in Detections._names(chosen)}
        return replace(self, **fields)

    def _repr_png_(self) -> bytes | None:
        """What Jupyter shows; None: the image is gone, and it shows the text."""
        try:
            return encode_image(self.plot(), "png")
        except (UserError, OSError):
            return None

    def _names(self) -> list[str]:
        return [name for name in super()._names() if name not in ("image", "class_names")]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Detections):
            return NotImplemented
        return Detections.__eq__(_plain(self), _plain(other))

    __hash__ = None  # type: ignore[assignment]


def _plain(found: Detections) -> Detections:
    return Detections(found.image_id, found.boxes, found.scores, found.labels, found.names)
