"""The file of a review: nothing is lost, nobody has an image that another person has."""

import sqlite3
from pathlib import Path

import pytest
from review_cases import CLASSES, new_image

from detector.data.formats import review_import
from detector.data.labeled_box import LabeledBox
from detector.review import store as storing
from detector.review.store import ORDERS, Busy, NewImage, Store
from detector.utils.errors import DataError, UserError


def names(images: list[dict]) -> list[str]:
    return [image["name"] for image in images]


def test_actions_are_in_the_file_when_they_return(store: Store) -> None:
    store.record(1, "ann", [("k1", {"kind": "reject", "id": "d1"})])
    store.record(1, "ann", [("k2", {"kind": "accept_all", "complete": True})])
    (image, *others) = review_import(store.path)
    assert image.complete
    assert [(box.label, box.box) for box in image.true_boxes] == [(CLASSES[0], (10, 10, 30, 40))]
    assert [other.reviewed for other in others] == ["none", "none"]


def test_a_repeated_action_counts_once(store: Store) -> None:
    action = ("k1", {"kind": "point", "label": CLASSES[0], "point": [1, 2]})
    store.record(1, "ann", [action])
    assert len(store.record(1, "ann", [action])["points"]) == 1


def test_of_several_actions_all_or_none_are_written(store: Store) -> None:
    good, bad = {"kind": "accept", "id": "d0"}, {"kind": "accept", "id": "d9"}
    with pytest.raises(DataError, match="no box 'd9'"):
        store.record(1, "ann", [("k1", good), ("k2", bad)])
    assert store.image(1)["actions"] == []
    assert store.record(1, "ann", [("k1", good)])["boxes"][0]["status"] == "accepted"


def test_a_full_disk_loses_nothing_that_was_written(store: Store) -> None:
    store.record(1, "ann", [("k1", {"kind": "accept", "id": "d0"})])
    pages = store._rows("PRAGMA page_count")[0][0]
    store._rows(f"PRAGMA max_page_count = {pages}")
    points = [
        (f"p{i}", {"kind": "point", "label": CLASSES[0], "point": [1.123456789, 2.123456789]})
        for i in range(300)
    ]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.record(1, "ann", points)
    assert len(store.image(1)["actions"]) == 1
    store._rows(f"PRAGMA max_page_count = {2 * pages + 100}")
    assert len(store.record(1, "ann", points)["points"]) == 300


def test_two_people_get_different_images(store: Store) -> None:
    assert names(store.next_images("ann", 2)) == ["0.png", "1.png"]
    assert names(store.next_images("ben", 2)) == ["2.png"]
    with pytest.raises(Busy):
        store.record(1, "ben", [("k", {"kind": "skip"})])
    store.release("ann")
    assert names(store.next_images("ben", 3, held=[3])) == ["0.png", "1.png"]


def test_a_lease_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "LEASE", -1.0)
    store.next_images("ann", 3)
    assert len(store.next_images("ben", 3)) == 3


def test_two_processes_share_the_leases(store: Store) -> None:
    other = Store(store.path, CLASSES)
    store.next_images("ann", 2)
    assert names(other.next_images("ben", 3)) == ["2.png"]


@pytest.mark.parametrize(
    ("order", "options", "expected"),
    [
        ("suggested", {}, ["0.png", "1.png", "2.png"]),
        ("doubtful", {}, ["2.png", "1.png", "0.png"]),
        ("tags", {}, ["1.png", "0.png", "2.png"]),
        ("class", {"label": CLASSES[1]}, ["0.png", "1.png", "2.png"]),
        ("similar", {"near": 2}, ["2.png", "0.png"]),
        ("skipped", {}, []),
    ],
)
def test_orders(store: Store, order: str, options: dict, expected: list[str]) -> None:
    assert names(store.next_images("ann", 9, order=order, **options)) == expected


def test_doubted_tags_come_first(store: Store) -> None:
    car = {CLASSES[1]: 0.9, CLASSES[0]: 0.3}
    store.doubt_tags({"2.png": {CLASSES[0]: 0.4}, "0.png": car})
    images = store.next_images("ann", 9, order="tags")
    assert names(images) == ["0.png", "2.png", "1.png"]
    assert [image["doubts"] for image in images] == [car, {CLASSES[0]: 0.4}, {}]
    store.doubt_tags({"2.png": {CLASSES[0]: 0.4}})
    assert names(store.next_images("ann", 1, order="tags")) == ["2.png"]


def test_all_orders_are_tested() -> None:
    assert {mark for mark, _, _ in test_orders.pytestmark[0].args[1]} == {*ORDERS}


def test_decided_and_skipped_images_are_not_next(store: Store) -> None:
    store.record(1, "ann", [("k1", {"kind": "accept_all", "complete": True})])
    store.record(2, "ann", [("k2", {"kind": "skip"})])
    assert names(store.next_images("ann", 9)) == ["2.png"]
    assert names(store.next_images("ann", 9, order="skipped")) == ["1.png"]
    store.record(1, "ann", [("k3", {"kind": "undo"})])
    assert names(store.next_images("ann", 9)) == ["0.png", "2.png"]


