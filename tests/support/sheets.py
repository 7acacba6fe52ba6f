"""Spreadsheets as people and programs write them, all of the same pictures and tags."""

import csv
import io
import json
import zipfile
from pathlib import Path

PICTURES = [f"Bilder/Fläche {i:02}.jpg" for i in range(16)]
STEMS = [Path(name).stem for name in PICTURES]
BASES = [Path(name).name for name in PICTURES]
TAGS = [("crack",), ("crack", "rust"), ("rust",), ()] * 4
EXPECTED = {base: {*tags} for base, tags in zip(BASES, TAGS, strict=True)}


def text_of(rows, separator=","):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator).writerows(rows)
    return file.getvalue()


def workbook(sheets, merged=()):
    """A file of Excel with rows of each sheet, and merged cells such as A2:A4."""
    space = "http://schemas.openxmlformats.org/{}/2006/{}"
    main, office = space.format("spreadsheetml", "main"), space.format("officeDocument", "relationships")
    links = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/{i}.xml"/>'
        for i in range(len(sheets))
    )
    listed = "".join(f'<sheet name="{title}" r:id="r{i}"/>' for i, title in enumerate(sheets))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        package = space.format("package", "relationships")
        start = f'<Relationship Id="r" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        for name, entries in {"_rels/.rels": start, "xl/_rels/workbook.xml.rels": links}.items():
            book.writestr(name, f'<Relationships xmlns="{package}">{entries}</Relationships>')
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>',
        )
        for i, rows in enumerate(sheets.values()):
            cells = "".join(
                "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) + "</row>"
                for row in rows
            )
            areas = "".join(f'<mergeCell ref="{area}"/>' for area in merged)
            book.writestr(
                f"xl/worksheets/{i}.xml",
                f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData>'
                f"<mergeCells>{areas}</mergeCells></worksheet>",
            )
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


WHO = ["Ann Lee", "Ben Roth"] * 8


def a_header_of_ones_own_beside_who_tagged():
    rows = [[base, ", ".join(tags), who] for base, tags, who in beside(BASES, TAGS, WHO)]
    return text_of([["Dateiname", "Tiere und Obst", "Wer"], *rows], ";")


def google_forms():
    rows = [
        [f"2024/05/{i + 1:02} 10:02:33 AM GMT+2", who, base, ", ".join(tags), ""]
        for i, (who, base, tags) in enumerate(beside(WHO, BASES, TAGS))
    ]
    return text_of([["Timestamp", "Your name", "Photo", "What do you see? [all]", "Anything else?"], *rows])


def excel_pivot_with_totals():
    rows = []
    for i, (base, tags) in enumerate(beside(BASES, TAGS)):
        counts = [1 + (i % 3 == 0) if label in tags else "" for label in ("crack", "rust")]
        rows.append([base, *counts, "" if tags else 1, sum(count or 0 for count in counts) or 1])
    total = ["Gesamtergebnis", *(sum(row[i] or 0 for row in rows) for i in range(1, 5))]
    head = [
        ["Anzahl von Tag", "Spaltenbeschriftungen", "", "", ""],
        ["Zeilenbeschriftungen", "crack", "rust", "(Leer)", "Gesamtergebnis"],
    ]
    return text_of([*head, *rows, total], ";")


def airtable_with_attachments():
    rows = [
        [
            f"Record {i}",
            f"{base} (https://v5.airtableusercontent.com/v3/u/{i}/x)",
            ",".join(tags),
            who,
            "checked",
        ]
        for i, (base, tags, who) in enumerate(beside(BASES, TAGS, WHO))
    ]
    return text_of([["Name", "Photo", "What", "Assignee", "Done"], *rows])


def google_sheets_with_boxes_to_tick():
    rows = [
        [base, *marks, "TRUE" if i % 5 else "FALSE", who]
        for i, (base, marks, who) in enumerate(beside(BASES, flags("TRUE", "FALSE"), WHO))
    ]
    return text_of([["Photo", "crack", "rust", "Reviewed", "Photographer"], *rows])


def a_line_for_each_tag_in_a_cell():
    cells = ["\n".join(f"- {tag}" for tag in tags) for tags in TAGS]
    return text_of([["Bild", "Was", "Wer"], *beside(BASES, cells, WHO)], ";")


