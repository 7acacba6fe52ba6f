"""Fonts for names that are drawn: Pillow's own has no letters beyond ASCII."""

import unicodedata
from functools import lru_cache

from PIL import ImageFont

# Of Linux, macOS and Windows, the last for Chinese, Japanese and Korean.
_OTHERS: tuple[str, ...] = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "PingFang.ttc",
)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def fitting_font(text: str, size: int) -> tuple[Font, str]:
    """A font that has the letters of a text, and the text: without accents where no such font is installed.

    Args:
        size: in pixels.
    """
    own = ImageFont.load_default(size=size)
    if text.isascii():
        return own, text
    for name in _OTHERS:
        font = _load(name, size)
        if font is not None and _has_letters(font, text):
            return font, text
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return own, plain.encode("ascii", "replace").decode()


@lru_cache
def _load(name: str, size: int) -> ImageFont.FreeTypeFont | None:
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


def _has_letters(font: ImageFont.FreeTypeFont, text: str) -> bool:
    missing = bytes(font.getmask("\uffff"))
    return all(bytes(font.getmask(letter)) != missing for letter in {*text} if not letter.isspace())
