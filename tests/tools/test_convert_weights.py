"""tools/convert_weights.py: from files that circulate to files that MODEL.WEIGHTS can name."""

import pytest
import torch

from detector.modeling.weights import TORCHVISION, load_weights


@pytest.fixture
def convert(load_tool, tmp_path):
    """Run the command on tensors by name; returns its exit status and what the output file holds."""

    def run(tensors, *words):
        paths = [str(tmp_path / name) for name in ("in.pth", "out.pth")]
        torch.save(tensors, paths[0])
        status = load_tool("convert_weights").main([*paths, *words])
        return status, load_weights(paths[1]) if status == 0 else None

    return run


def test_torchvisions_weights_are_as_they_were(convert, capsys):
    tensors = {"conv1.weight": torch.randn(2, 3, 1, 1)}
    status, found = convert(tensors)
    assert (status, found.preprocessing) == (0, TORCHVISION)
    assert found.tensors["conv1.weight"].equal(tensors["conv1.weight"])
    assert "out.pth: 1 tensors that expect mean [0.485, 0.456, 0.406] and std" in capsys.readouterr().out


def test_another_preprocessing(convert):
    _, found = convert({"a": torch.zeros(1)}, "--mean", "0.1", "0.2", "0.3", "--std", "1", "1", "2")
    assert (found.preprocessing.mean, found.preprocessing.std) == ((0.1, 0.2, 0.3), (1, 1, 2))


def test_caffes_vgg16(convert):
    tensors = {"conv1_1.weight": torch.randn(64, 3, 3, 3), "conv1_1.bias": torch.zeros(64)}
    _, found = convert(tensors, "--caffe-vgg16")
    assert list(found.tensors) == ["features.0.weight", "features.0.bias"]
    assert found.preprocessing == TORCHVISION


def test_what_is_no_state_dict_is_one_line_and_leaves_no_file(convert, capsys, tmp_path):
    assert convert({"epoch": 3})[0] == 2
    assert capsys.readouterr().err == "error: epoch is a int, expected a tensor with values\n"
    assert convert({"a": torch.zeros(1)}, "--caffe-vgg16")[0] == 2
    assert "features.0.bias" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.pth"]


def test_an_existing_file_is_left_alone_be_it_the_input(load_tool, capsys, tmp_path):
    path = tmp_path / "in.pth"
    torch.save({"a": torch.zeros(1)}, path)
    before = path.read_bytes()
    assert load_tool("convert_weights").main([str(path), str(path)]) == 2
    assert "in.pth exists" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [("--std", "0", "1", "1"), ("--mean", "nan", "0", "0")])
def test_preprocessing_that_no_image_survives(convert, capsys, tmp_path, words):
    assert convert({"a": torch.zeros(1)}, *words)[0] == 2
    assert words[0] in capsys.readouterr().err
    assert not (tmp_path / "out.pth").exists()