def numbered_columns_of_ones_own():
    rows = [[base, *tags, *["None"] * (2 - len(tags)), who] for base, tags, who in beside(BASES, TAGS, WHO)]
    return text_of([["image", "Fund 1", "Fund 2", "Wer"], *rows])


def json_of_0_and_1():
    cells = [json.dumps({label: int(label in tags) for label in ("crack", "rust")}) for tags in TAGS]
    return text_of([["filename", "annotation"], *beside(BASES, cells)])


def via_with_boxes_to_tick():
    cells = [json.dumps({"defect": dict.fromkeys(tags, True)}) for tags in TAGS]
    return text_of([["filename", "file_attributes"], *beside(BASES, cells)])


def labelbox():
    cells = [
        json.dumps({"all": [{"featureId": "c1", "title": tag, "value": tag} for tag in tags]})
        for tags in TAGS
    ]
    addresses = [f"https://storage.example.org/a/{base.replace(' ', '%20')}?token=1" for base in BASES]
    return text_of([["ID", "Labeled Data", "Label", "Created By"], *beside(STEMS, addresses, cells, WHO)])


def paths_of_windows_between_a_title_and_a_sum():
    rows = [[f"\\\\server\\Werk 3\\{base}", " / ".join(tags)] for base, tags in beside(BASES, TAGS)]
    head = [["Prüfung Werk 3, Mai 2024", ""], ["", ""], ["Pfad", "Merkmale"]]
    return text_of([*head, *rows, ["", ""], ["Summe: 16 Bilder", "24"], ["Stand: 3.5.2024", ""]], ";")


def two_files_in_one_with_two_marks():
    rows = beside(BASES, map("|".join, TAGS))
    head, *lines = text_of([["url", "tags"], *rows]).splitlines()
    return "\ufeff\ufeff" + "\n".join([head, *lines[:8], head, *lines[8:]])


def remarks_above_the_header():
    rows = text_of([["file", "labels"], *beside(BASES, map(";".join, TAGS))])
    return f"# exported by a program\n# 2024, two people\n{rows}"


def markdown():
    lines = [f"| {base} | {', '.join(tags)} |" for base, tags in beside(BASES, TAGS)]
    return "\n".join(["| File | Defects |", "|------|:-------|", *lines])


def a_line_for_each_persons_answer():
    rows = [
        [base, who, tag]
        for base, tags in beside(BASES, TAGS)
        for who in ("Ann", "Ben")
        for tag in tags or [""]
    ]
    return text_of([["picture", "worker", "seen"], *rows])


def hashtags():
    cells = [" ".join(f"#{tag}" for tag in tags) for tags in TAGS]
    return text_of([["image", "caption tags"], *beside(BASES, cells)])


def classes_in_a_second_row_of_the_header():
    rows = [[base, *marks] for base, marks in beside(BASES, flags("x", ""))]
    return text_of([["Bild", "Fehler", ""], ["", "crack", "rust"], *rows], ";")


def counts_of_objects():
    rows = [[base, *marks] for base, marks in beside(BASES, flags("2", "0"))]
    return text_of([["image", "crack", "rust"], *rows])


def merged_cells_of_names():
    rows = [
        [base if place == 0 else "", tag]
        for base, tags in beside(BASES, TAGS)
        for place, tag in enumerate(tags or [""])
    ]
    return text_of([["Bild", "Fehler"], *rows], ";")


def facts_of_the_project_above():
    rows = [[base, ", ".join(tags), "S1"] for base, tags in beside(BASES, TAGS)]
    above = [["Project", "Surfaces"], ["Date", "2024-05-01"], ["Pictures", "16"], []]
    return text_of([*above, ["Filename", "Defects", "Station"], *rows])


def wildlife_insights():
    head = ["project_id", "image_id", "location", "common_name", "timestamp", "number_of_objects"]
    rows = [
        ["p1", stem, f"gs://x/{stem.replace(' ', '_')}.jpg", tag, "2024-05-01 10:00:00", 1]
        for stem, tags in beside(STEMS, TAGS)
        for tag in tags or [""]
    ]
    return text_of([head, *rows])


