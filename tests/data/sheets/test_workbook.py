import zipfile

import pytest
from sheets import workbook

from detector.data.sheets.workbook import read_workbook
from detector.utils.errors import DataError

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
)
ODS = (
    f"<office:document-content {SPACES}><office:body><office:spreadsheet><table:table table:name='Tags'>"
    "<table:table-row><table:table-cell office:value-type='string'><text:p>image</text:p></table:table-cell>"
    "<table:table-cell table:number-columns-repeated='2'/>"
    "<table:table-cell office:value-type='string'><text:p>n</text:p></table:table-cell></table:table-row>"
    "<table:table-row><table:table-cell office:value-type='string'><text:p>a.jpg</text:p></table:table-cell>"
    "<table:table-cell office:value-type='boolean' office:boolean-value='true'/>"
    "<table:table-cell office:value-type='date' office:date-value='2024-05-01'/>"
    "<table:table-cell office:value-type='float' office:value='2'/></table:table-row>"
    "<table:table-row table:number-rows-repeated='1048000'><table:table-cell/></table:table-row>"
    "</table:table></office:spreadsheet></office:body></office:document-content>"
)
MANIFEST = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
ENTRIES = {
    "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
    "META-INF/manifest.xml": f"<m:manifest xmlns:m='{MANIFEST}'/>",
    "content.xml": ODS,
}


def test_merged_rows_have_the_text_of_the_first(tmp_path):
    rows = [["a", "b"], ["x", "1"], ["", "2"], ["", ""], ["", "4"]]
    (tmp_path / "t.xlsx").write_bytes(workbook({"T": rows}, ["A2:A3"]))
    assert read_workbook(tmp_path / "t.xlsx") == {
        "T": [(1, ("a", "b")), (2, ("x", "1")), (3, ("x", "2")), (5, ("", "4"))]
    }


def test_cells_are_what_a_person_sees(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.ods", "w") as book:
        for name, text in ENTRIES.items():
            book.writestr(name, text)
    assert read_workbook(tmp_path / "t.ods") == {
        "Tags": [(1, ("image", "", "", "n")), (2, ("a.jpg", "TRUE", "2024-05-01", "2"))]
    }


@pytest.mark.parametrize("content", [b"", b"PK", workbook({"T": []})[:-40]])
def test_what_is_no_workbook_is_an_error(tmp_path, content):
    (tmp_path / "t.xlsx").write_bytes(content)
    with pytest.raises(DataError, match="is no workbook, or damaged"):
        read_workbook(tmp_path / "t.xlsx")
