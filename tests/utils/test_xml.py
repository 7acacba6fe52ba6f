"""The encodings of XML."""

import pytest

from detector.utils.errors import DataError
from detector.utils.xml import parse_xml


def declared(name, text="猫"):
    return f'<?xml version="1.0" encoding="{name}"?>\n<annotation><name>{text}</name></annotation>'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (declared("gb2312").encode("gbk"), "猫"),
        (declared("GBK").encode("gbk"), "猫"),
        (declared("gb18030").encode("gb18030"), "猫"),
        (declared("Shift_JIS").encode("shift_jis"), "猫"),
        (declared("big5", "貓").encode("big5"), "貓"),
        (declared("EUC-KR", "고양이").encode("euc-kr"), "고양이"),
        (declared("windows-1252", "forêt").encode("cp1252"), "forêt"),
        (declared("ISO-8859-1", "forêt").encode("latin-1"), "forêt"),
        (declared("utf-8").encode(), "猫"),
        (declared("utf-8").encode("utf-8-sig"), "猫"),
        (declared("utf-16").encode("utf-16"), "猫"),
        (declared("utf-16").encode(), "猫"),  # as .NET writes a string to a file
        ("<annotation><name>猫</name></annotation>".encode(), "猫"),
    ],
)
def test_encodings_that_are_declared(tmp_path, content, text):
    (tmp_path / "a.xml").write_bytes(content)
    assert parse_xml(tmp_path / "a.xml", "annotation").findtext("name") == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "<annotation>狗</annotation>".encode("gbk"),
            "not in utf-8, as XML is that declares none .*save it as UTF-8",
        ),
        ("<annotation>forêt</annotation>".encode("cp1252"), "not in utf-8, .*byte 15 is 0xea"),
        (declared("utf-8", "狗").encode("gbk"), "not in utf-8, as it declares"),
        (declared("klingon").encode(), "declares the encoding 'klingon', which is unknown"),
        (declared("zlib").encode(), "declares the encoding 'zlib', which is unknown"),
        (b"<annotation>", "is damaged"),
    ],
)
def test_encodings_that_cannot_be_read_are_told(tmp_path, content, message):
    (tmp_path / "a.xml").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        parse_xml(tmp_path / "a.xml", "annotation")
    assert str(tmp_path / "a.xml") in str(caught.value)