def inaturalist():
    head = ["id", "user_login", "quality_grade", "image_url", "scientific_name", "iconic_taxon_name"]
    rows = [
        [i, "ann", "research", f"https://x.org/{base.replace(' ', '%20')}", tag, "Insecta"]
        for i, (base, tags) in enumerate(beside(BASES, TAGS))
        for tag in tags or [""]
    ]
    return text_of([head, *rows])


def json_of_scores():
    scores = [{label: 0.93 if label in tags else 0.02 for label in ("crack", "rust")} for tags in TAGS]
    cells = list(map(json.dumps, scores))
    return text_of([["filename", "predictions"], *beside(BASES, cells)])


def questions_and_answers():
    rows = [[base, *marks, "3.5.2024"] for base, marks in beside(BASES, flags("Ja", "Nein"))]
    return text_of([["Foto", "crack?", "rust?", "Datum"], *rows], ";")


def words_between_tags():
    return text_of([["Bildnummer", "Beobachtung"], *beside(STEMS, map(" und ".join, TAGS))])


def form_with_none_of_these():
    rows = [["t", name, ", ".join(tags) or "None of these"] for name, tags in beside(BASES, TAGS)]
    return text_of([["Timestamp", "File name of your picture", "Which defects can you see?"], *rows])


def yes_and_no_with_nothing_of_it():
    marks = [[*row, "" if "x" in row else "x"] for row in flags("x", "")]
    return text_of(
        [["Bild", "crack", "rust", "nichts davon"], *([n, *m] for n, m in beside(BASES, marks))], ";"
    )


def records_of_france():
    rows = [
        [i, name, "; ".join(tags) or "aucun", ("H. Dupré", "A. Roy")[i % 2], ("flou", "net", "")[i % 3]]
        for i, (name, tags) in enumerate(beside(BASES, TAGS))
    ]
    return text_of([["N°", "Nom du fichier", "Espèce(s) observée(s)", "Observateur", "Remarques"], *rows])


def psql():
    rows = [
        [f" {i}", f" {name:20}", f" {','.join(tags):12}"]
        for i, (name, tags) in enumerate(beside(BASES, TAGS))
    ]
    lines = [" id |       filename       |    labels", "----+----------------------+-------------"]
    return "\n".join([*lines, *(" |".join(row) for row in rows), f"({len(rows)} rows)", ""])


def numbers_of_faults_beside_the_shift():
    codes = {"crack": "10", "rust": "11"}
    rows = [
        [name, ("Früh", "Spät")[i % 2], "/".join(codes[tag] for tag in tags)]
        for i, (name, tags) in enumerate(beside(BASES, TAGS))
    ]
    return text_of([["Bild", "Schicht", "Fehlercode"], *rows], ";")


SHEETS = [
    (form_with_none_of_these, "tags.csv"),
    (yes_and_no_with_nothing_of_it, "tags.csv"),
    (records_of_france, "tags.csv"),
    (psql, "tags.txt"),
    (merged_cells_of_names, "tags.csv"),
    (facts_of_the_project_above, "tags.csv"),
    (wildlife_insights, "tags.csv"),
    (inaturalist, "tags.csv"),
    (json_of_scores, "tags.csv"),
    (questions_and_answers, "tags.csv"),
    (words_between_tags, "tags.csv"),
    (a_header_of_ones_own_beside_who_tagged, "tags.csv"),
    (google_forms, "tags.csv"),
    (excel_pivot_with_totals, "tags.csv"),
    (airtable_with_attachments, "tags.csv"),
    (google_sheets_with_boxes_to_tick, "tags.csv"),
    (a_line_for_each_tag_in_a_cell, "tags.csv"),
    (numbered_columns_of_ones_own, "tags.csv"),
    (json_of_0_and_1, "tags.csv"),
    (via_with_boxes_to_tick, "tags.csv"),
    (labelbox, "tags.csv"),
    (paths_of_windows_between_a_title_and_a_sum, "tags.csv"),
    (two_files_in_one_with_two_marks, "tags.csv"),
    (remarks_above_the_header, "tags.csv"),
    (markdown, "tags.csv"),
    (a_line_for_each_persons_answer, "tags.csv"),
    (hashtags, "tags.csv"),
    (classes_in_a_second_row_of_the_header, "tags.csv"),
    (counts_of_objects, "tags.csv"),
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
