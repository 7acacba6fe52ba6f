"""`detector init --again`: the tables of a config, written anew from labels that have changed."""

import warnings
from pathlib import Path

from detector.data.datasets.image_labels import find_table
from detector.data.datasets.image_table import Row, read_table
from detector.data.datasets.table_writer import replace_table
from detector.data.sources.scene_split import check_split, split_pictures
from detector.data.sources.splits import TRAIN, VAL
from detector.data.sources.table_source import read_source, record_source
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.errors import counted, shortened


def init_again(output: Path, *, skip_missing: bool = False) -> None:
    """Write the tables of a config anew from the source that :func:`init` remembered; the config stays.

    A picture stays in its split, unless the source says which, so that no run is tested on what it learned
    from. Boxes that a person has put into the tables stay where they agree with the labels. The
    previous tables are kept as NAME.jsonl.bak.

    Raises:
        FileNotFoundError, DataError: there are no such tables, or the source cannot be used.
    """
    folder = output.with_suffix("")
    pictures, labels, columns, no_class = read_source(folder)
    tagged, source = find_tags(pictures, labels, skip_missing=skip_missing, named=columns, no_class=no_class)
    before = {split: read_table(find_table(folder, split))[0] for split in (TRAIN, VAL)}
    old = {row.file: (split, row) for split, rows in before.items() for row in rows}
    parts = dict(zip((TRAIN, VAL), split_pictures(tagged)[:2], strict=True))
    if not any(picture.split for picture in tagged):
        everything = [(split, picture) for split, part in parts.items() for picture in part]
        parts = {TRAIN: [], VAL: []}
        for split, picture in everything:
            parts[old[picture.entry][0] if picture.entry in old else split].append(picture)
    check_split(parts[TRAIN], parts[VAL], source)
    dropped, changed = [], 0
    for split, part in parts.items():
        rows = []
        for picture in part:
            boxes = picture.boxes if split == VAL else None
            _, known = old.get(picture.entry, (split, None))
            same_labels = known is not None and {*known.labels} == {*picture.labels}
            changed += not same_labels
            if boxes is None and known is not None and known.boxes is not None:
                boxes = known.boxes if same_labels else None
                dropped += [] if same_labels else [picture.name]
            unknown = () if boxes is not None else picture.unknown
            rows.append(Row(0, picture.entry, picture.labels, boxes, unknown))
        replace_table(find_table(folder, split), rows)
    record_source(folder, pictures, labels, columns, no_class)
    if dropped:
        warnings.warn(
            f"{folder}: the boxes of {counted(len(dropped), 'picture', 'pictures')} contradict the new "
            f"labels and are left out; the previous tables (.bak) still have them: {shortened(dropped, 3)}",
            stacklevel=2,
        )
    gone = len(old.keys() - {picture.entry for picture in tagged})
    print(
        f"labels   {source}: {changed} of {len(tagged)} pictures are new or have other labels, "
        f"{gone} are gone"
    )
    print(f"split    {len(parts[TRAIN])} to train on, {len(parts[VAL])} to test on, as before where known")
    print(f"written  the tables of {folder}; the previous ones are kept as .bak, {output} is unchanged")
    if new := sum(picture.entry not in old for picture in tagged):
        print(
            f"missing  proposals of {counted(new, 'picture', 'pictures')}: delete proposals.npz in {folder}"
        )
    print("note     a run trained with the previous labels cannot be continued: name another OUTPUT_DIR")
