"""The page of tags that are probably wrong, with pictures."""

from collections.abc import Sequence

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.doubted_tags import DoubtedTag
from detector.data.loader import read_shown
from detector.reporting.document import POLICY, Box, Section, picture, render
from detector.reporting.galleries import Figure


def tags_page(
    dataset: AnnotatedImages, doubted: Sequence[tuple[int, DoubtedTag]], title: str, summary: str
) -> bytes:
    """An HTML page: a picture for each tag, with the best box of its class.

    Args:
        doubted: the index of the image, and what is doubted of it.
    """
    sections = []
    for said, head in (("not shown", "Missing tags"), ("shown", "False tags")):
        figures = [_figure(dataset, index, tag) for index, tag in doubted if tag.said == said]
        sections.append(Section(head, render("tags", figures=figures, said=said)))
    html = render(
        "page",
        policy=POLICY,
        script="",
        made_from="",
        command="detector check --tags",
        guide="docs/own_images.md",
        title=title,
        doubt="",
        commands=[],
        summary=f"{summary}; detector review shows them first in the order doubtful tags",
        comparison="",
        cards={},
        sections=sections,
    )
    return html.encode()


def _figure(dataset: AnnotatedImages, index: int, tag: DoubtedTag) -> Figure:
    label, box = dataset.class_names.index(tag.label), tag[6:10]
    boxes = [Box(box, "found", label, f"{tag.label} {tag.score:.2f}")] if any(box) else []
    missing = tag.said == "not shown"
    text = f"{100 * tag.probability:.0f} % likely"
    if tag.near_duplicates:
        text += f"; nearly the same image {'with' if missing else 'without'} the tag: {tag.near_duplicates}"
    shown = picture(read_shown(dataset, index), dataset.image_size(index), boxes, tag.image)
    return Figure(shown, f"{tag.label} missing" if missing else f"no {tag.label}", text)
