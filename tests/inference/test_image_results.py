"""detector.inference.image_results: tests that are killed are resumed, and processes share the images."""

import json
import logging

import pytest
import torch

from detector.inference.image_results import image_result, remove_results, test_images
from detector.modeling.postprocess import postprocess
from detector.structures import Scores
from detector.utils.errors import DataError, UserError
from detector.utils.records import append_record

IDS = ("a", "b", "c", "d")


def scores_of(index):
    generator = torch.Generator().manual_seed(index)
    number = 0 if index == 2 else 5 + index
    corners = torch.rand(number, 2, generator=generator) * 50
    boxes = torch.cat([corners, corners + 10], dim=1)[:, None].expand(-1, 3, 4)
    return Scores(IDS[index], boxes, torch.rand(number, 3, generator=generator))


def run(path, key="weights", seen=None, stop=None, post=postprocess):
    def predict(indices):
        for index in indices:
            if seen is not None:
                seen.append(index)
            if index == stop:
                raise KeyboardInterrupt
            yield scores_of(index)

    return test_images(predict, IDS, post, path=path, key=key)


def same(result, other):
    pairs = [
        (result.best_boxes, other.best_boxes),
        (result.best_scores, other.best_scores),
        (result.detections.boxes, other.detections.boxes),
        (result.detections.scores, other.detections.scores),
        (result.detections.labels, other.detections.labels),
    ]
    return result.image_id == other.image_id and all(first.equal(second) for first, second in pairs)


def test_results_are_bitwise_those_of_the_scores(tmp_path):
    for index, result in enumerate(run(tmp_path / "test")):
        scores = scores_of(index)
        assert same(result, image_result(scores, postprocess))
        expected = postprocess(scores)
        assert result.detections.boxes.equal(expected.boxes)
        if len(scores.scores):
            assert result.best_scores.equal(scores.scores.amax(dim=0))
        else:
            assert result.best_scores.tolist() == [0, 0, 0]
        assert result.best_boxes.shape == (0, 4)  # CorLoc is measured without detections


def test_of_equal_scores_the_first_proposal_is_the_best():
    boxes = torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60]])[:, None].expand(-1, 3, 4)
    assert image_result(Scores("a", boxes, torch.ones(2, 3)), None).best_boxes.equal(boxes[0])


def test_without_postprocess_there_are_the_best_boxes_and_no_detections(tmp_path):
    for index, result in enumerate(run(tmp_path / "train", post=None)):
        scores = scores_of(index)
        assert same(result, image_result(scores, None))
        assert len(result.detections.boxes) == 0
        if len(scores.scores):
            assert result.best_boxes.equal(scores.boxes[scores.scores.argmax(dim=0), range(3)])


def test_a_result_is_read_when_it_is_asked_for(tmp_path):
    results = run(tmp_path / "test")
    (path,) = tmp_path.glob("*.jsonl")
    lines = path.read_bytes()
    path.write_bytes(lines.replace(b'"boxes": "', b'"boxes": "AAAA', 1))
    with pytest.raises(DataError, match=r"test-weights\.0\.jsonl was changed while it was in use"):
        list(results)
    path.write_bytes(lines)
    assert [result.image_id for result in results[1:3]] == ["b", "c"]


def test_results_that_version_0_1_wrote_are_read(tmp_path):
    expected = run(tmp_path / "now")
    for result in expected:
        found = result.detections
        record = {
            "image_id": result.image_id,
            "boxes": found.boxes.tolist(),
            "scores": found.scores.tolist(),
            "labels": found.labels.tolist(),
            "best_boxes": [],
            "best_scores": result.best_scores.tolist(),
        }
        append_record(tmp_path / "test-weights.0.jsonl", record)
    seen = []
    assert all(map(same, run(tmp_path / "test", seen=seen), expected))
    assert not seen


def test_a_killed_test_is_resumed(tmp_path):
    whole = run(tmp_path / "whole" / "test")
    path, seen = tmp_path / "killed" / "test", []
    with pytest.raises(KeyboardInterrupt):
        run(path, stop=2)
    file = path.with_name("test-weights.0.jsonl")
    with open(file, "ab") as torn:
        torn.write(b'0123abcd {"image_id":"c","boxes":[[1.0')  # the line that a kill tore
    assert all(map(same, run(path, seen=seen), whole))
    assert seen == [2, 3]
    kept = [line for line in file.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line.split(" ", 1)[1])["image_id"] for line in kept] == list(IDS)
    assert all(map(same, run(path, seen=seen), whole))
    assert seen == [2, 3]
    remove_results(path.parent, "weights")
    assert not path.parent.exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_folder_that_is_moved_ends_the_test(tmp_path, replaced):
    folder = tmp_path / "run"

    def predict(indices):
        for index in indices:
            if index == 2:
                folder.rename(tmp_path / "moved")
                if replaced:
                    (folder / "results").mkdir(parents=True)
            yield scores_of(index)

    with pytest.raises(UserError, match=r"results was moved or deleted.*move it back"):
        test_images(predict, IDS, postprocess, path=folder / "results" / "test", key="weights")
    assert not list(folder.glob("results/*"))
    written = (tmp_path / "moved/results/test-weights.0.jsonl").read_text().split("\n")
    assert len([line for line in written if line]) == 2


def test_results_of_another_checkpoint_are_neither_used_nor_replaced(tmp_path):
    path, seen = tmp_path / "test", []
    run(path)
    before = path.with_name("test-weights.0.jsonl").read_bytes()
    run(path, key="other weights", seen=seen)
    assert seen == [0, 1, 2, 3]
    assert path.with_name("test-weights.0.jsonl").read_bytes() == before


def test_only_results_of_the_test_are_removed(tmp_path):
    run(tmp_path / "test")
    run(tmp_path / "other", key="other weights")
    (tmp_path / "mine.jsonl").write_text('{"mine": 1}\n')
    remove_results(tmp_path, "weights")
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["mine.jsonl", "other-other weights.0.jsonl"]


def test_a_damaged_line_is_found_again_with_a_warning(tmp_path, caplog):
    """A changed digit is still JSON: without a checksum it would change the metrics without a warning."""
    whole = list(run(tmp_path / "test"))
    path, seen = tmp_path / "test-weights.0.jsonl", []
    lines = path.read_bytes().splitlines(keepends=True)  # with an empty line before each
    place = lines[3].index(b'"scores": "') + len(b'"scores": "')
    digit = b"1" if lines[3][place : place + 1] != b"1" else b"2"
    lines[3] = lines[3][:place] + digit + lines[3][place + 1 :]
    path.write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING, "detector"):
        assert all(map(same, run(tmp_path / "test", seen=seen), whole))
    assert seen == [1]
    assert f"{path}: line 4 is damaged" in caplog.text
