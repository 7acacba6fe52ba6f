"""The frame of the page, and what its sections are put together from. All text that comes in is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Section:
    """A part of the page; `body` is HTML, the rest plain text."""

    title: str
    body: str


def document(title: str, subtitle: str, cards: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole page: a title, the figures that matter most, and sections with links to them."""
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
        f'<header><h1>{escape(title)}</h1><p class="muted">{escape(subtitle)}</p>'
        f'<div class="cards">{tops}</div></header>'
        f"<nav><div>{links}</div></nav><main>{parts}</main>"
        "<footer><p>Written by tools/report.py; docs/report.md says what each part means.</p></footer>"
        "</body></html>\n"
    )


def paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def warning(text: str) -> str:
    """What is missing, and what to do about it."""
    return f'<p class="warning">{escape(text)}</p>'


def figure(content: str, caption: str, size: tuple[int, int] = (1, 1)) -> str:
    """HTML above a caption, which is HTML too; by its size (height, width) a gallery makes rows even."""
    aspect = f"--aspect:{size[1] / size[0]:.3f}"
    return f'<figure style="{aspect}">{content}<figcaption>{caption}</figcaption></figure>'


def grid(figures: Iterable[str], style: str = "") -> str:
    return f'<div class="grid {style}">{"".join(figures)}</div>'


def facts(pairs: Mapping[str, str]) -> str:
    """Names and values, both plain text; one without a value is left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs.items() if value
    )
    return f'<dl class="facts">{rows}</dl>'


def table(heads: Sequence[str], rows: Iterable[str], style: str = "") -> str:
    """A table that scrolls by itself where it is wider than the page; `rows` are HTML."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f'<div class="wide"><table class="{style}"><tr>{top}</tr>{"".join(rows)}</table></div>'
