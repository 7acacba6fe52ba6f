"""detector._C: its list of ops, how it is found, and what is said when it is not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from detector import _C
from detector.layers import _extension

ROOT = Path(__file__).parents[2]
OPS = re.findall(r"OP\((\w+),", (ROOT / "detector/csrc/vision.h").read_text())


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def has_kernel(op: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"detector::{op}", key)


@pytest.mark.parametrize("op", OPS)
def test_module_and_library_hold_the_same_op(op: str) -> None:
    assert getattr(_C, op) is getattr(torch.ops.detector, op)
    assert has_kernel(op, "CPU")
    file = re.sub("(_input|_output|_weight)?_(forward|backward|mask|grad_input|grad_weight)$", "", op) + ".cu"
    built_with_cuda = any(has_kernel(other, "CUDA") for other in OPS)
    assert has_kernel(op, "CUDA") == (built_with_cuda and (ROOT / "detector/csrc/cuda" / file).exists())


def test_stub_lists_every_op() -> None:
    assert re.findall(r"^def (\w+)", (ROOT / "detector/_C.pyi").read_text(), re.MULTILINE) == OPS


def test_jit_compiles_the_sources_and_agrees(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"  # optimising takes three times as long, and would show nothing
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    compiler.chmod(0o755)
    code = """
import torch
from detector.layers import pcl_loss
import detector._C
print(detector._C.__file__)
probs = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
print(pcl_loss(probs, torch.tensor([0, 2]), torch.ones(2), torch.tensor([-1, 0])).item())
"""
    variables = {"CXX": str(compiler), "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    result = run_python(code, DETECTOR_JIT="1", FORCE_CUDA="0", **variables)
    assert result.returncode == 0, result.stderr
    file, loss = result.stdout.split()
    assert file.startswith(str(tmp_path))
    assert float(loss) == pytest.approx(-0.5 * (torch.tensor(0.5).log() * 2).item())


def test_a_missing_build_says_how_to_build() -> None:
    result = run_python("import sys; sys.modules['detector._C'] = None; import detector.layers")
    assert result.returncode != 0
    assert "pip install --no-build-isolation -e ." in result.stderr
    assert "DETECTOR_JIT=1" in result.stderr


def test_jit_refuses_a_second_library() -> None:
    result = run_python("import torch; from detector import _C; import detector.layers", DETECTOR_JIT="1")
    assert result.returncode != 0
    assert "import detector.layers before it" in result.stderr


def test_layers_import_without_a_gpu() -> None:
    result = run_python("import detector.layers", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr


def fake_toolkit(root: Path, release: str) -> Path:
    """A folder that looks like a CUDA toolkit whose nvcc reports a release."""
    for folder in ("bin", "include", "lib64"):
        (root / folder).mkdir(parents=True)
    (root / "include/cuda_runtime.h").touch()
    (root / "lib64/libcudart.so").touch()
    (root / "bin/nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n")
    (root / "bin/nvcc").chmod(0o755)
    return root


def test_a_toolkit_that_fits_torch_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_CUDA", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    (tmp_path / "wrapper/bin").mkdir(parents=True)
    (tmp_path / "wrapper/bin/nvcc").touch()  # nvcc alone is no toolkit
    toolkit = fake_toolkit(tmp_path / "cuda", "13.0")
    monkeypatch.setattr(_extension, "_cuda_roots", lambda: [tmp_path / "wrapper", toolkit])
    assert _extension.recipe().cuda_home == str(toolkit)
    monkeypatch.setenv("FORCE_CUDA", "0")
    assert _extension.recipe().cuda_home is None


@pytest.mark.parametrize(
    ("release", "torch_cuda", "reason"),
    [
        (None, "13.2", "no CUDA toolkit"),
        ("13.0", None, "torch has no CUDA"),
        ("12.8", "13.2", "is CUDA 12.8, but torch was built with CUDA 13.2"),
    ],
)
def test_without_a_fitting_toolkit_the_cpu_build_says_why(
    release: str | None, torch_cuda: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_CUDA", raising=False)
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    roots = [fake_toolkit(tmp_path / "cuda", release)] if release else []
    monkeypatch.setattr(_extension, "_cuda_roots", lambda: roots)
    recipe = _extension.recipe()
    assert recipe.cuda_home is None
    assert all(source.endswith(".cpp") for source in recipe.sources)
    assert reason in recipe.note
    assert "\n" not in recipe.note
    monkeypatch.setenv("FORCE_CUDA", "1")
    with pytest.raises(RuntimeError, match=f"FORCE_CUDA=1, but .*{reason}"):
        _extension.recipe()
