"""The sources for CPUs with other compilers than the one that builds them: another architecture; another
compiler with its C++ library. Warnings are errors; nothing runs (docs/install.md, Platforms, has what did).
"""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

from detector.layers._extension import CSRC, STABLE_ABI

CPU_SOURCES = [*sorted(CSRC.glob("*.cpp")), *sorted((CSRC / "cpu").rglob("*.cpp"))]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-g++", "clang++ -stdlib=libc++"])
def test_sources_for_cpus_compile_without_warnings(compiler: str) -> None:
    name, *options = compiler.split()
    headers = Path(torch.__file__).parent / "include"
    folders = [headers, headers / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    command = [name, *options, "-fsyntax-only", "-std=c++20", STABLE_ABI, "-DTORCH_EXTENSION_NAME=_C"]
    command += [
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-missing-field-initializers",
        f"-I{CSRC}",
    ]
    command += [option for folder in folders for option in ("-isystem", str(folder))]
    command += ["-x", "c++", "-"]
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    if subprocess.run(command, input="#include <vector>\n", text=True, capture_output=True).returncode != 0:
        pytest.skip(f"{compiler} finds no C++ library")
    # All in one, as the headers of torch take most of the time; two files have a macro of the same name.
    sources = "".join(f'#include "{path}"\n#undef INSTANTIATE\n' for path in CPU_SOURCES)
    found = subprocess.run(command, input=sources, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-3000:]
