"""`detector init` with spreadsheets of many kinds: each is read at the first attempt."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from detector.commands.main import main
from detector.data.datasets.image_table import picture_name, read_table

PICTURES = [f"Bilder/Fläche {i:02}.jpg" for i in range(16)]
STEMS = [Path(name).stem for name in PICTURES]
BASES = [Path(name).name for name in PICTURES]
TAGS = [("crack",), ("crack", "rust"), ("rust",), ()] * 4
EXPECTED = {base: {*tags} for base, tags in zip(BASES, TAGS, strict=True)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(PICTURES):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(i).integers(0, 255, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "data" / name)
    return tmp_path / "data"


def text_of(rows, separator=","):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator).writerows(rows)
    return file.getvalue()


def beside(*columns):
    return zip(*columns, strict=True)


def flags(yes="1", no="0"):
    return [[yes if label in tags else no for label in ("crack", "rust")] for tags in TAGS]


def excel_of_germany():
    rows = [
        ["Bild", "Fehler", "Prüfer"],
        *([name, ", ".join(tags), "Müller"] for name, tags in beside(BASES, TAGS)),
    ]
    return f"sep=;\r\n{text_of(rows, ';')}".encode("cp1252")


def excel_with_marks():
    rows = [["Datei", "crack", "rust"], *([base, *marks] for base, marks in beside(BASES, flags("x", "")))]
    return text_of(rows, "\t").encode("utf-16")


def pandas_with_an_index_and_lists():
    rows = [[i, name, str(list(tags))] for i, (name, tags) in enumerate(beside(PICTURES, TAGS))]
    return text_of([["", "image", "labels"], *rows])


def kaggle_ids_one_hot():
    rows = [[stem, *marks] for stem, marks in beside(STEMS, flags())]
    return text_of([["image_id", "crack", "rust"], *rows])


def fastai():
    rows = [
        [name, " ; ".join(tags), str(i % 4 == i // 4)] for i, (name, tags) in enumerate(beside(BASES, TAGS))
    ]
    return text_of([["fname", "labels", "is_valid"], *rows])


def google_automl():
    uses = ["TRAIN"] * 8 + ["VALIDATION"] * 4 + ["TEST"] * 4
    rows = [[use, f"gs://bucket/{name}", *tags] for use, name, tags in beside(uses, PICTURES, TAGS)]
    return "\n".join(",".join(row) for row in rows)


def roboflow_multiclass():
    rows = [f"{base}, {crack}, {rust}" for base, (crack, rust) in beside(BASES, flags())]
    return "filename, crack, rust\n" + "\n".join(rows)


def label_studio():
    head = ["annotation_id", "annotator", "choice", "created_at", "id", "image", "lead_time"]
    cells = [json.dumps({"choices": [*tags]}) if len(tags) > 1 else "".join(tags) for tags in TAGS]
    rows = [
        [i + 7, 1, cell, "2024-05-01T10:00:00Z", i, f"/data/upload/1/0a1b2c{i:02x}-{base}", 3.25]
        for i, (cell, base) in enumerate(beside(cells, BASES))
    ]
    return text_of([head, *rows])


def tensorflow_with_a_line_for_each_box():
    rows = [[base, 32, 24, label, 2, 3, 20, 21] for base, tags in beside(BASES, TAGS) for label in tags]
    head = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    return text_of([head, *rows])


def planet_with_blanks_between_tags():
    words = ["clear crack", "clear crack rust", "rust clear", "clear"] * 4
    return text_of([["image_name", "tags"], *beside(STEMS, words)])


def chexpert_with_uncertain_labels():
    rows = [[f"CheXpert-v1.0/train/{name}", 61, *marks] for name, marks in beside(PICTURES, flags("1.0", ""))]
    rows[3][2], rows[3][3] = "-1.0", "0.0"
    return text_of([["Path", "Age", "crack", "rust"], *rows])


def several_columns_of_labels():
    rows = [[i, base, *tags] for i, (base, tags) in enumerate(beside(BASES, TAGS), start=1)]
    return text_of([["Nr.", "Photo", "Label 1", "Label 2"], *rows])


def text_with_pipes_and_no_header():
    return "\n".join(f"C:\\photos\\{base}|{','.join(tags)}" for base, tags in beside(BASES, TAGS))


def numpy_lists_below_a_title():
    rows = [[stem, "[" + " ".join(map(repr, tags)) + "]"] for stem, tags in beside(STEMS, TAGS)]
    return text_of([["Surfaces of 2024", ""], ["", ""], ["Name", "Labels"], *rows])


def kaggle_with_blanks_between_names():
    return text_of([["image_id", "labels"], *beside(STEMS, (" ".join(tags) for tags in TAGS))])


def celeba():
    rows = [" ".join([base, *marks]) for base, marks in beside(BASES, flags("1", "-1"))]
    return "\n".join([str(len(rows)), "crack rust", *rows])


def open_images_with_denied_labels():
    rows = [
        [stem, "verification", label, int(label in tags)]
        for stem, tags in beside(STEMS, TAGS)
        for label in ("crack", "rust")
    ]
    return text_of([["ImageID", "Source", "LabelName", "Confidence"], *rows])


def json_list():
    return json.dumps([{"image": name, "labels": [*tags]} for name, tags in beside(PICTURES, TAGS)])


def json_of_names():
    return json.dumps({base: ", ".join(tags) for base, tags in beside(BASES, TAGS)})


def an_unknown_header_beside_remarks_and_dates():
    rows = [
        [base, f"{i + 1}.5.2024", f"Gang {i}, links", "; ".join(tags)]
        for i, (base, tags) in enumerate(beside(BASES, TAGS))
    ]
    return text_of([["Datei", "Tag der Aufnahme", "Bemerkung", "Was man sieht"], *rows])


SHEETS = [
    (an_unknown_header_beside_remarks_and_dates, "liste.csv"),
    (kaggle_with_blanks_between_names, "train.csv"),
    (celeba, "list_attr.txt"),
    (open_images_with_denied_labels, "human-imagelabels.csv"),
    (json_list, "labels.json"),
    (json_of_names, "tags.json"),
    (numpy_lists_below_a_title, "labels.csv"),
    (excel_of_germany, "labels.csv"),
    (excel_with_marks, "labels.txt"),
    (pandas_with_an_index_and_lists, "df.csv"),
    (kaggle_ids_one_hot, "train.csv"),
    (fastai, "labels.csv"),
    (google_automl, "import.csv"),
    (roboflow_multiclass, "_classes.csv"),
    (label_studio, "project-1-at-2024-05-01.csv"),
    (tensorflow_with_a_line_for_each_box, "train_labels.csv"),
    (planet_with_blanks_between_tags, "train_v2.csv"),
    (chexpert_with_uncertain_labels, "chexpert.csv"),
    (several_columns_of_labels, "Tags.CSV"),
    (text_with_pipes_and_no_header, "list.txt"),
]


def written(folder=Path("mine")):
    rows = [row for split in ("train", "val") for row in read_table(folder / f"{split}.jsonl")[0]]
    return {Path(picture_name(row.file)).name: row for row in rows}


@pytest.mark.parametrize("make", SHEETS, ids=[make.__name__ for make, _ in SHEETS])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_spreadsheet_is_read_at_the_first_attempt(folder, make):
    sheet, name = make
    content = sheet()
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["init", "data", "--labels", name]) == 0
    expected = EXPECTED
    if sheet is planet_with_blanks_between_tags:
        expected = {base: {*tags, "clear"} for base, tags in expected.items()}
    if sheet is tensorflow_with_a_line_for_each_box:  # pictures without boxes have no line
        expected = {base: tags for base, tags in expected.items() if tags}
    rows = written()
    assert {base: {*row.labels} for base, row in rows.items()} == expected
    if sheet is chexpert_with_uncertain_labels:
        assert rows[BASES[3]].unknown == ("crack",)
    if sheet in (google_automl, fastai):
        tested = {Path(picture_name(row.file)).name for row in read_table(Path("mine/val.jsonl"))[0]}
        places = range(8, 16) if sheet is google_automl else [i for i in range(16) if i % 4 == i // 4]
        assert tested == {BASES[i] for i in places}
    if sheet is tensorflow_with_a_line_for_each_box:
        boxed = read_table(Path("mine/val.jsonl"))[0]
        assert all(box.box == (2, 3, 20, 21) for row in boxed for box in row.boxes)


def test_flags_without_names_of_classes_are_an_error(folder, capsys):
    Path("list.txt").write_text("".join(f"{base} 1 -1\n" for base in BASES))
    assert main(["init", "data", "--labels", "list.txt"]) == 2
    assert "2 columns of 0 or 1 are beside each picture, and the line above" in capsys.readouterr().err


def test_denied_labels_and_labels_between_blanks_are_told(folder, capsys):
    for make, told in (
        (open_images_with_denied_labels, "lines with 0 in 'Confidence': the picture does not show it"),
        (kaggle_with_blanks_between_names, "' ' separates labels, as in 'crack rust'"),
    ):
        Path("t.csv").write_text(make())
        assert main(["init", "data", "--labels", "t.csv", "--output", f"{make.__name__}.yaml"]) == 0
        assert told in capsys.readouterr().err


def test_a_workbook_of_excel(folder, capsys, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["Image", "Tags", "Checked on"])
    for base, tags in beside(BASES, TAGS):
        book.active.append([base, "\n".join(tags) or None, None])
    book.save(folder / "tags.xlsx")
    assert main(["init", "data"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


def test_a_workbook_without_openpyxl(folder, capsys, monkeypatch):
    (folder / "tags.xlsx").write_bytes(b"PK")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["init", "data"]) == 2
    error = capsys.readouterr().err
    assert "pip install openpyxl, or save the sheet as CSV UTF-8" in error


def test_numbers_without_their_zeros(folder):
    for i, name in enumerate(PICTURES):
        (folder / name).rename(folder / "Bilder" / f"{i:04}.jpg")
    (folder / "tags.csv").write_text(
        text_of([["Id", "Tags"], *([i, ";".join(t)] for i, t in enumerate(TAGS))])
    )
    assert main(["init", "data"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == {
        f"{i:04}.jpg": {*tags} for i, tags in enumerate(TAGS)
    }


def test_what_was_read_and_decided_is_told(folder, capsys):
    Path("labels.csv").write_bytes(excel_of_germany().replace(b"rust", b"Rust", 1))
    assert main(["init", "data", "--labels", "labels.csv"]) == 0
    told = capsys.readouterr().err
    assert "pictures in 'Bild'; labels in 'Fehler'; not read: Prüfer" in told
    assert "is not UTF-8, and read as Windows-1252" in told
    assert "'Rust' (1) is taken for 'rust' (7)" in told


def test_all_that_is_wrong_is_told_at_once_by_cause(folder, capsys):
    rows = [
        ["file", "crack", "rust", "split"],
        *([base, *marks, "train"] for base, marks in beside(BASES, flags())),
    ]
    rows[1][0] = ""
    rows[2][1] = "maybe"
    rows[3][3] = "both"
    for i in range(4, 9):
        rows[i][0] = f"missing {i}.jpg"
    (folder / BASES[11]).write_text("no picture")
    (folder / BASES[11]).rename(folder / PICTURES[11])
    (folder / "labels.csv").write_text(text_of(rows))
    assert main(["init", "data"]) == 2
    lines = capsys.readouterr().err.splitlines()
    start = next(i for i, line in enumerate(lines) if "labels.csv cannot be used as it is" in line)
    causes = "\n".join(lines[start:])
    assert "1 line: no picture is named: ',1,0,train' (line 2)" in causes
    assert "'maybe' in 'crack' (line 3)" in causes
    assert "1 line: the split cannot be told: the split is 'both', expected train" in causes
    assert "5 lines: no such picture is below data: 'missing 4.jpg' (line 5), " in causes
    assert "... and 2 more" in causes
    assert "the picture cannot be read: Bilder/Fläche 11.jpg (line 13)" in causes
    assert not Path("mine").exists()


def test_the_folder_of_names_that_are_not_there_is_guessed(folder, capsys):
    (folder / "other").mkdir()
    Image.new("RGB", (32, 24)).save(folder / "other" / "a.jpg")
    Path("labels.csv").write_text(text_of([["image", "tag"], *((base, "crack") for base in BASES)]))
    assert main(["init", "data/other", "--labels", "labels.csv"]) == 2
    told = capsys.readouterr().err
    assert f"they are all in {folder / 'Bilder'}: pass that folder instead of" in told


def test_what_precedes_all_names_is_guessed_and_told(folder, capsys):
    for name in PICTURES:
        (folder / name).rename(folder / f"scan_{Path(name).name}")
    rows = [[stem, ";".join(tags)] for stem, tags in beside(STEMS, TAGS)]
    (folder / "labels.csv").write_text(text_of([["id", "tags"], *rows]))
    assert main(["init", "data"]) == 0
    assert "16 names without a picture, such as 'Fläche 00', are read as scan_NAME" in capsys.readouterr().err
    assert {base: {*row.labels} for base, row in written().items()} == {
        f"scan_{base}": {*tags} for base, tags in beside(BASES, TAGS)
    }


def test_of_several_tables_of_kaggle_the_one_with_labels_is_read(folder):
    (folder / "train.csv").write_text(kaggle_ids_one_hot())
    (folder / "test.csv").write_text("image_id\ngone\n")
    (folder / "sample_submission.csv").write_text("image_id,crack,rust\ngone,0.5,0.5\n")
    assert main(["init", "data"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


def test_labels_that_are_not_there_are_named_with_the_nearest_file(folder, capsys):
    Path("Liste.csv").write_text("file,labels\n")
    assert main(["init", "data", "--labels", "Liste.cvs"]) == 2
    assert "error: the labels Liste.cvs do not exist (did you mean Liste.csv?)" in capsys.readouterr().err
