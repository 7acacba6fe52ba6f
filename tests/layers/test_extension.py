"""The compiled extension detector._C: registered ops, build recipe, loading, and errors of each.

tests/test_writing_an_op.py compiles an extension both ways: at import and by setup.py.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import detector
from detector import _C
from detector.layers import _extension

ROOT = Path(__file__).parents[2]
OPS = re.findall(r"OP\((\w+),", (ROOT / "detector/csrc/vision.h").read_text())


def has_kernel(op: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"detector::{op}", key)


@pytest.mark.parametrize("op", OPS)
def test_module_and_library_share_the_op(op: str) -> None:
    assert getattr(_C, op) is getattr(torch.ops.detector, op)
    assert has_kernel(op, "CPU")
    name = re.sub("_(forward|backward|mask|grad_input|grad_weight)$", "", op)
    cuda = ROOT / "detector/csrc/cuda"
    has_source = (cuda / f"{name}.cu").exists() or (cuda / name / f"{name}.cu").exists()
    built_with_cuda = any(has_kernel(other, "CUDA") for other in OPS)
    assert has_kernel(op, "CUDA") == (built_with_cuda and has_source)


def test_stubs_are_of_the_ops() -> None:
    stubs = ast.parse((ROOT / "detector/_C.pyi").read_text())
    found = {f.name: [a.arg for a in f.args.args] for f in stubs.body if isinstance(f, ast.FunctionDef)}
    schemas = {op: getattr(_C, op).default._schema for op in OPS}
    assert found == {op: [a.name for a in schema.arguments] for op, schema in schemas.items()}


LIBRARIES = Path(torch.__file__).parent / "lib"


def compile_cpp(source: str, output: Path, *options: str) -> Path:
    """With torch's headers and libraries."""
    headers = LIBRARIES.parent / "include"
    paths = [f"-I{headers}", f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-Wl,--no-as-needed"]
    command = ["g++", "-std=c++20", "-xc++", "-", "-o", output, *options, *paths, "-ltorch_cpu", "-lc10"]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.mark.slow
def test_loads_without_python(tmp_path: Path) -> None:
    """As from C++, where nothing has the symbols of Python, each of which is looked up at once."""
    source = """
        #include <dlfcn.h>
        #include <cstdio>
        int main(int, char** paths) {
          for (++paths; *paths != nullptr; ++paths) {
            if (dlopen(*paths, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
              std::puts(dlerror());
              return 1;
            }
          }
        }"""
    program = compile_cpp(source, tmp_path / "program", "-Wl,--allow-shlib-undefined")
    torchs = [*LIBRARIES.glob("libc10_cuda.so"), *LIBRARIES.glob("libtorch_cuda.so")]
    found = subprocess.run([program, *torchs, _C.__file__], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_an_allocation_that_fails_once(tmp_path: Path) -> None:
    """The memory of the second attempt is used, and nothing is lost; if that fails, the error is torch's."""
    source = """
        #include <c10/core/CPUAllocator.h>
        #include <c10/util/Exception.h>
        static int failures = 0;
        struct Failing : c10::Allocator {
          c10::Allocator* others = c10::GetCPUAllocator();
          c10::DataPtr allocate(size_t bytes) override {
            if (bytes >= 1 << 20 && failures > 0) {
              --failures;
              TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
            }
            return others->allocate(bytes);
          }
          c10::DeleterFnPtr raw_deleter() const override { return others->raw_deleter(); }
          void copy_data(void* to, const void* from, size_t bytes) const override {
            others->copy_data(to, from, bytes);
          }
        };
        extern "C" void fail(int times) {
          static Failing allocator;
          c10::SetCPUAllocator(&allocator, 255);
          failures = times;
        }"""
    library = compile_cpp(source, tmp_path / "failing.so", "-shared", "-fPIC", "-O0")
    script = f"""
import ctypes
from pathlib import Path
import torch
from detector.layers import quick_gelu
fail = ctypes.CDLL({str(library)!r}).fail
x = torch.randn(3, 2**18)
expected = quick_gelu(x)
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
for input in (x, x.T, x.expand(3, 3, 2**18), x[:, ::2]):
    fail(0)
    expected, before = quick_gelu(input), resident()
    for _ in range(30):
        fail(1)
        assert torch.equal(quick_gelu(input), expected)
        fail(2)
        try:
            quick_gelu(input)
        except torch.OutOfMemoryError:
            continue
        raise AssertionError("no error")
    assert resident() - before < 50e6, resident() - before  # 30 outputs have 94 MB or more
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr


def test_missing_build_reports_how_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(detector, "_C")
    monkeypatch.setitem(sys.modules, "detector._C", None)
    found = rf"with torch {re.escape(torch.__version__)} .*needs torch 2\.11"
    with pytest.raises(
        ImportError, match=rf"{found}.*pip install --no-build-isolation -e \..*DETECTOR_JIT=1"
    ):
        _extension.load_extension.__wrapped__()


def test_jit_raises_if_the_extension_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_JIT", "1")
    with pytest.raises(ImportError, match=r"import detector\.layers first"):
        _extension.load_extension.__wrapped__()


@pytest.mark.cuda
def test_import_without_a_gpu() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", "import detector.layers"], check=True, env=environment)


def fake_toolkit(root: Path, release: str) -> Path:
    """A folder that looks like a CUDA toolkit whose nvcc reports a release."""
    for folder in ("bin", "include", "lib64"):
        (root / folder).mkdir(parents=True)
    (root / "include/cuda_runtime.h").touch()
    (root / "lib64/libcudart.so").touch()
    (root / "bin/nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n")
    (root / "bin/nvcc").chmod(0o755)
    return root


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that mocks the GPU, the CUDA versions of toolkit and torch, and FORCE_CUDA."""

    def pretend(
        gpu: bool, toolkit: str | None = "13.0", torch_cuda: str | None = "13.2", force: str = ""
    ) -> str:
        monkeypatch.setenv("FORCE_CUDA", force)
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
        monkeypatch.setattr(torch.version, "cuda", torch_cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        (tmp_path / "wrapper/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "wrapper/bin/nvcc").touch()  # nvcc alone is not a toolkit
        roots = [tmp_path / "wrapper"]
        if toolkit:
            roots.append(tmp_path / f"cuda-{toolkit}")
            if not roots[-1].exists():
                fake_toolkit(roots[-1], toolkit)
        monkeypatch.setattr(_extension, "_cuda_roots", lambda: roots)
        return str(roots[-1])

    return pretend


def test_cuda_kernels_are_built_for_a_gpu_or_on_request(machine) -> None:
    for gpu, force, built in [(True, "", True), (False, "1", True), (False, "", False), (True, "0", False)]:
        root = machine(gpu, force=force)
        recipe = _extension.recipe()
        assert recipe.cuda_home == (root if built else None)
        assert any(source.endswith(".cu") for source in recipe.sources) == built
        assert "\n" not in recipe.note


@pytest.mark.parametrize(("toolkit", "compresses"), [("12.6", False), ("12.8", True), ("13.0", True)])
def test_options_that_an_older_nvcc_lacks(
    machine, monkeypatch: pytest.MonkeyPatch, toolkit: str, compresses: bool
) -> None:
    machine(False, toolkit, toolkit, force="1")
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    assert ("--compress-mode=size" in _extension.recipe().nvcc_flags) == compresses
    assert os.environ["TORCH_CUDA_ARCH_LIST"].startswith("7.5;8.0;8.6;9.0")
    assert ("12.0" in os.environ["TORCH_CUDA_ARCH_LIST"]) == compresses
    # 11.0 has code of its own, or PTX of an earlier one
    assert {"12.6": "9.0+PTX", "12.8": "10.0+PTX;", "13.0": "11.0;"}[toolkit] in os.environ[
        "TORCH_CUDA_ARCH_LIST"
    ]


def test_no_toolkit_is_needed_without_a_gpu(machine) -> None:
    machine(False, toolkit=None, torch_cuda=None)
    assert _extension.recipe().cuda_home is None


@pytest.mark.parametrize(
    ("toolkit", "torch_cuda", "found"),
    [
        (None, "13.2", "no CUDA toolkit"),
        ("13.0", None, "torch was built without CUDA"),
        ("12.8", "13.2", r"12\.8 .*13\.2"),
    ],
)
@pytest.mark.parametrize(("gpu", "force"), [(True, ""), (False, "1")])
def test_unusable_toolkit_raises(
    machine, gpu: bool, force: str, toolkit: str | None, torch_cuda: str | None, found: str
) -> None:
    machine(gpu, toolkit, torch_cuda, force)
    with pytest.raises(RuntimeError, match=f"{found}.*FORCE_CUDA=0"):  # the cause and the remedy
        _extension.recipe()


def test_invalid_force_cuda_raises(machine) -> None:
    machine(True, force="yes")
    with pytest.raises(RuntimeError, match="'yes'"):
        _extension.recipe()
