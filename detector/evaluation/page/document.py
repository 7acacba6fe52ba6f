"""The HTML frame of the report and the elements of its sections. All text arguments are escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Section:
    """A section of the page: a plain-text title and an HTML body."""

    title: str
    body: str


def document(title: str, summary: str, cards: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole page: title, summary sentence, cards (metric name: value), links and sections."""
    names = [section.title.lower().replace(" ", "-") for section in sections]
    links = "".join(
        f'<a href="#{escape(name)}">{escape(section.title)}</a>'
        for name, section in zip(names, sections, strict=True)
    )
    parts = "".join(
        f'<section id="{escape(name)}"><h2>{escape(section.title)}</h2>{section.body}</section>'
        for name, section in zip(names, sections, strict=True)
    )
    tops = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in cards.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><p class="summary">{escape(summary)}</p>'
        f'<div class="cards">{tops}</div></header>'
        f"<nav><div>{links}</div></nav><main>{parts}</main>"
        "<footer><p>Written by tools/report.py; docs/report.md explains every section.</p></footer>"
        "</body></html>\n"
    )


def paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def warning(text: str) -> str:
    """A highlighted paragraph that says which input is missing."""
    return paragraph(text, "warning")


def figure(content: str, caption: str, size: tuple[int, int] = (1, 1), anchor: str = "") -> str:
    """HTML content above an HTML caption; galleries fill their rows evenly by `size` (height, width)."""
    place = f' id="{escape(anchor)}"' if anchor else ""
    aspect = f"--aspect:{size[1] / size[0]:.3f}"
    return f'<figure{place} style="{aspect}">{content}<figcaption>{caption}</figcaption></figure>'


def grid(figures: Iterable[str], style: str = "") -> str:
    return f'<div class="grid {style}">{"".join(figures)}</div>'


def details(summary: str, body: str) -> str:
    """HTML that is folded until the reader clicks on the summary."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def facts(pairs: Mapping[str, str]) -> str:
    """A list of plain-text names and values; empty values are omitted."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items() if value
    )
    return f'<dl class="facts">{rows}</dl>'


def table(heads: Sequence[str], rows: Iterable[str], style: str = "") -> str:
    """A table of HTML rows that scrolls sideways if it is wider than the page."""
    top = "".join(f"<th><span>{escape(head)}</span></th>" for head in heads)
    return f'<div class="wide"><table class="{style}"><tr>{top}</tr>{"".join(rows)}</table></div>'
