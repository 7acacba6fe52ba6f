"""`detector init` with spreadsheets of many kinds: each is read at the first attempt."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sheets import (
    BASES,
    EXPECTED,
    PICTURES,
    SHEETS,
    STEMS,
    TAGS,
    WHO,
    airtable_with_attachments,
    beside,
    chexpert_with_uncertain_labels,
    excel_of_germany,
    excel_pivot_with_totals,
    fastai,
    flags,
    google_automl,
    google_sheets_with_boxes_to_tick,
    kaggle_ids_one_hot,
    kaggle_with_blanks_between_names,
    numbers_of_faults_beside_the_shift,
    open_images_with_denied_labels,
    paths_of_windows_between_a_title_and_a_sum,
    planet_with_blanks_between_tags,
    tensorflow_with_a_line_for_each_box,
    text_of,
    workbook,
)

from detector.commands.main import main
from detector.data.datasets.image_table import picture_name, read_table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(PICTURES):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(i).integers(0, 255, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "data" / name)
    return tmp_path / "data"


def written(folder=Path("mine")):
    rows = [row for split in ("train", "val") for row in read_table(folder / f"{split}.jsonl")[0]]
    return {Path(picture_name(row.file)).name: row for row in rows}


PAIRS = [*beside(BASES, TAGS)]


def test_numbers_of_faults_are_the_classes_not_the_shift(folder, capsys):
    Path("faults.csv").write_text(numbers_of_faults_beside_the_shift())
    assert main(["init", "data", "--labels", "faults.csv"]) == 0
    assert "2 classes (10, 11)" in capsys.readouterr().out
    text = Path("faults.csv").read_text()
    Path("faults.csv").write_text(text.replace("Früh;\n", "Früh;0\n").replace("Spät;\n", "Spät;0\n"))
    assert main(["init", "data", "--labels", "faults.csv", "--output", "zero.yaml"]) == 0
    assert "0 will be learned and boxed like every other class" in capsys.readouterr().err


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


def test_the_sheet_of_a_workbook_that_names_pictures_is_read(folder, capsys):
    rows = [["Image", "Tags", "Checked on"], *([b, "\n".join(t), ""] for b, t in beside(BASES, TAGS))]
    (folder / "tags.xlsx").write_bytes(workbook({"About": [["Project", "Belt 2"]], "Tags": rows}))
    assert main(["init", "data"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED
    assert "2 sheets with cells, of which Tags, not About" in capsys.readouterr().err


def test_sheets_with_the_same_header_are_read_one_after_another(folder):
    rows = [[b, ";".join(t)] for b, t in beside(BASES, TAGS)]
    head = [["Image", "Tags"]]
    (folder / "tags.xlsx").write_bytes(workbook({"A": head + rows[:7], "B": head + rows[7:]}))
    assert main(["init", "data"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


def test_a_sheet_for_each_class(folder):
    (folder / "tags.xlsx").write_bytes(
        workbook({c: [["photo"], *([b] for b, t in PAIRS if c in t)] for c in ("crack", "rust")})
    )
    assert main(["init", "data"]) == 0
    found = {base: {*row.labels} for base, row in written().items()}
    assert found == {base: tags for base, tags in EXPECTED.items() if tags}


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
    rows[2][1] = "perhaps"
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
    assert "'perhaps' in 'crack' (line 3)" in causes
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
    assert "labels Liste.cvs does not exist (did you mean Liste.csv?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (excel_pivot_with_totals, "left out as no pictures: 'Gesamtergebnis, "),
        (excel_pivot_with_totals, "numbers such as 2 in 'crack', 'rust' are taken for counts of objects"),
        (paths_of_windows_between_a_title_and_a_sum, "'Summe: 16 Bilder, 24' (line 21), 'Stand: 3.5.2024'"),
        (google_sheets_with_boxes_to_tick, "not read: Reviewed, Photographer"),
        (airtable_with_attachments, "labels in 'What'; not read: Name, Assignee, Done"),
    ],
)
def test_what_is_left_out_is_told(folder, capsys, make, told):
    Path("t.csv").write_text(make())
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert told in capsys.readouterr().err


def two_columns_that_may_be_the_labels(*titles):
    places = ["belt", "floor"] * 8
    return text_of([[*titles], *beside(BASES, ("".join(tags[:1]) for tags in TAGS), places)])


def test_a_column_that_is_not_recognized_is_named_by_an_option(folder, capsys):
    Path("t.csv").write_text(two_columns_that_may_be_the_labels("Datei", "Was da ist", "Unterlage"))
    assert main(["init", "data", "--labels", "t.csv"]) == 2
    told = capsys.readouterr().err
    assert "It may be 'Was da ist' or 'Unterlage': name it, as in --label-column 'Was da ist'" in told
    for number, words in enumerate((["Was da ist"], ["was_da_ist"], ["2"])):
        config = f"{number}.yaml"
        options = [word for name in words for word in ("--label-column", name)]
        assert main(["init", "data", "--labels", "t.csv", "--output", config, *options]) == 0
        assert {base: {*row.labels} for base, row in written(Path(str(number))).items()} == {
            base: {*tags[:1]} for base, tags in beside(BASES, TAGS)
        }
    assert "--label-column 2" in Path("2.yaml").read_text().splitlines()[0]
    assert main(["init", "--again", "--output", "2.yaml"]) == 0  # which remembers the columns


def test_columns_of_one_class_each_and_of_pictures_are_named(folder):
    rows = [[who, base, *marks, "x"] for who, base, marks in beside(WHO, BASES, flags())]
    Path("t.csv").write_text(text_of([["image", "unlikely", "crack", "rust", "cracked"], *rows]))
    words = ["--image-column", "unlikely", "--label-column", "crack", "--label-column", "rust"]
    assert main(["init", "data", "--labels", "t.csv", *words]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


def test_a_column_that_is_not_there_is_an_error(folder, capsys):
    Path("t.csv").write_text(kaggle_ids_one_hot())
    assert main(["init", "data", "--labels", "t.csv", "--label-column", "Tags"]) == 2
    assert (
        "t.csv has no column 'Tags'; its columns are 'image_id': 'Fläche 00', 'crack'"
        in capsys.readouterr().err
    )
    for name in ("cat", "dog"):
        (folder / "classes" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (32, 24), (i, len(name), 0)).save(folder / "classes" / name / f"{name}{i}.png")
    assert main(["init", "data/classes", "--label-column", "Tags"]) == 2
    assert "the labels are folders, one per class: leave them out" in capsys.readouterr().err


def test_a_class_without_a_name_of_a_picture_is_no_sum(folder, capsys):
    rows = [[base, *marks] for base, marks in beside(BASES, flags())]
    Path("t.csv").write_text(text_of([["file", "crack", "rust"], *rows[:-1], ["", "1", "0"]]))
    assert main(["init", "data", "--labels", "t.csv"]) == 2
    assert "1 line: no picture is named: ',1,0' (line 17)" in capsys.readouterr().err


def shifted(every):
    """The first tag of each picture, of which every n-th is another one."""
    tags = [each[0] if each else "dent" for each in TAGS]
    return [tags[i - 1] if i % every == 0 else tag for i, tag in enumerate(tags)]


@pytest.mark.parametrize(
    ("title", "every", "empty", "told"),
    [
        (
            "label_checked",
            5,
            False,
            "'label' is read, not 'label_checked', which differs in 2 lines; if that",
        ),
        ("label_checked", 5, True, "add --label-column label_checked; fill its 14 empty cells first"),
        ("label_corrected", 5, False, "'label_corrected' replaces 'label' where it is filled, 2 lines with"),
        ("final", 5, True, "with another label; --label-column label leaves it out"),
    ],
)
def test_which_of_two_columns_of_labels_is_read_is_told(folder, capsys, title, every, empty, told):
    tags, others = shifted(100), shifted(every)
    if empty:
        others = [new if new != old else "" for old, new in beside(tags, others)]
    Path("t.csv").write_text(text_of([["file", "label", title], *beside(BASES, tags, others)]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert told in capsys.readouterr().err
    if "replaces" in told:
        assert [row.labels[0] for row in map(written().get, BASES)] == [*shifted(every)]
    assert main(["init", "data", "--labels", "t.csv", "--output", "n.yaml", "--label-column", title]) == 0
    assert "is read, not" not in capsys.readouterr().err  # the user has chosen


def test_scores_beside_labels_are_told(folder, capsys):
    scores = [f"0.{50 + i}" for i in range(16)]
    rows = [["file", "label", "confidence"], *beside(BASES, shifted(100), scores)]
    Path("t.csv").write_text(text_of(rows))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert "'confidence', from 0.50 to 0.65, is not read: leave out the lines" in capsys.readouterr().err


def test_answers_of_several_people_that_differ_are_told(folder, capsys):
    answers = [*beside(BASES, shifted(100)), *beside(BASES, shifted(5))]
    yes = [[base, tag == "crack", tag != "crack"] for base, tag in answers]
    for number, rows in enumerate(
        [
            [["file", "label"], *answers],
            [["file", "crack", "other"], *yes],
            [["file", "label"], *answers[:16] * 2],
        ]
    ):
        Path("t.csv").write_text(text_of(rows))
        assert main(["init", "data", "--labels", "t.csv", "--output", f"{number}.yaml"]) == 0
        error = capsys.readouterr().err
        assert ("differ, such as those of" in error) == (number < 2)  # people who agree need no vote
        if number == 0:
            assert "the lines of 2 pictures differ" in error
            assert "a picture gets the labels of all its lines" in error


def test_lines_of_one_label_each_are_no_answers(folder, capsys):
    lines = [[base, tag] for base, tags in beside(BASES, TAGS) for tag in tags or [""]]
    Path("t.csv").write_text(text_of([["file", "label"], *lines]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert "differ, such as" not in capsys.readouterr().err


TEXTS = [f"a {tag} seen at place {i} of the belt" for i, tag in enumerate(shifted(100))]
NUMBERS = [[f"1.{i + j}" for j in range(2)] for i in range(16)]


@pytest.mark.parametrize(
    ("header", "rows", "told"),
    [
        (["description"], [[text] for text in TEXTS], "'description' has texts such as 'a dent seen at"),
        (
            ["label"],
            [[text] for text in TEXTS],
            "expected names of classes, each of which several pictures show",
        ),
        (
            ["weight", "exposure"],
            NUMBERS,
            "scores or codes such as '1.10' in 'weight', 'exposure' do not say",
        ),
        (["width", "height"], [["32", "24"]] * 16, "none of its columns has classes"),
        (
            ["comment_no", "comment"],
            [[f"{i % 2}", text] for i, text in enumerate(TEXTS)],
            "'comment' has texts such as",
        ),
        (
            ["date", "camera"],
            [[f"2024-01-{i:02}", "c1"] for i in range(1, 17)],
            "none of its columns has classes",
        ),
    ],
)
def test_a_table_without_names_of_classes_is_refused_with_advice(folder, capsys, header, rows, told):
    Path("t.csv").write_text(text_of([["file", *header], *([b, *row] for b, row in beside(BASES, rows))]))
    assert main(["init", "data", "--labels", "t.csv"]) == 2
    assert told in capsys.readouterr().err


def crosses(rare="x", header=("photo", "crack", "rust", "dent")):
    """A cross for each class, and two of a rare one."""
    marks = [[*row, {3: rare, 7: "x"}.get(i, "")] for i, row in enumerate(flags("x", ""))]
    return [[*header], *([base, *row] for base, row in beside(BASES, marks))]


def long_form(title, yes, no):
    """A line for each picture and class, with whether it is shown."""
    lines = [
        [base, label, yes if label in tags else no]
        for base, tags in beside(BASES, TAGS)
        for label in ("crack", "rust")
    ]
    return [["filename", "label", title], *lines]


TITLES = [["Inspection 2023", "", "", ""], ["by: A. Berg", "", "as of: 12 Nov", ""], [""] * 4]
ALSO = {BASES[i]: {"dent"} | EXPECTED[BASES[i]] for i in (3, 7)}


def counts(tags, i):
    """Tags with how many objects there are, written in another way in every third picture."""
    return [(tag, f"{tag} x2", f"3x {tag}", f"{tag} (4)")[i % 4] for tag in tags]


def rekognition(tags, also):
    shown = [{"Name": tag, "Confidence": 97.2} for tag in tags]
    return json.dumps([*shown, *([] if also in tags else [{"Name": also, "Confidence": 12.5}])])


COVER = [
    [("2a", "+", "r")[i % 3] if c in tags else "." for c in ("crack", "rust")] for i, tags in enumerate(TAGS)
]
SCORES = [[f"0.9{i}" if c in tags else f"0.0{i}" for c in ("crack", "rust")] for i, tags in enumerate(TAGS)]


def flags_between(yes, no):
    """A column for each class, and one of remarks."""
    header = ["file", "crack", "rust", "remarks"]
    return [header, *([b, *f, "dark"] for b, f in beside(BASES, flags(yes, no)))]


def objects(of_tags):
    """A column with the name of the picture in JSON, and one with its labels."""
    rows = [
        [i, json.dumps(of_tags(t)), json.dumps({"7": {"name": b}})]
        for i, (b, t) in enumerate(beside(BASES, TAGS))
    ]
    return [["classification_id", "annotations", "subject_data"], *rows]


def choices_of_surveymonkey():
    """Two rows of headers, a column of its own name for each choice, and a second question."""
    names = ["Crack", "Rust", "Dent", "None of the above"]
    rows = [["ID", "Picture", "What do you see?", "", "", "", "How sure are you?"]]
    rows.append(["", "Open-Ended Response", *(name.lower() for name in names), "Response"])
    for i, (base, tags) in enumerate(beside(BASES, TAGS)):
        cells = [name.lower() if name.lower() in tags else "" for name in names[:3]]
        rows.append([f"{118 + i}", base, *cells, "" if tags else names[3].lower(), ("Very", "Not")[i % 2]])
    return rows


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["file", "crack", "rust"], *([b, *c] for b, c in beside(BASES, COVER))], EXPECTED),
        ([["file", "crack", "rust"], *([b, *c] for b, c in beside(BASES, SCORES))], EXPECTED),
        (flags_between("found", "not found"), EXPECTED),
        (flags_between("○", "×"), EXPECTED),  # noqa: RUF001
        (flags_between("●", ""), EXPECTED),
        (flags_between("tak", "nie"), EXPECTED),
        (
            [["", "file", "label_crack", "label_rust"]]
            + [[i, b, *f] for i, (b, f) in enumerate(beside(BASES, flags("True", "False")))],
            EXPECTED,
        ),
        (objects(lambda tags: [{"task": "T0", "task_label": "What is it?", "value": [*tags]}]), EXPECTED),
        (objects(lambda tags: [{"value": [{"choice": t, "answers": {"N": "1"}} for t in tags]}]), EXPECTED),
        (crosses("x (behind)"), EXPECTED | ALSO),
        ([["file", *BASES], *([c, *("x" * (c in t) for t in TAGS)] for c in ("crack", "rust"))], EXPECTED),
        (
            [
                ["crack", "rust"],
                *beside(*([b for b, t in beside(BASES, TAGS) if c in t] for c in ("crack", "rust"))),
            ],
            {base: tags for base, tags in EXPECTED.items() if tags},
        ),
        (
            [["class", "images"]]
            + [[c, ", ".join(b for b, t in beside(BASES, TAGS) if c in t)] for c in ("crack", "rust")],
            {base: tags for base, tags in EXPECTED.items() if tags},
        ),
        (
            [["crack:"], *([b] for b in BASES[:8]), ["rust:"], *([b] for b in BASES[8:])],
            {base: {"crack" if i < 8 else "rust"} for i, base in enumerate(BASES)},
        ),
        (
            [["Image_Label", "Pixels"]]
            + [[f"{b}_{c}", "1 2" * (c in t)] for b, t in beside(BASES, TAGS) for c in ("crack", "rust")],
            EXPECTED,
        ),
        (
            [["species", "photo"], *beside((["oak"] + [""] * 7 + ["ash"] + [""] * 7), BASES)],
            {base: {"oak" if i < 8 else "ash"} for i, base in enumerate(BASES)},
        ),
        (
            [["Survey"], ["by: A. Berg", "", "N2"], ["photo", "crack", "rust"], ["", "(n)", "(n)"]]
            + [[b, *f] for b, f in beside(BASES, flags("3", ""))]
            + [["Total", "24", "24"], ["* by eye", "", ""]],
            EXPECTED,
        ),
        (
            [["file", "label", "score"]]
            + [[b, c, 0.9 if c in t else 0.2] for b, t in beside(BASES, TAGS) for c in ("crack", "rust")],
            EXPECTED,
        ),
        (crosses(), EXPECTED | ALSO),
        ([*crosses(), ["Sum", "8", "8", "2"]], EXPECTED | ALSO),  # which is no answer of a rare class
        ([*TITLES, *crosses()], EXPECTED | ALSO),
        (
            [["photo", "crack", "rust"], *([b, *f] for b, f in beside(BASES, flags("present", "absent")))],
            EXPECTED,
        ),
        (
            [["photo", "crack", "rust"]]
            + [
                [base, *(c if c in tags else "" for c in ("crack", "rust"))]
                for base, tags in beside(BASES, TAGS)
            ],
            EXPECTED,
        ),
        (long_form("present", "yes", "no"), EXPECTED),
        (long_form("Anzahl", "3", "0"), EXPECTED),
        (
            [["file", "class", "order", "common_name"]]
            + [[base, "Aves", "Gruiformes", "coot"] for base in BASES[:8]]
            + [[base, "Aves", "Anseriformes", "mute swan"] for base in BASES[8:]],
            {base: {"coot" if i < 8 else "mute swan"} for i, base in enumerate(BASES)},
        ),
        (
            [["file", "tags"], *([base, ";".join(tags) or "\\N"] for base, tags in beside(BASES, TAGS))],
            EXPECTED,
        ),
        (
            [["file", "tags"]]
            + [[base, ";".join(counts(tags, i))] for i, (base, tags) in enumerate(beside(BASES, TAGS))],
            EXPECTED,
        ),
        (
            [["file", "tags"]]
            + [
                [base, rekognition(tags, also="dent" if tags else "rust")]
                for base, tags in beside(BASES, TAGS)
            ],
            EXPECTED,
        ),
        (choices_of_surveymonkey(), EXPECTED),
        (
            [["file", "data.crack", "data.rust", "data.dent", "data.nothing_here"]]
            + [
                [
                    base,
                    *(9 if c in tags else 1 if tags else "" for c in ("crack", "rust", "dent")),
                    "" if tags else 10,
                ]
                for base, tags in beside(BASES, TAGS)
            ],
            EXPECTED,
        ),
        (
            [["id", "photo1", "photo2", "species"]]
            + [[i, BASES[2 * i], BASES[2 * i + 1], ("oak", "ash")[i % 2]] for i in range(8)],
            {base: {("oak", "ash")[i // 2 % 2]} for i, base in enumerate(BASES)},
        ),
        (
            [["photo", "objects"], *([b, ", ".join(f"{c}: {len(t)}" for c in t)] for b, t in PAIRS)],
            EXPECTED,
        ),
        (
            [["photo", "objects"]]
            + [[b, ", ".join(f"{len(t)} {c}{'s' * (len(t) > 1)}" for c in t)] for b, t in PAIRS],
            EXPECTED,
        ),
        ([["image", "labels", ""], *([b, *t] for b, t in PAIRS)], EXPECTED),
        (
            [["photo", "question", "answer"]]
            + [[b, c, "yes" if c in t else "no"] for b, t in PAIRS for c in ("crack", "rust")],
            EXPECTED,
        ),
        (
            [["photo", "crack", "rust"]]
            + [[b, *("1" if c in t else "NA" for c in ("crack", "rust"))] for b, t in PAIRS],
            EXPECTED,
        ),
        (
            [["photo", "crack", "rust"]]
            + [[b, *("93%" if c in t else "4%" for c in ("crack", "rust"))] for b, t in PAIRS],
            EXPECTED,
        ),
        (
            [["photo", "Art_Code", "Art_Name"]]
            + [[b, f"A{i % 2}", ("oak", "ash")[i % 2]] for i, b in enumerate(BASES)],
            {base: {("oak", "ash")[i % 2]} for i, base in enumerate(BASES)},
        ),
        (
            [["Photo", "Pièces visibles"]]
            + [[b, ", ".join({"crack": "salle de bain", "rust": "salle"}[c] for c in t)] for b, t in PAIRS],
            {b: {{"crack": "salle de bain", "rust": "salle"}[c] for c in t} for b, t in PAIRS},
        ),
        (
            [["file", "Dublin Core:Subject", "tags", "public"]]
            + [[b, "|".join(t), "glass plates|donation", "1"] for b, t in PAIRS],
            EXPECTED,
        ),
        (
            [["photo", "crack", "rust"]]
            + [[b, *f] for b, f in beside(BASES[:9], flags("2", "")[:9])]
            + [["Subtotal 1041", "10", "8"]]
            + [[b, *f] for b, f in beside(BASES[9:], flags("2", "")[9:])],
            EXPECTED,
        ),
        (
            [["claim", "foto", "tipo de daño", "gravedad"]]
            + [["", b * (c in t[:1] or not t), c, "leve"] for b, t in PAIRS for c in t or ["ninguno"]],
            EXPECTED,
        ),
        (
            [["photo", "symptoms", "symptoms/crack", "symptoms/rust", "severity", "Portable"]]
            + [
                [b, " ".join(t), *f, i % 4, "YN"[i % 2]]
                for i, ((b, t), f) in enumerate(beside(PAIRS, flags()))
            ],
            EXPECTED,
        ),
        (
            [["Image ID", "Portable", "crack", "rust"]]
            + [[b, "YN"[i % 2], *f] for i, (b, f) in enumerate(beside(BASES, flags("Y", "N")))],
            EXPECTED,
        ),
    ],
    ids=[
        "codes of cover",
        "scores",
        "found",
        "circles",
        "bullets",
        "Polish",
        "dummies",
        "objects",
        "corners",
        "x behind",
        "transposed",
        "columns of pictures",
        "lists of pictures",
        "sections",
        "name and class",
        "merged classes",
        "units",
        "scores of each",
        "crosses",
        "sum",
        "titles",
        "present",
        "own name",
        "present yes",
        "count 0",
        "ranks",
        "null of Postgres",
        "counts behind names",
        "scores of Rekognition",
        "choices of SurveyMonkey",
        "votes of Zooniverse",
        "numbered pictures",
        "counts behind",
        "counts before",
        "ragged",
        "questions",
        "NA",
        "percent",
        "codes and names",
        "blanks in names",
        "the same tags in all",
        "subtotals",
        "lines that go on",
        "forms of Kobo",
        "how it was made",
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_answers_in_other_forms_are_read(folder, rows, expected):
    Path("t.csv").write_text(text_of(rows))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == expected


def test_a_folder_in_a_column_of_its_own_is_before_the_names(folder):
    for i, name in enumerate(PICTURES):
        place = folder / f"Station{i % 2}" / "100EK"
        place.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(place / f"IMG_{i // 2}.jpg")
    rows = [[f"IMG_{i // 2}.jpg", f"Station{i % 2}\\100EK", ";".join(t)] for i, t in enumerate(TAGS)]
    Path("t.csv").write_text(text_of([["File", "RelativePath", "Species"], *rows]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    rows = [row for split in ("train", "val") for row in read_table(Path(f"mine/{split}.jsonl"))[0]]
    assert {picture_name(row.file): row.labels for row in rows} == {
        f"Station{i % 2}/100EK/IMG_{i // 2}.jpg": t for i, t in enumerate(TAGS)
    }


def test_a_number_names_the_picture_alone_in_its_folder(folder):
    for i, name in enumerate(PICTURES):
        place = folder / f"{4000 + i}"
        place.mkdir()
        (folder / name).rename(place / "medium.jpg")
    rows = [["photo_id", "taxon_name"], *([f"{4000 + i}", ";".join(t)] for i, t in enumerate(TAGS))]
    Path("t.csv").write_text(text_of(rows))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    rows = [row for split in ("train", "val") for row in read_table(Path(f"mine/{split}.jsonl"))[0]]
    assert {picture_name(row.file): row.labels for row in rows} == {
        f"{4000 + i}/medium.jpg": t for i, t in enumerate(TAGS)
    }


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (long_form("answer", "yes", "no"), "every picture shows all 2 classes"),
        (
            [["file", "label"], *beside(BASES, ["yes", "no"] * 8)],
            "'label' has no, yes alone, which are no classes",
        ),
        (
            [["file", "cover"], *beside(BASES, ["30 %", "0,5 %"] * 8)],
            "scores or codes such as '0,5 %' in 'cover'",
        ),
        (
            [["photo", "crack"], *beside(BASES, ["x", "?", ""] * 5 + [""])],
            "5 cells such as '?': whether the picture",
        ),
        (
            [["file", "label", "correct (y/n)"], *beside(BASES, shifted(100), ["y", "n"] * 8)],
            "'correct (y/n)' is not read: 8 lines with 'n' count like all others",
        ),
        (
            [["file", "species"], *beside(BASES, ["oak", "to be checked", "ash", "oak"] * 4)],
            "'to be checked': nobody knows what is shown, so 4 pictures are left out",
        ),
        (
            [["file", "labels"], *beside(BASES, ["oak", "ash", "", "ash"] * 4)],
            "4 lines with nothing in 'labels': the picture shows no class",
        ),
        (
            [["file", "tags"], *beside(BASES, ["oak:0.93, ash:0.05", "ash:0.8, oak:0.0"] * 8)],
            "scores behind names, as in 'ash:0.05': from 0.5 or 50% on",
        ),
        (
            [["file", "tags"], *beside(BASES, ["oak (0.93); ash (0.05)", "ash (0.80)"] * 8)],
            "scores behind names, as in 'ash (0.05)'",
        ),
        (
            [["file", "tags"], *beside(BASES, ["oak 80%; ash 90%", "ash 95 %"] * 8)],
            "scores behind names, as in 'ash 90%'",
        ),
        (
            [["filename", "region_attributes"]]
            + [[base, json.dumps({"height": "oak", "quality": {"good": True}})] for base in BASES],
            "has several attributes, 'height', 'quality': which has the classes is not clear",
        ),
        (
            [["file", "species"], *beside(BASES, (["oak"] + [""] * 7 + ["ash"] + [""] * 7))],
            "14 lines without a class have that above them, as merged cells are saved: 'oak', ...",
        ),
        (
            [["file", "label"], *beside(BASES, ["0", "1"] * 8)],
            "the numbers in 'label' stand for the names in classes.txt: 0 for 'oak'",
        ),
        (
            [["file", "label"], *beside(BASES, [*"abcdefgh", *(f"{x}-" for x in "abcdefgh")])],
            "so do 5 more pairs of classes with names nearly alike",
        ),
    ],
)
def test_answers_that_may_be_lost_are_told(folder, capsys, rows, told):
    Path("classes.txt").write_text("oak\nash\n")
    Path("t.csv").write_text(text_of(rows))
    main(["init", "data", "--labels", "t.csv"])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "words", "told"),
    [
        ([["file", "label"]], [], "t.csv has a header, 'file, label', and no line below it"),
        (
            [["file", "label"], *beside(BASES, STEMS)],
            [],
            "each label, such as 'Fläche 00', is that of one alone",
        ),
    ],
)
def test_tables_from_which_nothing_can_be_learned(folder, capsys, rows, words, told):
    Path("t.csv").write_text(text_of(rows))
    assert main(["init", "data", "--labels", "t.csv", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_label_that_is_a_word_of_headers_is_no_header(folder):
    Path("t.csv").write_text(text_of([*beside(BASES, ["defect", "rust"] * 8)]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {label for row in written().values() for label in row.labels} == {"defect", "rust"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", json.dumps({"images": [{"file": b, "tags": t} for b, t in PAIRS]})),
        ("t.json", json.dumps({b: {"labels": t, "by": "me"} for b, t in PAIRS})),
        (
            "t.json",
            json.dumps({"image": dict(enumerate(BASES)), "labels": dict(enumerate(map(";".join, TAGS)))}),
        ),
        (
            "t.json",
            json.dumps(
                {
                    "images": [{"id": b, "file_name": b} for b in BASES],
                    "categories": [{"id": 1, "name": "crack"}, {"id": 2, "name": "rust"}],
                    "annotations": [
                        {"image_id": b, "category_id": 1 + (c == "rust")} for b, t in PAIRS for c in t
                    ],
                }
            ),
        ),
        (
            "t.json",
            json.dumps(
                [
                    {
                        "data": {"image": f"/data/upload/1/0a1b2c3d-{b}"},
                        "annotations": [{"result": [{"type": "choices", "value": {"choices": t}}]}],
                    }
                    for b, t in PAIRS
                ]
            ),
        ),
        (
            "t.json",
            json.dumps(
                {
                    b: {"filename": b, "regions": [{"region_attributes": {"c": x}} for x in t]}
                    for b, t in PAIRS
                }
            ),
        ),
        ("t.jsonl", "\n".join(json.dumps({"file_name": b, "tags": t}) for b, t in PAIRS)),
        (
            "t.jsonl",
            "\n".join(
                json.dumps(
                    {
                        "imageGcsUri": f"gs://a/{b}",
                        "classificationAnnotations": [{"displayName": x} for x in t],
                    }
                )
                for b, t in PAIRS
            ),
        ),
        (
            "t.manifest",
            "\n".join(
                json.dumps(
                    {
                        "source-ref": f"s3://a/{b}",
                        "job": [1],
                        "job-metadata": {"class-map": dict(enumerate(t))},
                    }
                )
                for b, t in PAIRS
            ),
        ),
        ("t.yaml", "".join(f"{b}: [{', '.join(t)}]\n" for b, t in PAIRS)),
        ("t.txt", "".join(f"{b}: {', '.join(t)}\n" for b, t in PAIRS)),
        ("t.txt", "".join(f"{b} -> {';'.join(t)}\n" for b, t in PAIRS)),
        (
            "t.txt",
            "File                Tags         By\n"
            + "".join(f"{b:20}{';'.join(t):13}A. B\n" for b, t in PAIRS),
        ),
        (
            "t.md",
            "# Tags\n\n| Image | Tags |\n|:--|--:|\n"
            + "".join(f"| {b} | {', '.join(t)} |\n" for b, t in PAIRS),
        ),
        (
            "t.html",
            "<html><table><tr><th>Image<th>Tags</tr>"
            + "".join(f"<tr><td><a href='x'>{b}</a></td><td>{'<br>'.join(t)}</td></tr>" for b, t in PAIRS)
            + "</table></html>",
        ),
        (
            "t.xml",
            "<annotations>"
            + "".join(
                f"<image name='{b}'>" + "".join(f"<tag label='{x}'/>" for x in t) + "</image>"
                for b, t in PAIRS
            )
            + "</annotations>",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_of_other_forms_are_read(folder, name, text):
    Path(name).write_text(text, encoding="utf-8")
    assert main(["init", "data", "--labels", name]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


@pytest.mark.parametrize("remark", ["{}\u200b", "{} (blurry)", '=HYPERLINK("http://a/{}", "{}")', "./{}"])
def test_names_with_something_around_them(folder, remark):
    rows = [[remark.replace("{}", base), ";".join(tags)] for base, tags in PAIRS]
    Path("t.csv").write_text(text_of([["photo", "tags"], *rows]), encoding="utf-8")
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {base: {*row.labels} for base, row in written().items()} == EXPECTED


def test_numbers_and_dates_in_the_place_of_names(folder, capsys):
    for i, name in enumerate(PICTURES):
        (folder / name).rename(folder / f"IMG_{i + 1:04}.jpg")
    rows = [[i + 1, ";".join(tags)] for i, tags in enumerate(TAGS)]
    Path("t.csv").write_text(text_of([["Photo No", "tags"], *rows]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert "are read as IMG_NAME" in capsys.readouterr().err
    for i in range(16):
        (folder / f"IMG_{i + 1:04}.jpg").rename(folder / f"2024-05-{i + 13}.jpg")
    rows = [[f"5/{i + 13}/2024", ";".join(tags)] for i, tags in enumerate(TAGS)]
    Path("t.csv").write_text(text_of([["photo", "tags"], *rows]))
    assert main(["init", "data", "--labels", "t.csv", "--output", "dates.yaml"]) == 0
    found = {name: {*row.labels} for name, row in written(Path("dates")).items()}
    assert found == {f"2024-05-{i + 13}.jpg": {*tags} for i, tags in enumerate(TAGS)}


def test_most_of_the_people_who_answered_count_and_no_others(folder):
    rows = [
        [b, who, t]
        for b, tag in beside(BASES, shifted(100))
        for who, t in (("a", tag), ("b", tag), ("c", "odd"))
    ]
    for title, expected in (("annotator", set()), ("remarks", {"odd"})):
        Path("t.csv").write_text(text_of([["file", title, "label"], *rows]))
        assert main(["init", "data", "--labels", "t.csv", "--output", f"{title}.yaml"]) == 0
        assert all(
            {*row.labels} - {"crack", "rust", "dent"} == expected for row in written(Path(title)).values()
        )


def test_emoji_are_classes_like_others(folder, capsys):
    Path("t.csv").write_text(text_of([["file", "label"], *beside(BASES, ["🦝", "🍎"] * 8)]), encoding="utf-8")
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {label for row in written().values() for label in row.labels} == {"🦝", "🍎"}
    told = capsys.readouterr().err
    assert "are they one" not in told
    assert "will be learned" not in told


def test_numbers_that_tell_classes_apart_stay(folder):
    labels = ["BMW x3", "BMW x5", "milk 1.5%", "milk 3.5%"] * 4
    Path("t.csv").write_text(text_of([["file", "label"], *beside(BASES, labels)]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {label for row in written().values() for label in row.labels} == {*labels}


def test_words_for_an_empty_picture_are_no_classes(folder):
    labels = ["oak", "Blank", "ash", "No defect"] * 4
    Path("t.csv").write_text(text_of([["file", "labels"], *beside(BASES, labels)]))
    assert main(["init", "data", "--labels", "t.csv"]) == 0
    assert {label for row in written().values() for label in row.labels} == {"oak", "ash"}


def test_no_class_means_the_label_that_is_written_so(folder):
    Path("t.csv").write_text(text_of([["file", "grade"], *beside(BASES, ["A+", "A-", "A", "B"] * 4)]))
    assert main(["init", "data", "--labels", "t.csv", "--no-class", "A-"]) == 0
    assert {label for row in written().values() for label in row.labels} == {"A+", "A", "B"}
    assert main(["init", "data", "--labels", "t.csv", "--no-class", "b", "--output", "b.yaml"]) == 0
    assert {label for row in written(Path("b")).values() for label in row.labels} == {"A+", "A-", "A"}
