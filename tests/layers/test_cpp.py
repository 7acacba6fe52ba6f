"""The ops in a C++ program without Python, by CMake (docs/layers.md)."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import detector
from detector.layers import RoIAlign

PACKAGE = Path(detector.__file__).parent
# Instead of find_package(Torch), which for a torch with CUDA needs a CUDA toolkit.
TORCH = f"""
set(torch {Path(torch.__file__).parent})
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch INTERFACE ${{torch}}/include ${{torch}}/include/torch/csrc/api/include)
target_link_directories(torch INTERFACE ${{torch}}/lib)
target_link_libraries(torch INTERFACE torch_cpu c10)
"""


def write_example(folder: Path) -> None:
    """The files of the docs' example, which are the blocks that start with their names, with the lines that
    run a compiled model in the program."""
    page = (PACKAGE.parent / "docs/layers.md").read_text()
    blocks = re.findall(r"```(?:cmake|cpp)\n[#/]+ (\S+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in blocks] == ["CMakeLists.txt", "example.cpp"]
    for name, text in blocks:
        (folder / name).write_text(text)
    (include, run), *more = re.findall(
        r"```cpp\n(#include <torch/csrc/inductor.*?)\n(.*?)```", page, re.DOTALL
    )
    assert not more
    program = folder / "example.cpp"
    end = "}\n"
    before = program.read_text()
    assert before.endswith(end)
    shown = '  std::cout << pooled.item<float>() << "\\n";\n'
    program.write_text(f"{include}\n{before.removesuffix(end)}{run}{shown}{end}")


def compile_model(path: Path) -> None:
    """The model of the docs' example, by AOTInductor."""
    boxes = torch.tensor([[0.0, 0, 0, 4, 4]])
    exported = torch.export.export(RoIAlign(1, 1.0, 2, aligned=True), (torch.rand(1, 1, 4, 4), boxes))
    quickly = {"aot_inductor.compile_wrapper_opt_level": "O0"}
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=quickly)


def configure(folder: Path, library: Path) -> subprocess.CompletedProcess[str]:
    command = ["cmake", "-S", folder, "-B", folder / "build", f"-Ddetector_DIR={library / 'cmake'}"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
def test_a_program_calls_an_op_and_runs_a_compiled_model(tmp_path: Path) -> None:
    write_example(tmp_path)
    compile_model(tmp_path / "model.pt2")
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("find_package(Torch REQUIRED)\n", TORCH))
    configured = configure(tmp_path, PACKAGE)
    assert configured.returncode == 0, configured.stderr
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    folders = [Path(torch.__file__).parent / "lib", *Path(torch.__file__).parents[1].glob("nvidia/*/lib")]
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    run = subprocess.run(
        [tmp_path / "build/example"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("7.5\n7.5\n", "")  # the mean of 0 to 15


@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
@pytest.mark.parametrize(
    ("torch_target", "message"),
    [
        ("", "call find_package(Torch REQUIRED) first"),
        (TORCH, "the compiled extension detector/_C.abi3.so is"),
    ],
)
def test_cmake_says_what_is_missing(tmp_path: Path, torch_target: str, message: str) -> None:
    start = "cmake_minimum_required(VERSION 3.18)\nproject(p NONE)\n"
    (tmp_path / "CMakeLists.txt").write_text(f"{start}{torch_target}find_package(detector REQUIRED)")
    shutil.copytree(PACKAGE / "cmake", tmp_path / "other/cmake")  # without a library beside it
    configured = configure(tmp_path, tmp_path / "other")
    assert configured.returncode != 0
    assert message in " ".join(configured.stderr.split())
