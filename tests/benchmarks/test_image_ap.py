"""Whether the image AP picks the better of two recipes, on made-up results."""

import json

from image_ap import picked, recipes


def test_pairs_that_the_image_ap_orders_as_boxes_do():
    rows = [(70, 20), (90, 40), (96, 39), (99, 30)]
    assert picked(rows, 0, 100) == (3, 5)  # 40 and 39 are too near to count
    assert picked(rows, 95, 100) == (0, 1)


def test_only_tags_alone_count_and_seeds_are_one_recipe(tmp_path):
    def run(image_ap: float, ap: float, method: str = "mist") -> dict:
        return {"image_mAP": image_ap, "mAP50": ap, "method": method}

    methods = {
        "tags": [run(80, 20), run(90, 30)],
        "tags_10": [run(99, 60)],
        "tags_1500_steps": [run(95, 50)],
        "student_tags": [run(97, 70, "mist + self-training")],
        "truth": [run(99, 90)],
    }
    (tmp_path / "methods_few_boxes_pcb.json").write_text(json.dumps({"methods": methods}))
    assert recipes(tmp_path) == {("pcb", "weak"): [(85, 25), (95, 50)], ("pcb", "student"): [(97, 70)]}
