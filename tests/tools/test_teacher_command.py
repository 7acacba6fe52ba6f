"""`detector teacher` with tiny models of random weights, which are saved and loaded as real ones are."""

import json
from pathlib import Path

import pytest
import torch

from detector.config import load_cfg
from detector.data.build import build_training_set
from detector.data.toybox import CLASSES

transformers = pytest.importorskip("transformers", reason="detector teacher needs the extra [teacher]")
CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def keys(overrides):
    return ["--config-file", CONFIG, *overrides]


@pytest.fixture(scope="session")
def owl(tmp_path_factory):
    """A folder with a tiny OWL-ViT, its image processor and a tokenizer of letters."""
    folder = tmp_path_factory.mktemp("owl")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": len(words), "max_position_embeddings": 16}
    text |= {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1, "pad_token_id": len(words) - 1}
    vision = {**small, "image_size": 64, "patch_size": 16}
    torch.manual_seed(0)
    config = transformers.OwlViTConfig(text_config=text, vision_config=vision, projection_dim=16)
    transformers.OwlViTForObjectDetection(config).save_pretrained(folder)
    images = transformers.OwlViTImageProcessor(size={"height": 64, "width": 64})
    transformers.OwlViTProcessor(images, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def sam(tmp_path_factory):
    """A folder with a tiny SAM and its processor."""
    folder = tmp_path_factory.mktemp("sam")
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 16}
    vision |= {"image_size": 64, "patch_size": 16, "output_channels": 16, "global_attn_indexes": [0]}
    vision |= {"window_size": 2, "num_pos_feats": 8}
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 4}
    decoder = {"hidden_size": 16, "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    decoder |= {"iou_head_hidden_dim": 16}
    torch.manual_seed(0)
    config = transformers.SamConfig(
        vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder
    )
    transformers.SamModel(config).save_pretrained(folder)
    side = {"height": 64, "width": 64}
    images = transformers.SamImageProcessor(size={"longest_edge": 64}, pad_size=side)
    transformers.SamProcessor(images).save_pretrained(folder)
    return folder


def test_a_detector_by_names(command, keys, owl, tmp_path, capsys):
    output = tmp_path / "found.jsonl"
    (tmp_path / "classes.csv").write_text(f"android,{CLASSES[-1]}\n")
    words = ["--classes", tmp_path / "classes.csv", "--score-threshold", "0"]
    assert command("teacher")([*keys, "--model", owl, "--output", output, *words]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 8
    assert {box["label"] for row in rows for box in row["boxes"]} <= {"android", *CLASSES[:-1]}
    assert f"next: detector check {CONFIG}" in capsys.readouterr().out
    teacher = ["DATASETS.TEACHER", output, "DATASETS.TEACHER_CLASSES", tmp_path / "classes.csv"]
    read = build_training_set(load_cfg(CONFIG, [*keys[2:], *teacher])).teacher
    assert len(read) == 8
    assert sum(map(len, read.values())) > 0


def test_masks(command, keys, sam, tmp_path, monkeypatch):
    output = tmp_path / "masks.jsonl"
    assert command("teacher")([*keys, "--model", sam, "--masks", "--output", output]) == 0
    read = build_training_set(load_cfg(CONFIG, [*keys[2:], "DATASETS.TEACHER", output])).teacher
    assert len(read) == 8
    assert {int(label) for found in read.values() for label in found.labels} <= {-1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "x.json"], "expected a name that ends in .jsonl"),
        (["--masks", "--classes", "x.csv"], "leave out --classes"),
        (["--score-threshold", "2"], "--score-threshold is 2.0"),
        (["--model", "/nowhere"], "the model '/nowhere' cannot be used for zero-shot-object-detection"),
    ],
)
def test_what_is_wrong(command, keys, tmp_path, words, message, capsys):
    own = ["--model", "/nowhere", "--output", str(tmp_path / "found.jsonl"), *words]
    assert command("teacher")([*keys, *own]) == 2
    assert message in capsys.readouterr().err
