import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.data.datasets.image_labels import find_table, list_labels
from detector.data.datasets.image_table import picture_name, read_table
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError

BOX = '{"file": "a.jpg", "boxes": [{"label": "cat", "box": [1, 2, 3, %s]}]}'


@pytest.fixture
def table(tmp_path):
    """Writes a table of the split `train`; returns its path."""

    def write(content, suffix=".csv"):
        path = tmp_path / f"train{suffix}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def rows_of(path):
    rows, mistakes = read_table(path)
    mistakes.check()
    return [row[1:4] for row in rows]


def refused(path):
    _, mistakes = read_table(path)
    with pytest.raises(ValueError, match=path.name) as caught:
        mistakes.check()
    return str(caught.value).replace(str(path), path.name)


@pytest.mark.parametrize(
    "start",
    [
        "",
        "\n\r\n,\nfile,labels\n",
        "image,Label\n",
        "file_name,class\n",
        "file,labels\n",
        "File,Label\r\n",
        "\ufeff",
        "\ufefffile,labels\n",
    ],
)
def test_csv_with_and_without_header_and_byte_order_mark(table, start):
    content = (
        f'{start}a.jpg,cat;dog\r\n"one, ""two"".jpg",cat\n\n b c.jpg , cat ; big dog \nd/e.png,\nf.png,,,\n'
    )
    assert rows_of(table(content)) == [
        ("a.jpg", ("cat", "dog"), None),
        ('one, "two".jpg', ("cat",), None),
        ("b c.jpg", ("cat", "big dog"), None),
        ("d/e.png", (), None),
        ("f.png", (), None),
    ]


def test_a_suffix_in_capitals_is_csv_too(table):
    assert rows_of(table("a.jpg,cat", ".CSV")) == [("a.jpg", ("cat",), None)]


def test_json_lines(table):
    content = """
        {"file": "a.jpg", "labels": ["cat", " dog "]}
        {"file": "b.jpg", "labels": "cat; dog"}
        {"file": "c.jpg", "labels": []}

        {"file": "d.jpg", "boxes": [{"label": "cat", "box": [1, 2.5, 3, 4]}, ANT]}
        {"file": "e.jpg", "boxes": []}
        {"file": "f.jpg", "labels": ["cat"], "boxes": [{"label": "cat", "box": [1, 2, 3, 4]}]}
    """.replace("ANT", '{"label": "ant", "box": [0, 0, 1, 1], "difficult": true}')
    cat = LabeledBox("cat", (1.0, 2.5, 3.0, 4.0))
    assert rows_of(table(content, ".jsonl")) == [
        ("a.jpg", ("cat", "dog"), None),
        ("b.jpg", ("cat", "dog"), None),
        ("c.jpg", (), None),
        ("d.jpg", ("ant", "cat"), (cat, LabeledBox("ant", (0, 0, 1, 1), difficult=True))),
        ("e.jpg", (), ()),
        ("f.jpg", ("cat",), (LabeledBox("cat", (1, 2, 3, 4)),)),
    ]


