"""Reading of XML files without document type declarations."""

from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder, XMLParser, parse

from detector.utils.errors import DataError
from detector.utils.files import reading

# Levels of elements; files of annotations have about six. Python would overflow its stack at 100,000.
_DEEPEST = 100


def parse_xml(path: Path, root: str) -> Element:
    """The root element of a file.

    Raises:
        OSError, DataError: the file cannot be read, is not valid XML, has another root than `root`, or
            declares a document type, whose entities could name other files or expand to gigabytes.
    """
    with reading(path, "annotation"):
        element = parse(path, XMLParser(target=_NoDocumentType())).getroot()
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
