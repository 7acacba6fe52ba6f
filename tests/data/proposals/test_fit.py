import warnings

import numpy as np
import pytest
from sized_images import SizedImages as Images

from detector.data.proposals.fit import fit_proposals
from detector.data.proposals.foreign import ForeignProposals

VOC = Images({"000005": (40, 60), "000012": (30, 20)})
WHOLE = [np.array([[0, 0, 60, 40]], np.float32), np.array([[0, 0, 20, 30]], np.float32)]


def fitted(image_ids, boxes=WHOLE, dataset=VOC):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [
            each.tolist() for each in fit_proposals(ForeignProposals(boxes, image_ids), dataset, "file.pkl")
        ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["000005", "000012"], ["000005", "000012"]),
        (["a.JPG", "b/c.jpeg"], ["a", "b/c"]),
        (["5", "12"], ["000005", "000012"]),
        (["2008000008", "2009000008"], ["2008_000008", "2009_000008"]),
        (["8", "9"], ["2008_000008", "2008_000009"]),
        (["9", "30"], ["COCO_train2014_000000000009", "COCO_train2014_000000000030"]),
        (["COCO_train2014_000000000009", "COCO_train2014_000000000030"], ["9", "30"]),
        (["COCO_train2014_000000000009", "COCO_train2014_000000000030"], ["000000000009", "000000000030"]),
    ],
)
def test_images_are_found_by_name_or_number_in_any_order(theirs, ours):
    dataset = Images(dict(zip(ours, VOC.sizes, strict=True)))
    expected = [each.tolist() for each in WHOLE]
    assert fitted(theirs, dataset=dataset) == expected
    assert fitted([*theirs[::-1], "77"], [*WHOLE[::-1], WHOLE[0]], dataset) == expected


def test_proposals_of_another_image_set_name_the_image():
    with pytest.raises(ValueError, match=r"file\.pkl has no proposals for 1 of 2 .* is '000012'; .*'5'"):
        fitted(["5", "13"])
    with pytest.raises(ValueError, match=r"for 2 of 2 .* is '000005'; .* such as '2008_000005'"):
        fitted(["2008_000005", "2008_000012"])
    with pytest.raises(ValueError, match="names the image '5' more than once"):
        fitted(["5", "5"])


@pytest.mark.parametrize("image_ids", [None, ["000012", "000005"]])
def test_another_order_names_the_image(image_ids):
    boxes = WHOLE[::-1] if image_ids is None else WHOLE
    warned = (
        pytest.warns(UserWarning, match="no image names") if image_ids is None else warnings.catch_warnings()
    )
    with (
        warned,
        pytest.raises(ValueError, match=r"'000012' has the box \[0.0, 0.0, 60.0, 40.0\], .*another order"),
    ):
        fit_proposals(ForeignProposals(boxes, image_ids), VOC, "file.pkl")


def test_files_without_names_are_taken_in_order_with_a_warning():
    with pytest.warns(UserWarning, match=r"file\.mat has no image names: it is read in the order") as warned:
        found = fit_proposals(ForeignProposals(WHOLE, None), VOC, "file.mat")
    assert [each.tolist() for each in found] == [each.tolist() for each in WHOLE]
    assert len(warned) == 1
    with pytest.raises(ValueError, match=r"proposals of 1 images and no names, .*2 images, from '000005'"):
        fit_proposals(ForeignProposals(WHOLE[:1], None), VOC, "file.mat")


def test_proposals_for_larger_copies_name_the_image():
    with pytest.raises(ValueError, match=r"'000005' has the box .* is 60 wide and 40 high: .*another size"):
        fitted(["5", "12"], [2 * each for each in WHOLE])


def test_proposals_for_smaller_copies_are_warned_of():
    with pytest.warns(UserWarning, match="span at most 50 % of the image: were they made"):
        fit_proposals(ForeignProposals([each / 2 for each in WHOLE], ["5", "12"]), VOC, "file.pkl")


@pytest.mark.parametrize(
    "box", [[0, 0, np.nan, 2], [0, 0, np.inf, 2], [3, 0, 2, 2], [0, 3, 2, 2], [-2, 0, 2, 2]]
)
def test_bad_boxes_name_the_image(box):
    boxes = [np.array([[0, 0, 60, 40], box], np.float32), WHOLE[1]]
    with pytest.raises(ValueError, match="'000005' has the box"):
        fitted(["5", "12"], boxes)


def test_boxes_a_pixel_outside_are_clipped_and_empty_ones_dropped():
    boxes = [
        np.array([[-1, -0.5, 61, 40.5], [3, 3, 3, 9], [60, 0, 61, 9]], np.float32),
        np.zeros((0, 4), np.float32),
    ]
    assert fitted(["5", "12"], boxes) == [[[0, 0, 60, 40]], []]
