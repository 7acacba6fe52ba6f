"""Finds the pictures below a folder by the names that tables and labeling tools have for them."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from detector.data.pictures import IMAGE_SUFFIXES, files_below, runs_folder

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_UPLOADED = re.compile(
    r"[0-9a-f]{8}-(?=.)", re.IGNORECASE
)  # the prefix that Label Studio adds to uploaded files
_REMARK = re.compile(
    r"(.+\.\w{2,5})\s*[(\[][^()\[\]]*[)\]]"
)  # a.jpg (blurry); Airtable's a.jpg (https://...)
_FORMULA = re.compile(r'=HYPERLINK\(.*[,;]\s*"([^"]+)"\s*\)', re.IGNORECASE)
_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")  # as Excel shows a name such as 2024-05-01


class PictureIndex:
    """Finds pictures by paths with other leading folders, another suffix or other capitals.

    Args:
        folder: what the names are relative to.
        files: the pictures below it.
    """

    def __init__(self, folder: Path, files: Iterable[Path]):
        self.files = tuple(files)
        self.names = tuple(file.relative_to(folder).as_posix() for file in self.files)
        self._by_name: dict[str, list[Path]] = defaultdict(list)  # each with some of its folders
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        self._by_number: dict[int, list[Path]] = defaultdict(list)
        self._by_upload: dict[str, list[Path]] = defaultdict(list)
        in_folder = Counter(file.parent for file in self.files)
        for name, file in zip(self.names, self.files, strict=True):
            for key in _endings(_folded(name)):
                self._by_name[key].append(file)
                self._by_stem[_stem(key)].append(file)
            if file.stem.isdecimal():
                self._by_number[int(file.stem)].append(file)
            elif file.parent.name.isdecimal() and in_folder[file.parent] == 1:  # 4021/medium.jpg
                self._by_number[int(file.parent.name)].append(file)
            self._by_upload[_as_uploaded(_stem(_folded(file.name)))].append(file)

    def find(self, text: str) -> list[Path]:
        """The pictures that a name may mean; several if its folders do not tell which.

        The name may be an address or a path of another machine or system: the longest ending that some
        picture has counts. It may lack the suffix or leading zeros, or be Label Studio's name of an uploaded
        file, `0a1b2c3d-name.jpg`.
        """
        return next(filter(None, map(self._lookup, readings(text))), [])

    def rename(self, names: Sequence[str]) -> list[str]:
        """Replace names by those of the pictures below the folder; names without a picture are unchanged.

        A name is replaced only if it may mean one picture alone, and no other name means the same.
        """
        known = {unicodedata.normalize("NFC", name) for name in self.names}
        others = [name for name in names if unicodedata.normalize("NFC", name) not in known]
        found = {name: self.find(name) for name in others}
        meant = Counter(files[0] for files in found.values() if len(files) == 1)
        places = dict(zip(self.files, self.names, strict=True))
        taken = {*names}
        new = {
            name: places[files[0]]
            for name, files in found.items()
            if len(files) == 1 and meant[files[0]] == 1 and places[files[0]] not in taken
        }
        return [new.get(name, name) for name in names]

    def _lookup(self, text: str) -> list[Path]:
        keys = list(_endings(_folded(text)))
        for by, named in ((self._by_name, keys), (self._by_stem, [_stem(key) for key in keys])):
            for key in named:
                if key in by:
                    return _most_alike(by[key], text)
        if dates := _dates(text):
            return [file for date in dates for file in self._by_stem.get(date, [])]
        number = text.removesuffix(".0")  # of pandas; and Excel keeps no zeros before a number
        if number.isdecimal():
            return _most_alike(self._by_number.get(int(number), []), text)
        return _most_alike(self._by_upload.get(_as_uploaded(_stem(keys[-1])), []), text) if keys else []


def index_folder(folder: Path) -> PictureIndex:
    """The index of all pictures below a folder."""
    return PictureIndex(folder, files_below(folder, IMAGE_SUFFIXES, outside=runs_folder(folder)))


def readings(text: str) -> list[str]:
    """The paths that a name in a file of labels may mean, the most literal first."""
    texts = [text]
    if inside := _REMARK.fullmatch(text) or _FORMULA.fullmatch(text):
        texts = [text, inside[1]]
    elif _ADDRESS.match(text):
        texts = [unquote(urlsplit(text).path), text]
    elif "?d=" in text:  # Label Studio's of a file on its own disk
        texts = [*parse_qs(urlsplit(text).query).get("d", []), text]
    texts += [unquote(text) for text in texts if "%" in text]
    texts = [text.strip().strip("\"'").replace("\\", "/") for text in texts]
    names = (text.rpartition("/")[2] for text in texts)
    texts += [uploaded for name in names if (uploaded := _UPLOADED.sub("", name, count=1)) != name]
    return [text for text in dict.fromkeys(texts) if text.strip("/.")]


def _dates(text: str) -> list[str]:
    """The names that Excel may show as this date: day and month in both orders."""
    if not (found := _DATE.fullmatch(text)):
        return []
    first, second, year = found.groups()
    return [*dict.fromkeys(f"{year}-{a:0>2}-{b:0>2}" for a, b in ((first, second), (second, first)))]


def _most_alike(files: list[Path], text: str) -> list[Path]:
    """Of several files those with the same suffix and capitals as the text, if any; links count once."""
    several = list({file.resolve(): file for file in files}.values())
    if len(several) > 1:
        end = unicodedata.normalize("NFC", text.rpartition("/")[2])
        same = [file for file in several if unicodedata.normalize("NFC", file.name) == end]
        several = same or several
    return several


def _endings(key: str) -> Iterable[str]:
    """A path, and its endings without the first folder, the first two folders, and so on."""
    parts = PurePosixPath(key.strip("/")).parts
    return ("/".join(parts[start:]) for start in range(len(parts)))


def _as_uploaded(stem: str) -> str:
    """A name as web servers keep it: without blanks and signs."""
    return re.sub(r"[^\w.-]", "", stem.replace(" ", "_"))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _stem(key: str) -> str:
    """The name without the suffix of a picture; "v1.2" has none."""
    suffix = PurePosixPath(key).suffix
    return key.removesuffix(suffix) if suffix in IMAGE_SUFFIXES else key
