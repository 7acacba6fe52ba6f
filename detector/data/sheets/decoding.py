"""Decodes tables of text in the encodings that spreadsheets of different countries write."""

import codecs
import re
import warnings
from pathlib import Path

from detector.data.sheets.words import LABELS, PICTURE, header_key

# Of Japanese, Chinese and Korean, with letters that tell them from other texts.
_ENCODINGS = {"cp932": r"[\u3040-\u30fa\u30fc]", "gb18030": r"[\u4e00-\u9fff]", "euc_kr": r"[\uac00-\ud7a3]"}
# Letters, signs and marks of these, without those of half width and of private use, as which bytes of
# other encodings may be read.
_PLAUSIBLE = r"[\u2010-\u27bf\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60\xd7]"
_MOSTLY = 0.95
_TOGETHER = 0.8  # share of bytes beyond ASCII that stand beside another, as where two are a letter


def decode(content: bytes, path: Path, *, warn: bool = True) -> str:
    """The text of a table: UTF-8, UTF-16 with or without a mark, else an older encoding, with a warning."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    start = content[:4000]
    if b"\0" in start:
        little = start[1::2].count(0) > start[::2].count(0)
        return content.decode("utf-16-le" if little else "utf-16-be", errors="replace")
    try:
        return content.decode().replace("\ufeff", "")  # a mark before each of several files that were joined
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    name, text = _east_asian(content) or ("Windows-1252", content.decode("cp1252", errors="replace"))
    if warn:
        shown = text.splitlines()[line - 1].strip()[:80]
        warnings.warn(
            f"{path} is not UTF-8, and read as {name}, in which Excel writes CSV: line {line} is {shown!r} "
            "then; if that is wrong, save it as CSV UTF-8",
            stacklevel=4,
        )
    return text


def _east_asian(content: bytes) -> tuple[str, str] | None:
    """The encoding of a Japanese, Korean or Chinese text, and the text; None: it is in an alphabet.

    Of several that fit, it is the one in which the first line has words of headers, else the first.
    """
    found = []
    for name, letters in _ENCODINGS.items():
        try:
            text = content.decode(name)
        except UnicodeDecodeError:
            continue
        beyond = re.findall(r"[^\x00-\x7f]", text)
        if re.search(letters, text) and len(re.findall(_PLAUSIBLE, text)) > _MOSTLY * len(beyond):
            known = {*map(header_key, re.split(r"[,;\t|]", text.split("\n")[0]))} & {*PICTURE, *LABELS}
            found.append((len(known), name, text))
    runs = [len(run) for run in re.findall(rb"[\x80-\xff]+", content)]
    together = sum(run for run in runs if run > 1) >= _TOGETHER * sum(runs)
    found = [entry for entry in found if together or entry[1] == "cp932"]  # whose pairs may end in ASCII
    return max(found, key=lambda entry: entry[0])[1:] if found else None