def test_new_boxes_replace_those_of_images_that_nobody_has_begun(store: Store) -> None:
    store.record(1, "ann", [("k1", {"kind": "accept", "id": "d0"})])
    store.add_images([new_image("0.png"), new_image("1.png"), new_image("3.png")], {"weights": "w2"})
    assert [len(store.image(number)["start"]["boxes"]) for number in (1, 2, 3)] == [2, 0, 2]
    assert sorted(store.names().values()) == ["0.png", "1.png", "2.png", "3.png"]
    assert store.get_meta("weights") == "w2"


def test_boxes_that_score_too_low_to_be_shown_are_no_corrections(store: Store) -> None:
    boxes = [LabeledBox(CLASSES[0], (1, 1, 30, 40), score) for score in (0.9, 0.2, 0.1)]
    store.add_images([new_image("new.png", *boxes)], {})
    number = max(store.names())
    store.record(number, "ann", [("1", {"kind": "accept_all", "complete": True, "least": 0.3})])
    assert store.progress()["recent"] == [{"corrections": 0, "boxes": 1, "actions": 1}]
    store.record(number, "ann", [("2", {"kind": "tag", "label": CLASSES[0], "shown": False})])
    assert store.progress()["recent"][0]["corrections"] == 1


def test_corrections_and_undecided_boxes(store: Store) -> None:
    store.record(1, "ann", [("a", {"kind": "accept_all", "complete": True})])
    wrong = [("b", {"kind": "reject", "id": "d1"}), ("c", {"kind": "accept_all", "complete": True})]
    store.record(2, "ann", wrong)
    progress = store.progress()
    assert progress["recent"] == [
        {"corrections": 0, "boxes": 2, "actions": 1},
        {"corrections": 1, "boxes": 1, "actions": 2},
    ]
    assert (progress["total"], progress["decided"], progress["skipped"]) == (3, 2, 0)
    boxes = store.undecided_boxes("ann", CLASSES[1], 9)
    assert [(box["image"], box["id"]) for box in boxes] == [(3, "d1")]
    store.record(3, "ann", [("d", {"kind": "reject", "id": "d1"})])
    assert store.undecided_boxes("ann", CLASSES[1], 9) == []


def new_boxes(number: int) -> NewImage:
    """The image with one box of another detector."""
    new = new_image(f"{number}.png", LabeledBox(CLASSES[0], (1, 1, 20, 20), 0.6), doubt=0.5)
    return new._replace(start=new.start | {"detector": "new-1"})


def test_boxes_get_better_only_where_nobody_has_looked(store: Store) -> None:
    store.next_images("ann", 1)  # is in her browser
    store.record(2, "ben", [("k", {"kind": "reject", "id": "d1"})])
    store.release("ben")
    assert store.outdated("new-1", 9) == ["2.png"]
    assert store.improve([new_boxes(number) for number in range(3)]) == 1
    assert [len(store.image(number)["start"]["boxes"]) for number in (1, 2, 3)] == [2, 2, 1]
    assert store.outdated("new-1", 9) == []
    store.release("ann")
    assert store.outdated("new-1", 9) == ["0.png"]


def test_boxes_of_a_grid_are_in_a_browser_too(store: Store) -> None:
    (box, *_) = store.undecided_boxes("ann", CLASSES[0], 1)
    assert (box["image"], box["detector"]) == (1, "")
    assert store.outdated("new-1", 9) == ["1.png", "2.png"]
    assert [each["image"] for each in store.undecided_boxes("ben", CLASSES[0], 9)] == [2, 3]


def test_an_action_on_boxes_that_are_gone_is_refused(store: Store) -> None:
    store.improve([new_boxes(0)])
    action = {"kind": "accept_all", "complete": True}
    with pytest.raises(Busy, match=r"'0\.png' has other boxes by now"):
        store.record(1, "ann", [("k", action)], seen="")
    assert store.image(1)["actions"] == []
    assert store.record(1, "ann", [("k", action)], seen="new-1")["complete"]
    with pytest.raises(Busy, match="has other boxes"):
        store.record(1, "ann", [("k2", action)], seen="new-0")


def test_another_detector_leaves_images_alone_that_somebody_has_opened(store: Store) -> None:
    store.next_images("ann", 1)
    store.add_images([new_boxes(number) for number in range(3)], {"weights": "w2"})
    assert [len(store.image(number)["start"]["boxes"]) for number in (1, 2, 3)] == [2, 1, 1]


def test_a_file_of_other_classes_or_another_file_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected dog"):
        Store(store.path, ("dog",))
    (tmp_path / "text.sqlite").write_text("no database, but long enough to be looked at" * 50)
    with pytest.raises(UserError, match=r"text\.sqlite"):
        Store(tmp_path / "text.sqlite", CLASSES)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(UserError, match="not one of detector review"):
        Store(tmp_path / "other.sqlite", CLASSES)
