"""The HTML page: its sections, rendered from templates/ with Jinja, which escapes every value."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Section:
    """A section of the page: a plain-text title and an HTML body."""

    title: str
    body: Markup

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def document(title: str, summary: str, cards: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole page: title, summary sentence, cards (metric name: value), links and sections."""
    return render("page", title=title, summary=summary, cards=cards, sections=sections)


def render(template: str, **values: Any) -> Markup:
    """The HTML of `templates/NAME.html` with these values, which are escaped unless they are Markup."""
    html = _environment().get_template(f"{template}.html").render(**values)
    # Line breaks between tags lay out the template. On the page they would be spaces.
    return Markup(re.sub(r">\n\s*<", "><", html).strip())


@functools.cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["zip"] = zip
    return environment
