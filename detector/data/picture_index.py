"""The pictures below a folder by what tables and labeling tools call them."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from detector.data.pictures import IMAGE_SUFFIXES

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)", re.IGNORECASE)  # what Label Studio puts before an uploaded file


class PictureIndex:
    """Finds pictures by a path whose first folders, suffix or capitals are others than theirs.

    Args:
        folder: what the names are relative to.
        files: the pictures below it.
    """

    def __init__(self, folder: Path, files: Iterable[Path]):
        self.files = tuple(files)
        self.names = tuple(file.relative_to(folder).as_posix() for file in self.files)
        self._by_name: dict[str, list[Path]] = defaultdict(list)  # each with some of its folders
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for name, file in zip(self.names, self.files, strict=True):
            for key in _endings(_folded(name)):
                self._by_name[key].append(file)
                self._by_stem[_stem(key)].append(file)

    def find(self, text: str) -> list[Path]:
        """The pictures that a name may mean; several: the folders in it do not tell which.

        The name may be an address, or a path of another machine or system: as many of its last parts are
        compared as agree with a picture. It may lack the suffix, or be Label Studio's of an uploaded file,
        `0a1b2c3d-name.jpg`.
        """
        return next(filter(None, map(self._lookup, readings(text))), [])

    def _lookup(self, text: str) -> list[Path]:
        keys = list(_endings(_folded(text)))
        for by, named in ((self._by_name, keys), (self._by_stem, [_stem(key) for key in keys])):
            for key in named:
                if key in by:
                    return _meant(by[key], text)
        return []


def readings(text: str) -> list[str]:
    """What a name in a file of labels may stand for, the most literal first."""
    texts = [text]
    if _ADDRESS.match(text):
        texts = [unquote(urlsplit(text).path), text]
    elif "?d=" in text:  # Label Studio's of a file on its own disk
        texts = [*parse_qs(urlsplit(text).query).get("d", []), text]
    texts += [unquote(each) for each in texts if "%" in each]
    texts = [each.strip().strip("\"'").replace("\\", "/") for each in texts]
    names = (each.rpartition("/")[2] for each in texts)
    texts += [uploaded for name in names if (uploaded := _UPLOADED.sub("", name, count=1)) != name]
    return [text for text in dict.fromkeys(texts) if text.strip("/.")]


def _meant(files: list[Path], text: str) -> list[Path]:
    """Of several files those with the suffix or the capitals of the text, if there are; links count once."""
    several = list({file.resolve(): file for file in files}.values())
    if len(several) > 1:
        end = unicodedata.normalize("NFC", text.rpartition("/")[2])
        same = [file for file in several if unicodedata.normalize("NFC", file.name) == end]
        several = same or several
    return several


def _endings(key: str) -> Iterable[str]:
    """A path, and what is left of it without more and more of its first folders."""
    parts = PurePosixPath(key.strip("/")).parts
    return ("/".join(parts[start:]) for start in range(len(parts)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _stem(key: str) -> str:
    """The name without the suffix of a picture; "v1.2" has none."""
    suffix = PurePosixPath(key).suffix
    return key.removesuffix(suffix) if suffix in IMAGE_SUFFIXES else key
