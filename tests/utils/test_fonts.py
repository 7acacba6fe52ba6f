"""Names are drawn with their letters, or without accents, never as empty boxes."""

import pytest
from PIL import ImageFont

from detector.utils import fonts
from detector.utils.fonts import fitting_font


def missing(font: fonts.Font) -> bytes:
    return bytes(font.getmask("\uffff"))


def test_ascii_has_the_font_of_pillow() -> None:
    font, text = fitting_font("cat; dog", 15)
    assert (text, font.getname()) == ("cat; dog", ImageFont.load_default(size=15).getname())


@pytest.mark.parametrize("text", ["Känguru", "Błąd", "лиса", "raton\u00a0laveur é"])
def test_no_letter_is_an_empty_box(text: str) -> None:
    font, drawn = fitting_font(text, 15)
    assert all(bytes(font.getmask(letter)) != missing(font) for letter in drawn if not letter.isspace())


def test_without_another_font_accents_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_OTHERS", ())
    assert fitting_font("Känguru, лис", 15)[1] == "Kanguru, ???"
