"""The section of the page that lists the test images, with a filter by class and by error type."""

from collections.abc import Container, Sequence
from html import escape

from detector.evaluation.errors import KINDS, Judged, countable, f1
from detector.evaluation.page.document import Section, paragraph

_MOST = 1000  # images listed, those with the lowest F1; a longer table makes browsers slow


def images_section(judged: Sequence[Judged], class_names: Sequence[str], pictured: Container[int]) -> Section:
    """One line for each image, lowest F1 first, filtered by CSS alone.

    Args:
        pictured: indices of the images that the galleries show, to which their lines link.
    """
    order = sorted(range(len(judged)), key=lambda index: f1(judged[index]))[:_MOST]
    lines = "".join(_line(judged[index], class_names, index, index in pictured) for index in order)
    note = (
        "Lowest F1 first. An image belongs to a class that it contains or that is detected in it. Links lead "
        "to the pictures above."
    )
    if len(judged) > _MOST:
        note += f" The list contains the first {_MOST} of {len(judged)} images."
    outcomes = [*(kind for kind in KINDS if kind != "true positive"), "missed", "all found"]
    filters = _select("class", "c", class_names) + _select("result", "r", outcomes)
    return Section(
        "Images",
        f'{paragraph(note, "muted")}<div class="by-image">{filters}'
        '<div class="list"><p class="row heads"><span>image</span><span>objects</span><span>found</span>'
        f"<span>F1</span><span>errors</span></p>{lines}</div></div>",
    )


def _line(image: Judged, class_names: Sequence[str], index: int, pictured: bool) -> str:
    objects = image.annotation.labels[countable(image.annotation)].tolist()
    kinds = [KINDS[kind] for kind in image.kinds[image.counted].tolist()]
    found = kinds.count("true positive")
    errors = {kind: kinds.count(kind) for kind in KINDS if kind != "true positive" and kind in kinds}
    if found < len(objects):
        errors["missed"] = len(objects) - found
    labels = sorted({*objects, *image.detections.labels[image.counted].tolist()})
    outcomes = [*errors, *(["all found"] if not errors else [])]
    styles = " ".join([*(f"c{label}" for label in labels), *(_word("r", name) for name in outcomes)])
    name = escape(image.detections.image_id)
    name = f'<a href="#picture-{index}">{name}</a>' if pictured else name
    shown = ", ".join(dict.fromkeys(class_names[label] for label in objects))
    told = ", ".join(f"{count} {kind}" for kind, count in errors.items())
    return (
        f'<p class="row {styles}"><span>{name}</span><span>{len(objects)} {escape(shown)}</span>'
        f"<span>{found} of {len(objects)}</span><span>{f1(image):.2f}</span><span>{told}</span></p>"
    )


def _select(title: str, prefix: str, names: Sequence[str]) -> str:
    """A drop-down list, and the style rules that hide the lines which the chosen option does not match."""
    words = [f"c{place}" if prefix == "c" else _word(prefix, name) for place, name in enumerate(names)]
    options = "".join(
        f'<option value="{word}">{escape(name)}</option>' for word, name in zip(words, names, strict=True)
    )
    rules = "".join(
        f'.by-image:has(option[value="{word}"]:checked) .row:not(.{word},.heads){{display:none}}'
        for word in words
    )
    return (
        f'<style>{rules}</style><label>{title} <select autocomplete="off"><option value="">all</option>'
        f"{options}</select></label>"
    )


def _word(prefix: str, name: str) -> str:
    return f"{prefix}-{name.replace(' ', '-')}"
