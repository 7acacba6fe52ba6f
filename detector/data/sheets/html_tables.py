"""Reads the tables of a page of HTML, in which many programs export spreadsheets, some as .xls."""

from html.parser import HTMLParser


class _Tables(HTMLParser):
    """Collects the rows of each table, with the number of the line in which each begins."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[tuple[int, list[str]]]] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self._end_cell()
            self.tables[-1].append((self.getpos()[0], []))
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self._end_cell()
            self._cell = []
        elif tag in ("br", "li", "p") and self._cell:
            self._cell.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._end_cell()

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _end_cell(self) -> None:
        if self._cell is not None:
            self.tables[-1][-1][1].append("".join(self._cell).strip())
        self._cell = None


def read_html(text: str) -> list[list[tuple[int, tuple[str, ...]]]]:
    """The rows of each table that are not empty, each with a number, which increases from row to row."""
    parser = _Tables()
    parser.feed(text)
    parser.close()
    tables = []
    for found in parser.tables:
        rows = [tuple(cells) for _, cells in found if any(cells)]
        tables.append([(number, cells) for number, cells in enumerate(rows, start=1)])
    return tables