def test_blanks_around_a_name_are_kept_where_it_is_quoted(table):
    assert rows_of(table('{"file": " a.jpg", "labels": ["cat"]}', ".jsonl")) == [(" a.jpg", ("cat",), None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a.jpg", "1 column, expected 2"),
        ("a.jpg;cat", "1 column, expected 2"),
        ("one, two.jpg,cat", "3 columns, expected 2: .*a name that holds a comma needs quotes"),
        ("a.jpg,cat;", "an empty label"),
        ("a.jpg,;cat", "an empty label"),
        ("a.jpg,cat; ;dog", "an empty label"),
        (",cat", "no file name"),
        ("../a.jpg,cat", r"'\.\./a\.jpg' is not a name inside its folder"),
        ("/b/../a.jpg,cat", r"'b/\.\./a\.jpg' is not a name inside its folder"),
        ('"a\nb.jpg",cat', r"'a\\nb\.jpg' has the character '\\n'"),
        ('a.jpg,"cat\ndog"', r"'cat\\ndog' has the character '\\n'"),
        ("a.jpg,cat|dog", r"label 'cat\|dog' holds '\|': several labels are separated by ';'"),
        ('a.jpg,"cat,dog"', "label 'cat,dog' holds ',': several labels are separated by ';'"),
        ("a.jpg,\"['cat', 'dog']\"", r"labels are .*'dog'.*, a list .*, expected names .* such as cat;dog"),
        ("a.jpg,['cat' 'dog']", "a list as a program prints it"),
        ("a.jpg,[]", "nothing where the image shows none of the classes"),
        ('"a".jpg,cat', "not CSV"),
        ('"a.jpg,cat\nb.jpg,cat\n', "not CSV: unexpected end of data"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(table, row, message):
    text = refused(table(f"file,labels\nz.jpg,cat\n{row}"))
    assert text.startswith("train.csv, line 3: ")
    assert re.search(message, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"file": "a.jpg", "labels": ["cat"]', "not JSON: Expecting ',' delimiter at character"),
        ("[1]", "a list, expected an object"),
        ("[" * 99999, "recursion"),
        (BOX % ("1" + 400 * "0"), "too large"),
        (
            '{"file": "a.jpg", "label": ["cat"]}',
            "unknown key 'label'; known are file, labels, unknown, boxes",
        ),
        ('{"file": "a.jpg"}', "no labels"),
        ('{"labels": ["cat"]}', "no file name"),
        ('{"file": 3, "labels": ["cat"]}', "no file name: 3"),
        ('{"file": "../a.jpg", "labels": ["cat"]}', "is not a name inside its folder"),
        (r'{"file": "\ud800.jpg", "labels": ["cat"]}', r"has the character '\\ud800'"),
        ('{"file": "a.jpg", "labels": "cat|dog"}', "separated by ';'"),
        ('{"file": "a.jpg", "labels": 3}', "labels is 3, expected a list"),
        ('{"file": "a.jpg", "labels": ["cat", ""]}', "an empty label"),
        ('{"file": "a.jpg", "labels": [1]}', "an empty label: 1"),
        ('{"file": "a.jpg", "boxes": {}}', "boxes is {}, expected a list"),
        ('{"file": "a.jpg", "boxes": [[1, 2, 3, 4]]}', r"a box is \[1, 2, 3, 4\], expected"),
        ('{"file": "a.jpg", "boxes": [{"label": "cat", "box": [1, 2, 3]}]}', "expected 4 numbers"),
        ('{"file": "a.jpg", "boxes": [{"label": "cat", "box": [1, 2, 3, "4"]}]}', "expected 4 numbers"),
        ('{"file": "a.jpg", "boxes": [{"label": "cat", "box": [1, 2, 3, 4], "hard": 1}]}', "a box is"),
        ('{"file": "a.jpg", "boxes": [{"label": "", "box": [1, 2, 3, 4]}]}', "an empty label"),
        ('{"file": "a.jpg", "labels": ["cat"], "boxes": []}', "'cat' is a label without a box"),
        (
            '{"file": "a.jpg", "labels": [], "boxes": [{"label": "cat", "box": [1, 2, 3, 4]}]}',
            "'cat' is a box but not among the labels",
        ),
    ],
)
def test_a_line_of_json_that_cannot_be_read(table, line, message):
    text = refused(table('{"file": "z.jpg", "labels": []}\n\n' + line, ".jsonl"))
    assert text.startswith("train.jsonl, line 3: ")
    assert re.search(message, text)


def test_unknown_classes(table):
    content = "file,labels,unknown\na.jpg,cat,dog;ant\nb.jpg,cat\nc.jpg,,dog\n"
    rows, _ = read_table(table(content))
    assert [row.unknown for row in rows] == [("dog", "ant"), (), ("dog",)]
    rows, _ = read_table(table('{"file": "a.jpg", "labels": ["cat"], "unknown": ["dog"]}', ".jsonl"))
    assert rows[0].unknown == ("dog",)


@pytest.mark.parametrize(
    ("content", "suffix", "message"),
    [
        ("file,labels,unknown\na.jpg,cat,dog;cat", ".csv", "'cat' is both"),
        ('{"file": "a.jpg", "boxes": [], "unknown": ["cat"]}', ".jsonl", "boxes and unknown"),
        ('{"file": "a.jpg", "labels": [], "unknown": 3}', ".jsonl", "unknown is 3"),
    ],
)
def test_unknown_classes_that_contradict(table, content, suffix, message):
    assert message in refused(table(content, suffix))


def test_a_column_for_each_class(table):
    content = "filename, cat, big dog\na.jpg, 1, 0\nb.jpg, 1.0, 1.0\nc.jpg, 0, 0\n"
    assert rows_of(table(content)) == [
        ("a.jpg", ("cat",), None),
        ("b.jpg", ("cat", "big dog"), None),
        ("c.jpg", (), None),
    ]
    for row in ("d.jpg,1,yes", "d.jpg,1", "d.jpg,1,0,0", "d.jpg,1,"):
        assert "line 5: ['1'" in refused(table(f"{content}{row}\n"))


@pytest.mark.parametrize("header", ["file,class1,class2", ",file,labels", "filename,width,class"])
def test_other_columns_are_one_error(table, header):
    rows = "".join(f"{name}.jpg,cat,dog\n" for name in "abc")
    with pytest.raises(DataError, match=r"line 1: the columns after the first are .*, expected") as caught:
        read_table(table(f"{header}\n{rows}"))
    assert header.split(",")[2] in str(caught.value)


def test_a_label_in_a_list_may_hold_a_comma(table):
    content = '{"file": "a.jpg", "labels": ["tench, Tinca tinca"]}'
    assert rows_of(table(content, ".jsonl")) == [("a.jpg", ("tench, Tinca tinca",), None)]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("header", ["", "file{}labels\n"])
def test_spreadsheets_may_separate_columns_by_something_else(table, separator, header):
    rows = f'a.jpg{separator}"cat;dog"\n"b, c.jpg"{separator}\n'
    expected = [("a.jpg", ("cat", "dog"), None), ("b, c.jpg", (), None)]
    assert rows_of(table(header.format(separator) + rows)) == expected
    shown = [each.replace(",", separator) for each in ("file,cat,dog", "a.jpg,0,1")]
    assert rows_of(table("\n".join(shown))) == [("a.jpg", ("dog",), None)]


def test_semicolons_may_separate_columns_and_labels(table):
    rows = [("a.jpg", ("cat", "dog"), None), ("b.jpg", (), None), ("c.jpg", ("cat",), None)]
    assert rows_of(table("a.jpg;cat;dog\nb.jpg;;\nc.jpg;cat\n")) == rows
    assert read_table(table("file;labels;unknown\na.jpg;cat;dog\n"))[0][0].unknown == ("dog",)
    _, mistakes = read_table(table("file,labels\na.jpg;cat\n"))
    with pytest.raises(DataError, match="line 2: 1 column, expected 2"):
        mistakes.check()
    for first in ("a.jpg;cat,dog", "a.jpg;cat\nb.jpg"):  # the first line decides
        _, mistakes = read_table(table(f"{first}\nb.jpg;cat\n"))
        with pytest.raises(DataError, match="line 2: 1 column, expected 2"):
            mistakes.check()


def test_the_name_of_a_picture_is_a_path_inside_any_folder():
    assert picture_name("./b//a.jpg") == "b/a.jpg"
    assert picture_name("/data/b/a.jpg") == "data/b/a.jpg"
    assert picture_name("/data/./b//a.jpg") == "b/a.jpg"
    assert picture_name("/./data/b/a.jpg") == "data/b/a.jpg"
    for file in ("..", "/", "/../a.jpg", "b/../../a.jpg", "C:\\a.jpg", "/data/.././a.jpg", "/data/./"):
        with pytest.raises(DataError, match="not a name inside"):
            picture_name(file)


def test_ten_mistakes_are_told_at_once(table):
    text = refused(table("\n".join(["a.jpg"] * 12)))
    assert text.count("column, expected") == 10
    assert text.endswith("... and 2 more")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_another_encoding(table, encoding):
    path = table("a.jpg,cat\nü.jpg,cat\n".encode(encoding))
    with pytest.raises(ValueError, match=r"train\.csv is not UTF-8 text \(line [12]"):
        read_table(path)


@pytest.mark.parametrize("content", ["", "\n \n", "file,labels\n", "\ufeff"])
def test_a_table_of_nothing(table, content):
    with pytest.raises(ValueError, match=r"train\.csv"):
        read_table(table(content))


@given(st.lists(st.tuples(st.text(min_size=1), st.lists(st.text('ab;," \n', min_size=1), max_size=3))))
def test_any_table_gives_rows_or_mistakes(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("table") / "train.csv"
    lines = (f"{file},{';'.join(labels)}" for file, labels in content)
    text = "\n".join(["y.jpg,cat", *lines, "z.jpg,cat"])
    path.write_text(text, encoding="utf-8", errors="replace")
    rows, mistakes = read_table(path)
    assert rows or mistakes.found
    assert all(row.file == row.file.strip() != "" for row in rows)
    assert all(label == label.strip() != "" for row in rows for label in row.labels)


def test_the_table_of_a_split(table, tmp_path):
    (tmp_path / "val.jsonl").touch()
    with pytest.raises(FileNotFoundError, match=r"train\.csv nor .*train\.jsonl exists.* val\.jsonl"):
        find_table(tmp_path, "train")
    path = table("a.jpg,cat")
    assert find_table(tmp_path, "train") == path
    table("", ".jsonl")
    with pytest.raises(ValueError, match="keep the one that is meant"):
        find_table(tmp_path, "train")


def test_the_labels_of_a_table(table):
    assert list_labels(*read_table(table("a.jpg,dog;cat\nb.jpg,big dog\nc.jpg,cat\n"))) == (
        "big dog",
        "cat",
        "dog",
    )
    rows, mistakes = read_table(table("a.jpg,dog\nb.jpg,cat\nc.jpg,Dog\n"))
    list_labels(rows, mistakes)
    with pytest.raises(ValueError, match=r"line 3: label 'Dog' .* 'dog' of line 1"):
        mistakes.check()
    with pytest.raises(ValueError, match=r"train\.csv has no label"):
        list_labels(*read_table(table("a.jpg,\n")))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("sep=;\r\nfile;labels\r\na.jpg;cat\r\n", "utf-8-sig"),
        ("SEP=,\nfile,labels\na.jpg,cat\n", "utf-8"),
        ('"sep=;"\na.jpg;cat\n', "utf-8"),
        ("sep=\t\na.jpg\tcat\n", "utf-16"),
        ("file\tlabels\r\na.jpg\tcat\r\n", "utf-16"),
    ],
)
def test_what_excel_writes(table, text, encoding):
    rows, mistakes = read_table(table(text.encode(encoding)))
    assert [(row.file, row.labels) for row in rows] == [("a.jpg", ("cat",))]
    assert not mistakes.found
    assert (
        rows[0].line
        == text.splitlines().index(next(line for line in text.splitlines() if "a.jpg" in line)) + 1
    )
