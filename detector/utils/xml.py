"""Reading of XML files without document type declarations."""

import codecs
import re
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from detector.utils.errors import DataError
from detector.utils.files import reading

_DECLARATION = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
_LARGER = {"gb2312": "gb18030", "gbk": "gb18030", "iso-8859-1": "cp1252"}  # which have all of the others
# Levels of elements; files of annotations have about six. Python would overflow its stack at 100,000.
_DEEPEST = 100


def parse_xml(path: Path, root: str) -> Element:
    """The root element of a file.

    Raises:
        OSError, DataError: the file cannot be read, is not valid XML, has another root than `root`, or
            declares a document type, whose entities could name other files or expand to gigabytes.
    """
    with reading(path, "annotation"):
        return _parse(Path(path).read_bytes(), root)


def parse_xml_bytes(content: bytes, root: str) -> Element:
    """As :func:`parse_xml`, of what is no file.

    Raises:
        DataError: as there.
    """
    try:
        return _parse(content, root)
    except ParseError as error:
        raise DataError(f"it is not valid XML: {error}") from None


def _parse(content: bytes, root: str) -> Element:
    parser = XMLParser(target=_NoDocumentType())
    parser.feed(_decoded(content))
    element = parser.close()
    if element.tag != root:  # otherwise any XML would be an image without objects
        raise DataError(f"it has the root <{element.tag}>, expected <{root}>")
    return element


class _NoDocumentType(TreeBuilder):
    """Stops at a document type declaration, before any entity is expanded, and at absurd depths."""

    _depth = 0

    def doctype(self, name: str, public_id: str | None, system_id: str | None) -> None:
        raise DataError("it has a <!DOCTYPE>, which is not allowed: delete that line")

    def start(self, tag: str, attributes: dict[str, str]) -> Element:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DataError(f"it has elements within elements, more than {_DEEPEST} deep: export it again")
        return super().start(tag, attributes)

    def end(self, tag: str) -> Element:
        self._depth -= 1
        return super().end(tag)


def _decoded(content: bytes) -> str:
    """The text of a file in the encoding that it declares, of which the parser of Python knows but a few.

    Raises:
        DataError: it is in another encoding.
    """
    declared = _DECLARATION.match(content)
    name = declared[1].decode().lower() if declared else "utf-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    elif content.startswith(codecs.BOM_UTF8) or name.startswith("utf-16"):
        name = "utf-8-sig"  # a declaration that can be read byte by byte is not in UTF-16
    try:
        return content.decode(_LARGER.get(name, name))
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is {content[error.start]:#04x}"
        raise DataError(
            f"it is not in {name}, {'as it declares' if declared else 'as XML is that declares none'} "
            f"({found}): save it as UTF-8, or let its first line declare the encoding, such as "
            '<?xml version="1.0" encoding="gbk"?> ("gbk" is of Chinese, "cp1252" of Western Windows)'
        ) from None
    except LookupError:
        raise DataError(f"it declares the encoding {name!r}, which is unknown: save it as UTF-8") from None
