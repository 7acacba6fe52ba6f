"""Recognizes the split that the name of a folder, list, table or column states, in several languages."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath

from detector.data.pictures import IMAGE_SUFFIXES, stem_key
from detector.utils.errors import DataError

TRAIN, VAL = "train", "val"
_TRAIN = {
    *("train", "training", "trainval", "trainvalid", "tr", "trn"),
    *("trainings", "trainingsbilder", "lern", "apprentissage", "entraînement", "entrainement"),
    *("entrenamiento", "treinamento", "treino", "addestramento", "обучение", "обучающая", "тренировка"),
    *("träning", "træning", "trening", "treningowy", "treningowe", "eğitim"),
    *("训练", "訓練", "学習", "학습", "훈련"),
}
_VAL = {
    *("val", "valid", "validation", "validate", "test", "testing", "dev", "eval", "evaluation", "holdout"),
    *("minival", "valminusminival", "vld", "vali", "tst"),
    *(
        "validering",
        "validatie",
        "walidacja",
        "walidacyjny",
        "walidacyjne",
        "testowy",
        "testowe",
        "doğrulama",
    ),
    *("tests", "testbilder", "validierung", "validierungs", "prueba", "pruebas", "validación", "validacion"),
    *("teste", "validação", "validacao", "validazione", "convalida", "тест", "тестовая", "валидация"),
    *("测试", "測試", "验证", "驗證", "テスト", "検証", "테스트", "검증"),
}
# Words beside that of the split which do not change it: train_images, seg_train, ILSVRC2012_img_val.
_FILLER = {
    *("set", "sets", "data", "dataset", "image", "images", "img", "imgs", "picture", "pictures", "photos"),
    *("jpegimages", "split", "splits", "part", "partition", "folder", "public", "private", "final", "k"),
    *("seg", "coco", "ilsvrc", "voc", "obj", "labels", "annotations", "list", "lists", "filelist", "ids"),
    *("daten", "datensatz", "bilder", "données", "donnees", "photos", "ensemble", "jeu", "d", "de", "di"),
    *("datos", "imágenes", "imagenes", "fotos", "conjunto", "dados", "imagens", "dati", "immagini", "dei"),
    *("данные", "выборка", "数据", "数据集", "图片", "圖片", "データ", "画像", "데이터", "이미지"),
}
_ENDINGS = (
    "set",
    "data",
    "datensatz",
    "daten",
    "数据集",
    "数据",
    "集",
    "データ",
    "用",
    "데이터",
)  # trainset, 训练集
_WORD = re.compile(r"[^\W\d_]+")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # PublicTest
_HOLD_OUT = re.compile(r"hold[-_ ]out", re.IGNORECASE)
_IS_SPLIT = re.compile("is[_ ]?(train|training|val|valid|validation|test|testing)(_img|_image|_set)?", re.I)
_SPLIT_COLUMNS = (
    *("split", "set", "subset", "partition", "usage", "data set", "dataset", "data_set", "phase"),
    *("ml_use", "aufteilung"),
)
_YES_NO = {
    "0": False,
    "1": True,
    "0.0": False,
    "1.0": True,
    "false": False,
    "true": True,
    "no": False,
    "yes": True,
}
# -1, 0 or 1 in VOC's lists of a class, a class in those of others; or the annotation: a.jpg a.xml
_BESIDE = re.compile(r"\s+-?\d+$|(?<=\.\w{3})\s+\S+\.(xml|txt|json|png)$", re.IGNORECASE)


def split_and_rest(name: str) -> tuple[str | None, str]:
    """TRAIN, VAL or None, and the other words: ("train", "instances") of instances_train2017.

    If a name has words of both splits, such as train_val, the first one counts.
    """
    name = _HOLD_OUT.sub("holdout", unicodedata.normalize("NFC", name))
    words = [_split_word(word) for word in _WORD.findall(_CAPITAL.sub(" ", name))]
    found = [TRAIN if word in _TRAIN else VAL for word in words if word in _TRAIN | _VAL]
    rest = " ".join(word for word in words if word not in _TRAIN | _VAL)
    return (found[0] if found else None), rest


def split_of(name: str) -> str | None:
    """TRAIN or VAL if the name says nothing else, as train_images; else None."""
    split, rest = split_and_rest(name)
    return split if {*rest.split()} <= _FILLER else None


def split_of_folders(name: str) -> str | None:
    """The split of the first folder in the path of a picture whose name is one."""
    return next(filter(None, map(split_of, PurePosixPath(name.replace("\\", "/")).parts[:-1])), None)


def files_of_splits(files: Iterable[Path]) -> dict[str, list[Path]]:
    """The files of each split, if their names otherwise agree: instances_train.json and instances_val.json.

    Of several such groups, COCO's instances come first, then the one with the fewest other words.
    """
    stated = [(*split_and_rest(file.stem)[::-1], file) for file in files]
    best: dict[str, list[Path]] = {}
    for _, group in groupby(sorted(stated, key=_order), key=lambda entry: entry[0]):
        members = [(split, file) for _, split, file in group]
        if {TRAIN, VAL} <= {split for split, _ in members}:
            best = {
                split: [file for member_split, file in members if member_split == split]
                for split in (TRAIN, VAL)
            }
            break
    return best


def _order(stated: tuple[str, str | None, Path]) -> tuple[bool, int, str, Path]:
    rest, _, file = stated
    return "instances" not in rest.split(), len(rest.split()), rest, file


def _split_word(word: str) -> str:
    """A word in lower case, and "train" for words such as "trainset"."""
    short = word = word.lower()
    for ending in _ENDINGS:
        short = short.removesuffix(ending)
    return short if short in _TRAIN | _VAL else word


def match_lines(lines: Iterable[str], known: Mapping[str, str]) -> tuple[set[str], list[str]]:
    """The pictures that the lines of a list name, and the lines that name none.

    A line is a name with or without suffix, folders and quotes; a number may follow. Names that begin or end
    with blanks are found as well.

    Args:
        known: the result of :func:`by_stem`.
    """
    found, others = set(), []
    for line in filter(str.strip, lines):
        keys = (key for text in (line.strip("\r"), line.strip()) for key in keys_of_line(text))
        if name := next((known[key] for key in keys if key in known), None):
            found.add(name)
        else:
            others.append(line.strip())
    return found, others


def keys_of_line(line: str) -> list[str]:
    """The names without suffix that a line of a list may mean, in the order in which to try them."""
    texts = (line, _BESIDE.sub("", line))
    return [key for text in texts for key in _keys(text.strip("\"'"))]


def _keys(text: str) -> list[str]:
    """The keys by which :func:`by_stem` may know a path, whole first, then with fewer and fewer folders."""
    path = PurePosixPath(unicodedata.normalize("NFC", text.replace("\\", "/")))
    stems = [
        path.as_posix(),
        *([stem_key(path.as_posix())] if path.suffix.lower() in (*IMAGE_SUFFIXES, ".xml") else []),
    ]
    parts = [PurePosixPath(stem).parts for stem in stems]
    return ["/".join(names[start:]) for start in range(len(path.parts)) for names in parts]


def by_stem(names: Iterable[str]) -> dict[str, str]:
    """Map the names of pictures without suffix, in one Unicode form, to the names.

    A name without its folders is a key as well if only one picture has it.
    """
    whole: dict[str, str] = {}
    last: dict[str, str] = {}
    several = set()
    for name in names:
        key = stem_key(name)
        whole[key] = name
        if last.setdefault(key.rpartition("/")[2], name) != name:
            several.add(key.rpartition("/")[2])
    return {key: name for key, name in last.items() if key not in several} | whole


def find_split_column(header: Sequence[str]) -> int:
    """The column of splits of a header; -1: there is none, or two, or no header."""
    found = [
        column
        for column, cell in enumerate(header)
        if _IS_SPLIT.fullmatch(cell) or cell.lower() in _SPLIT_COLUMNS
    ]
    return found[0] if len(header) > 2 and len(found) == 1 and "." not in header[0] else -1


def split_of_cell(text: str, column: str) -> str | None:
    """The split in a cell of a table; a column such as is_test holds 0 or 1, or no and yes.

    Raises:
        DataError: the cell has another value.
    """
    if (named := split_of(column.lower().removeprefix("is"))) is None or column.lower() in _SPLIT_COLUMNS:
        return split_of_value(text)
    if not text:
        return None
    if (is_named := _YES_NO.get(text.lower())) is None:
        raise DataError(f"{column} is {text!r}, expected 0 or 1, or nothing")
    return named if is_named else VAL if named == TRAIN else TRAIN


def split_of_value(text: object) -> str | None:
    """TRAIN or VAL; None for an empty value.

    Raises:
        DataError: it is another value.
    """
    if text in (None, ""):
        return None
    if not isinstance(text, str) or (split := split_of(text)) is None:
        raise DataError(f"the split is {text!r}, expected train, val or test, or nothing")
    return split
