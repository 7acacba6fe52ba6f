import resource

import pytest

from detector.utils.errors import DataError, UserError
from detector.utils.records import ImageRecords, append_record, read_records


def test_a_torn_or_damaged_line_is_left_out_with_a_warning(tmp_path, caplog):
    path = tmp_path / "results.jsonl"
    for number in range(3):
        append_record(path, {"number": number, "values": [0.5] * 3})
    with open(path, "ab") as file:
        file.write(b'0123abcd {"number": 3, "val')  # the line that a kill tore
    append_record(path, {"number": 4})
    assert [record["number"] for record in read_records(path)] == [0, 1, 2, 4]
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6", 1))
    caplog.clear()
    assert [record["number"] for record in read_records(path)] == [1, 2, 4]
    assert f"{path}: line 2 is damaged" in caplog.text


def test_a_full_disk_is_an_error_that_names_the_file_which_stays_usable(tmp_path):
    path = tmp_path / "results.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    append_record(path, {"name": "a"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*results\.jsonl: "):
            append_record(path, {"name": "b", "values": "x" * 9999})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    append_record(path, {"name": "c"})
    assert [record["name"] for record in read_records(path)] == ["a", "c"]


def test_a_link_is_not_written_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(UserError, match="symbolic link"):
        append_record(tmp_path / "link", {})


def test_records_of_images_are_read_by_their_id(tmp_path, caplog):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    append_record(first, {"parameters": 1})
    for name, value in (("x", 0), ("y", 1), ("x", 2)):
        append_record(first, {"image_id": name, "value": value})
    append_record(second, {"image_id": "z", "value": 3})
    records = ImageRecords([first, second])
    assert list(records) == ["x", "y", "z"]
    assert [records[name]["value"] for name in records] == [2, 1, 3]  # the last of x
    assert "parameters" not in records
    with pytest.raises(KeyError):
        records["w"]
    assert not caplog.text
    first.write_bytes(first.read_bytes()[1:])
    with pytest.raises(DataError, match=r"a\.jsonl was changed while it was in use"):
        records["y"]
