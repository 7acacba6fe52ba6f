import io
import zipfile

import pytest
from sheets import workbook

from detector.data.sheets.workbook import read_workbook
from detector.utils.errors import DataError

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
)
ODS = """
<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name="Tags">
<table:table-row><table:table-cell office:value-type="string"><text:p>image</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="2"/><table:table-cell><text:p>n</text:p></table:table-cell>
</table:table-row>
<table:table-row><table:table-cell table:number-rows-spanned="2"><text:p>a.jpg</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="2" office:value-type="boolean"><text:p>TRUE</text:p>
</table:table-cell><table:table-cell office:value-type="float" office:value="2"><text:p>2,0</text:p>
</table:table-cell></table:table-row>
<table:table-row><table:covered-table-cell/><table:table-cell office:date-value="2024-05-01"
office:value-type="date"><text:p>1. Mai</text:p></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="1048000"><table:table-cell/></table:table-row>
</table:table></office:spreadsheet></office:body></office:document-content>
"""


def test_merged_rows_have_the_text_of_the_first(tmp_path):
    rows = [["a", "b"], ["x", "1"], ["", "2"], ["", ""], ["", "4"]]
    (tmp_path / "t.xlsx").write_bytes(workbook({"T": rows}, ["A2:A3"]))
    assert read_workbook(tmp_path / "t.xlsx") == {
        "T": [(1, ("a", "b")), (2, ("x", "1")), (3, ("x", "2")), (5, ("", "4"))]
    }


def test_cells_of_libreoffice(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.ods", "w") as book:
        book.writestr("content.xml", ODS.format(spaces=SPACES).strip())
    assert read_workbook(tmp_path / "t.ods") == {
        "Tags": [
            (1, ("image", "", "", "n")),
            (2, ("a.jpg", "TRUE", "TRUE", "2")),
            (3, ("a.jpg", "2024-05-01", "", "")),
        ]
    }


@pytest.mark.parametrize("content", [b"PK", workbook({"T": []})[:-40]])
def test_what_is_no_workbook_is_an_error(tmp_path, content):
    (tmp_path / "t.xlsx").write_bytes(content)
    with pytest.raises(DataError, match="is no workbook, or damaged"):
        read_workbook(tmp_path / "t.xlsx")


def test_a_workbook_is_read_as_openpyxl_reads_it(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    from datetime import datetime

    book = openpyxl.Workbook()
    book.active.title = "T"
    rows = [
        ["name", "n", "day", "ok"],
        ["a & b", 2.5, datetime(2024, 5, 1), True],
        ["c", 7, datetime(2024, 5, 1, 8), None],
    ]
    for row in rows:
        book.active.append(row)
    file = io.BytesIO()
    book.save(file)
    (tmp_path / "t.xlsx").write_bytes(file.getvalue())
    assert read_workbook(tmp_path / "t.xlsx")["T"] == [
        (1, ("name", "n", "day", "ok")),
        (2, ("a & b", "2.5", "2024-05-01", "TRUE")),
        (3, ("c", "7", "2024-05-01 08:00:00", "")),
    ]
