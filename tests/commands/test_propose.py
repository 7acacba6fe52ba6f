"""The search for proposals is chosen by known boxes."""

import json

import numpy as np
import pytest
from PIL import Image

from detector.commands.main import main

SIZE = 96


@pytest.fixture
def boards(tmp_path):
    """Images of stripes with two small blobs each, and a COCO file with the boxes of the blobs."""
    (tmp_path / "images").mkdir()
    content = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "blob"}]}
    for number in range(3):
        pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
        pixels[:, ::12] = pixels[:, 1::12] = 255
        content["images"].append({"id": number, "file_name": f"{number}.png", "height": SIZE, "width": SIZE})
        for x, y in ((10 + 8 * number, 12), (50, 60 + 5 * number)):
            pixels[y : y + 8, x : x + 10] = 255
            box = {"id": len(content["annotations"]), "image_id": number, "category_id": 1, "iscrowd": 0}
            content["annotations"].append({**box, "bbox": [x - 1, y - 1, 12, 10], "area": 120})
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    return tmp_path


def tune(folder, boxes):
    return main(["propose", "--images", str(folder / "images"), "--tune", str(boxes)])


def test_of_equal_recalls_that_of_fewest_proposals_wins(boards, capsys):
    assert tune(boards, boards / "boxes.json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "6 boxes in 3 images; at most 4096 proposals count"
    trials = {line.split("PROPOSALS.MODE ")[1]: line.split()[:2] for line in lines[2:8]}
    winner = "quality PROPOSALS.LONGEST_SIDE 300 PROPOSALS.MIN_REGION 20"
    assert next(iter(trials)) == winner
    assert trials["corners PROPOSALS.SIDES (10.0, 12.0)"][0] == trials[winner][0] == "1.000"
    assert int(trials["corners PROPOSALS.SIDES (10.0, 12.0)"][1]) > int(trials[winner][1])
    assert lines[-4:] == ["PROPOSALS:", "  MODE: quality", "  LONGEST_SIDE: 300", "  MIN_REGION: 20"]
    assert sorted(path.name for path in boards.iterdir()) == ["boxes.json", "images"]


def test_boxes_of_other_images_are_an_error(boards, capsys):
    content = json.loads((boards / "boxes.json").read_text())
    for image in content["images"]:
        image["file_name"] = f"other/{image['file_name']}"
    (boards / "others.json").write_text(json.dumps(content))
    assert tune(boards, boards / "others.json") == 2
    assert "has no box of any of the 3 images, such as '0'" in capsys.readouterr().err
