import pytest

from detector.data.sheets.decoding import decode

JAPANESE, CHINESE, KOREAN = (
    "ファイル名,ラベル\na.jpg,傷\n",
    "图片,标签\na.jpg,划痕\n",
    "파일명,분류\na.jpg,흠집\n",
)


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        (JAPANESE, "cp932", "cp932"),
        ("No.,画像ファイル名,傷\n" + "1,a.jpg,○\n2,b.jpg,×\n" * 20, "cp932", "cp932"),  # noqa: RUF001
        (CHINESE, "gbk", "gb18030"),
        (KOREAN, "euc_kr", "euc_kr"),
        ("Bild,Fehler\nä.jpg,Größe\n", "cp1252", "Windows-1252"),
        ("Bild,Fehler\nGerät öäü.jpg,Übermaß\n", "cp1252", "Windows-1252"),
    ],
)
def test_older_encodings_are_told(tmp_path, text, encoding, name):
    with pytest.warns(UserWarning, match=f"is not UTF-8, and read as {name}"):
        assert decode(text.encode(encoding), tmp_path / "t.csv") == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_unicode_needs_no_warning(tmp_path, recwarn, encoding):
    assert decode(JAPANESE.encode(encoding), tmp_path / "t.csv") == JAPANESE
    assert not recwarn
