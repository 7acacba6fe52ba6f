"""Finds what the columns of a spreadsheet hold: pictures, class names, one class each, the split, boxes.

Cells count more than headers: a column holds pictures if its cells are names of existing files.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from detector.data.datasets.sheet import SheetRow, columns_of
from detector.data.pictures import IMAGE_SUFFIXES
from detector.data.sources.splits import find_split_column, split_of
from detector.utils.errors import DataError, shortened

# Headers in lower case without blanks and punctuation, the most specific first.
_PICTURE = (
    *(
        "file",
        "filename",
        "filepath",
        "fname",
        "path",
        "fullpath",
        "imagepath",
        "imgpath",
        "imagefile",
        "imgfile",
    ),
    *("imagefilename", "imagename", "imgname", "image", "images", "img", "picture", "photo", "pic", "frame"),
    *("imageurl", "imageuri", "gcsuri", "uri", "url", "name", "imageindex", "imageid", "imgid", "id"),
    *(
        "bild",
        "bilddatei",
        "bildname",
        "bildpfad",
        "datei",
        "dateiname",
        "dateipfad",
        "pfad",
        "foto",
        "aufnahme",
    ),
    *("fichier", "nomfichier", "nomdufichier", "chemin", "imagen", "archivo", "ruta", "nombre", "imagem"),
    *("arquivo", "caminho", "immagine", "nomefile", "файл", "имяфайла", "изображение", "путь", "имя"),
    *("图片", "图像", "文件", "文件名", "路径", "圖片", "画像", "画像名", "ファイル", "ファイル名"),
    *("이미지", "파일", "파일명"),
)
_LABELS = (
    *(
        "labels",
        "label",
        "tags",
        "tag",
        "classes",
        "class",
        "classname",
        "classnames",
        "labelname",
        "labelnames",
    ),
    *(
        "category",
        "categories",
        "categoryname",
        "annotation",
        "annotations",
        "choice",
        "choices",
        "findinglabels",
    ),
    *("regionattributes", "target", "targets", "object", "objects", "species", "breed", "defect", "defects"),
    *("diagnosis", "type", "finding", "findings", "classid", "labelid", "categoryid"),
    *("klasse", "klassen", "kategorie", "kategorien", "fehler", "fehlerart", "defekt", "defekte", "merkmale"),
    *("schlagwort", "schlagworte", "schlagwörter", "etikett", "etiketten", "beschriftung"),
    *("classe", "étiquette", "étiquettes", "etiquette", "catégorie", "catégories", "défaut", "défauts"),
    *("clase", "clases", "etiqueta", "etiquetas", "categoría", "categoria", "categorías", "categorias"),
    *("defecto", "defectos", "classi", "etichetta", "etichette", "difetto", "difetti", "rótulo", "rótulos"),
    *("класс", "классы", "метка", "метки", "категория", "теги", "дефект"),
    *(
        "标签",
        "标记",
        "类别",
        "類別",
        "分类",
        "缺陷",
        "ラベル",
        "クラス",
        "分類",
        "タグ",
        "라벨",
        "레이블",
        "클래스",
        "분류",
        "태그",
    ),
)
_UNKNOWN = ("unknown", "unsure", "unbekannt")
_CONFIRMED = ("confidence", "verified", "present", "value")  # beside a class in each line, as of Open Images
_CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("left", "top", "right", "bottom"),
    ("minx", "miny", "maxx", "maxy"),
    ("bboxx1", "bboxy1", "bboxx2", "bboxy2"),
    ("bboxxmin", "bboxymin", "bboxxmax", "bboxymax"),
    ("roix1", "roiy1", "roix2", "roiy2"),
)
_CORNER_AND_SIZE = (
    ("x", "y", "w", "h"),
    ("bboxx", "bboxy", "bboxw", "bboxh"),
    ("bboxx", "bboxy", "bboxwidth", "bboxheight"),
    ("left", "top", "width", "height"),
)
YES = {
    "1",
    "1.0",
    "x",
    "✓",
    "✔",
    "✗",
    "true",
    "yes",
    "y",
    "t",
    "ja",
    "j",
    "wahr",
    "oui",
    "vrai",
    "si",
    "sí",
    "sim",
    "да",
}
NO = {"", "0", "0.0", "false", "no", "n", "f", "nein", "falsch", "non", "faux", "não", "нет", "-", "nan"}
MAYBE = {"?", "-1", "-1.0"}  # -1 is uncertain where there are 0 and 1, too, as in CheXpert
_MOSTLY = 0.9  # of the cells of a column that are of one kind, where the others are mistakes
_SAMPLE = 300  # rows whose names are looked up to find the column of pictures
_AS_TEXT = re.compile(r"-?\d*[.,]?\d+(e-?\d+)?", re.IGNORECASE)


class Columns(NamedTuple):
    """The columns by what they hold, from 0."""

    first: int  # the first row below the header; 0: there is none
    header: tuple[str, ...]  # of each column, "" without one
    picture: int
    labels: tuple[int, ...]  # names of classes
    classes: tuple[int, ...]  # 0 or 1, or another of YES and NO, for the class of the header
    unknown: int | None
    confirmed: int | None  # 1 or 0: whether the picture shows the class of `labels`
    split: int | None
    boxes: tuple[int, ...]  # four columns, or none
    boxes_have_sizes: bool  # x, y, width, height instead of x1, y1, x2, y2
    left_out: tuple[str, ...]  # headers

    def describe(self) -> str:
        """Which columns are read, for the user."""
        what = [("pictures", [self.picture]), ("labels", self.labels), ("a class each", self.classes)]
        what += [("unknown labels", [self.unknown] if self.unknown is not None else [])]
        what += [("1 or 0 for them", [self.confirmed] if self.confirmed is not None else [])]
        what += [("split", [self.split] if self.split is not None else []), ("boxes", self.boxes)]
        told = [
            f"{name} in {shortened([self.title(i) for i in numbers], 6)}" for name, numbers in what if numbers
        ]
        return "; ".join([*told, *([f"not read: {shortened(self.left_out, 6)}"] if self.left_out else [])])

    def title(self, column: int) -> str:
        return repr(self.header[column]) if self.header[column] else f"column {column + 1}"


def find_columns(rows: Sequence[SheetRow], is_picture: Callable[[str], bool], path: Path) -> Columns:
    """The columns of a table.

    Args:
        rows: at least one.
        is_picture: whether there is a picture that a cell may name.

    Raises:
        DataError: none names pictures, or none classes; the message lists the columns.
    """
    titles = _count_titles(rows, is_picture)
    columns = columns_of(rows[titles:])
    header = tuple(column[0] for column in columns)
    keys = [_key(cell) for cell in header]
    is_header = not any(map(_is_file_name, header)) and (
        any(key in (*_PICTURE, *_LABELS) for key in keys) or not any(map(is_picture, header))
    )
    first = 1 if is_header and len(columns[0]) > 1 else 0
    header, keys = (header, keys) if first else (("",) * len(columns), [""] * len(columns))
    below = [column[first:] for column in columns]
    split = find_split_column(header)
    if split < 0:
        split = next((i for i, cells in enumerate(below) if _are_splits(cells)), -1)
    picture = _find_pictures(below, keys, split, is_picture)
    if picture is None:
        raise DataError(
            f"{path}: none of its columns names pictures ({_shown(header, below)}); the column "
            "with their names needs the header `file`"
        )
    unknown = next((i for i, key in enumerate(keys) if key in _UNKNOWN), None)
    boxes, have_sizes = _find_boxes(below, keys, bool(first), taken={picture, split, unknown})
    taken = {picture, split, unknown, *boxes}
    rest = [i for i, cells in enumerate(below) if i not in taken and any(cells)]
    labels, classes = _find_labels(rest, below, header, keys)
    if not labels and not classes:
        raise DataError(
            f"{path}: none of its columns has the classes ({_shown(header, below)}); give the "
            "column with their names the header `labels`, or each class a column with 0 and 1"
        )
    zeros = (
        i
        for i in rest
        if keys[i] in _CONFIRMED and {*below[i]} <= {"0", "1", "0.0", "1.0"} and {*below[i]} & {"0", "0.0"}
    )
    confirmed = next(zeros, None) if len(labels) == 1 else None
    left_out = [header[i] or f"column {i + 1}" for i in rest if i not in (*labels, *classes, confirmed)]
    return Columns(
        first=titles + first,
        header=header,
        picture=picture,
        labels=tuple(labels),
        classes=tuple(classes),
        unknown=unknown,
        confirmed=confirmed,
        split=None if split < 0 else split,
        boxes=boxes,
        boxes_have_sizes=have_sizes,
        left_out=tuple(left_out),
    )


def names_file_and_labels(header: Sequence[str]) -> bool:
    """Whether a line is the header file,labels or file,labels,unknown, or one with synonyms of these."""
    keys = [_key(cell) for cell in header]
    if len(keys) not in (2, 3):
        return False
    return keys[0] in _PICTURE and keys[1] in _LABELS and all(key in _UNKNOWN for key in keys[2:])


def _count_titles(rows: Sequence[SheetRow], is_picture: Callable[[str], bool]) -> int:
    """How many rows above the header have a single cell, such as "Inventory 2024", as most others do not."""
    filled = [[cell for cell in row.cells if cell] for row in rows]
    if 2 * sum(len(cells) > 1 for cells in filled) < len(rows):
        return 0
    for number, cells in enumerate(filled):
        if len(cells) > 1 or _key(cells[0]) in _PICTURE or _is_file_name(cells[0]) or is_picture(cells[0]):
            return number
    return 0


def allows_several(header: str) -> bool:
    """Whether a header allows several names in a cell: a plural such as "tags", or no header."""
    return not header or _key(header).endswith(
        ("s", "wörter", "worte", "klassen", "etiketten", "теги", "метки")
    )


def flag(cell: str) -> bool | None:
    """Whether a cell of the column of a class says that the picture shows it; None: neither yes nor no."""
    text = cell.casefold()
    return True if text in YES else False if text in NO else None


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", text)).casefold()


def _is_file_name(cell: str) -> bool:
    return cell.lower().endswith(IMAGE_SUFFIXES)


def _are_splits(cells: Sequence[str]) -> bool:
    """Whether a column without a header has splits, such as those of Google: TRAIN, TEST, UNASSIGNED."""
    found = {cell for cell in cells if cell and cell.casefold() != "unassigned"}
    return 0 < len(found) < 6 and all(map(split_of, found)) and all(cells)


def _find_pictures(
    below: Sequence[Sequence[str]], keys: Sequence[str], split: int, is_picture: Callable[[str], bool]
) -> int | None:
    """The column whose cells mostly name pictures; of several, the one with the most specific header."""
    best: list[tuple[int, int, float, int]] = []
    for column, cells in enumerate(below):
        filled = [cell for cell in cells if cell]
        some = filled[:: max(1, len(filled) // _SAMPLE)]
        if not some or column == split:
            continue
        share = sum(map(is_picture, some)) / len(some)
        names = sum(map(_is_file_name, some)) / len(some)
        rank = -_PICTURE.index(keys[column]) if keys[column] in _PICTURE else -len(_PICTURE)
        known = rank > -len(_PICTURE)
        if share > 0 or names >= 0.5 or known:
            # Numbers without a header are pandas' index, even where pictures are called 0.jpg.
            sure = (
                3
                if share >= 0.5 and (known or names > 0)
                else 2
                if share >= 0.5
                else 1
                if names >= 0.5
                else 0
            )
            best.append((sure, rank, share, -column))
    return -max(best)[3] if best else None


def _find_boxes(
    below: Sequence[Sequence[str]], keys: Sequence[str], has_header: bool, taken: set[int | None]
) -> tuple[tuple[int, ...], bool]:
    """The four columns of boxes, and whether they are x, y, width and height."""
    for forms, have_sizes in ((_CORNERS, False), (_CORNER_AND_SIZE, True)):
        for form in forms:
            if all(key in keys for key in form):
                return tuple(keys.index(key) for key in form), have_sizes
    numbers = [i for i, cells in enumerate(below) if i not in taken and any(cells) and _are_numbers(cells)]
    if not has_header and len(numbers) == 4:  # a.jpg,x1,y1,x2,y2,cat; Google's has empty columns between
        x1, y1, x2, y2 = ([_number(cell) for cell in below[i]] for i in numbers)
        if all(a <= c and b <= d for a, b, c, d in zip(x1, y1, x2, y2, strict=True)):
            return tuple(numbers), False
    return (), False


def _find_labels(
    rest: Sequence[int], below: Sequence[Sequence[str]], header: Sequence[str], keys: Sequence[str]
) -> tuple[list[int], list[int]]:
    """The columns of class names, and the columns of one class each."""
    flags = [i for i in rest if header[i] and _are_flags(below[i])]
    texts = [i for i in rest if i not in flags and not _is_index(below[i], header[i])]
    named = [i for i in texts if re.sub(r"\d+$", "", keys[i]) in _LABELS]
    if named:
        # Of label and class_id the one with words counts; of tag1 and tag2 both.
        words = [i for i in named if not _are_numbers(below[i])] or named
        best = min((re.sub(r"\d+$", "", keys[i]) for i in words), key=_LABELS.index)
        return [i for i in words if re.sub(r"\d+$", "", keys[i]) == best], []
    if flags:
        if len(flags) == 1 and keys[flags[0]] in _LABELS:
            return flags, []  # 0 and 1 are the names of two classes
        return [], flags
    words = [i for i in texts if not _are_numbers(below[i])]
    if not any(header):
        return (words or texts), []
    # Of remarks, dates and classes only the last are words that come again and again.
    repeated = [i for i in words if _are_repeated_words(below[i])]
    return next((columns for columns in (words, texts, repeated) if len(columns) == 1), []), []


def _are_flags(cells: Sequence[str]) -> bool:
    found = [cell.casefold() for cell in cells if cell]
    known = sum(cell in YES or cell in NO or cell in MAYBE for cell in found)
    return known >= _MOSTLY * len(found) and any(
        cell in YES or cell in ("0", "0.0", "false") for cell in found
    )


def _are_repeated_words(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    with_letters = sum(any(map(str.isalpha, cell)) for cell in filled)
    return with_letters >= _MOSTLY * len(filled) and 2 * len(set(filled)) <= len(filled)


def _is_index(cells: Sequence[str], header: str) -> bool:
    """Whether a column counts its rows, as pandas writes it."""
    whole = [int(cell) for cell in cells if cell.isdecimal()]
    return (
        len(whole) == len(cells) > 1
        and _key(header) in ("", "index", "unnamed0", "nr", "no", "id")
        and all(b == a + 1 for a, b in pairwise(whole))
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(_AS_TEXT.fullmatch(cell) for cell in cells if cell)


def _number(cell: str) -> float:
    return float(cell.replace(",", ".")) if cell else 0.0


def _shown(header: Sequence[str], below: Sequence[Sequence[str]]) -> str:
    """The columns by header and first cell, for an error."""
    firsts = [next(filter(None, cells), "") for cells in below]
    columns = [
        f"{name!r}: {cell[:40]!r}" if name else repr(cell[:40])
        for name, cell in zip(header, firsts, strict=True)
    ]
    return shortened(columns, 8)
