"""Building and loading the compiled extension `detector._C`.

setup.py builds from :func:`recipe`. With the environment variable DETECTOR_JIT=1, :func:`load_extension`
compiles the same sources at import instead of loading the installed build.
"""

import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch

CSRC = Path(__file__).resolve().parents[1] / "csrc"
# the stable ABI of torch 2.11, the oldest supported version
STABLE_ABI = "-DTORCH_TARGET_VERSION=0x020b000000000000"


class Recipe(NamedTuple):
    """Source files, compiler flags and the CUDA toolkit (None: build for the CPU only)."""

    sources: list[str]
    include: str
    cxx_flags: list[str]
    nvcc_flags: list[str]
    cuda_home: str | None
    note: str  # what is built and why, in one line


def recipe() -> Recipe:
    """Return how to compile `detector._C` on this machine.

    CUDA kernels are built if torch finds a GPU or the environment variable FORCE_CUDA is 1; FORCE_CUDA=0
    builds for the CPU only.

    Raises:
        RuntimeError: if CUDA kernels are requested and no CUDA toolkit matches the installed torch.
    """
    cuda_home, note = _find_cuda()
    sources = [*sorted(CSRC.glob("*.cpp")), *sorted((CSRC / "cpu").rglob("*.cpp"))]
    compress = []
    if cuda_home:
        sources += sorted((CSRC / "cuda").rglob("*.cu"))
        version = tuple(int(number) for number in _nvcc_version(Path(cuda_home)).split("."))
        # Compressed by zstd: a third of the size. The driver decompresses a kernel when it is first loaded.
        compress = ["--compress-mode=size"] if version >= (12, 8) else []
        if not torch.cuda.is_available():
            # If a GPU is present, torch builds for that one.
            os.environ.setdefault("TORCH_CUDA_ARCH_LIST", _architectures(version))
            note += f" for {os.environ['TORCH_CUDA_ARCH_LIST']}"
    flags = ["-O3", "-std=c++20", STABLE_ABI]
    # Error messages name the source file: without the folders of the machine that built the extension.
    torch_headers = Path(torch.__file__).parent / "include"
    paths = [f"-ffile-prefix-map={CSRC}/=", f"-ffile-prefix-map={torch_headers}/="]
    # Python's own flags contain -g, a third of the compile time. Square roots of vectors set no errno.
    # Hidden visibility, as for torch's classes: no other library uses these symbols.
    cxx_flags = [*flags, *paths, "-g0", "-fno-math-errno", "-fvisibility=hidden"]
    nvcc_flags = [*flags, "-DUSE_CUDA", *compress, *(f"-Xcompiler={path}" for path in paths)]
    return Recipe([str(s) for s in sources], str(CSRC), cxx_flags, nvcc_flags, cuda_home, note)


def _architectures(nvcc: tuple[int, ...]) -> str:
    """Every GPU since Turing that this nvcc knows, and PTX, which drivers compile for the others."""
    if nvcc >= (13, 0):
        return "7.5;8.0;8.6;9.0;10.0;11.0;12.0+PTX"
    # 11.0 has another number in 12.8 and 12.9, which torch does not accept: it takes the PTX of 10.0.
    return "7.5;8.0;8.6;9.0;10.0+PTX;12.0" if nvcc >= (12, 8) else "7.5;8.0;8.6;9.0+PTX"


def _find_cuda() -> tuple[str | None, str]:
    """The root of the CUDA toolkit, or None for a CPU build, and the reason for the choice."""
    forced = os.environ.get("FORCE_CUDA", "")
    if forced not in ("", "0", "1"):
        raise RuntimeError(f"FORCE_CUDA is {forced!r}, expected 0 (CPU only) or 1 (CPU and CUDA)")
    if forced == "0":
        return None, "CPU only, because FORCE_CUDA=0"
    if not forced and not torch.cuda.is_available():
        return (
            None,
            "CPU only, because torch finds no GPU (FORCE_CUDA=1 builds the CUDA kernels anyway)",
        )
    why = "FORCE_CUDA=1" if forced else "torch finds a GPU"
    remedy = "or build for the CPU only: FORCE_CUDA=0"
    if torch.version.cuda is None:
        raise RuntimeError(
            f"{why}, but the installed torch was built without CUDA. Install a CUDA build of torch, {remedy}"
        )
    home = next((root for root in _cuda_roots() if _is_toolkit(root)), None)
    major = torch.version.cuda.split(".")[0]
    install = f"Install the CUDA {major} toolkit and set CUDA_HOME to its folder, {remedy}"
    if home is None:
        raise RuntimeError(
            f"{why}, but no CUDA toolkit (bin/nvcc, include, lib64/libcudart) was found. {install}"
        )
    version = _nvcc_version(home)
    if version.split(".")[0] != major:
        raise RuntimeError(
            f"{why}, but {home} has nvcc {version} and torch was built with CUDA"
            f" {torch.version.cuda}. {install}"
        )
    return str(home), f"CPU and CUDA ({home})"


def _cuda_roots() -> list[Path]:
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    found = [Path(nvcc).resolve().parents[1]] if nvcc else []
    usual = sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    return [*named, *found, Path("/usr/local/cuda"), *usual, Path("/opt/cuda")]


def _is_toolkit(root: Path) -> bool:
    # nvcc alone is not enough: on some machines the PATH has a wrapper script outside the toolkit.
    libraries = [*root.glob("lib64/libcudart.so*"), *root.glob("lib/libcudart.so*")]
    return (root / "bin/nvcc").exists() and (root / "include/cuda_runtime.h").exists() and bool(libraries)


def _nvcc_version(root: Path) -> str:
    text = subprocess.run([root / "bin/nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)", text)
    if found is None:
        raise RuntimeError(f"{root}/bin/nvcc --version reports no release:\n{text}")
    return found[1]


@functools.cache
def load_extension() -> ModuleType:
    """Return the module `detector._C`: the installed build or, with DETECTOR_JIT=1, a new build of csrc."""
    if os.environ.get("DETECTOR_JIT") == "1":
        return _compile()
    try:
        return importlib.import_module("detector._C")
    except ImportError as error:
        raise ImportError(
            "detector._C, the compiled extension, could not be loaded with torch"
            f" {torch.__version__} ({error}). It needs torch 2.11 or newer and, if it has CUDA kernels,"
            " a torch for the same major version of CUDA. Build it for this torch with `pip install"
            " --no-build-isolation -e .` in the checkout, or set DETECTOR_JIT=1 to compile it at import."
        ) from error


def _compile() -> ModuleType:
    from torch.utils import cpp_extension

    if "detector._C" in sys.modules:  # registering the same ops twice crashes torch
        raise ImportError("DETECTOR_JIT=1, but detector._C is already loaded; import detector.layers first")
    build = recipe()
    if shutil.which("ninja") is None:  # pip installs it next to the interpreter, possibly off the PATH
        os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)
    if build.cuda_home:
        cpp_extension.CUDA_HOME = build.cuda_home
    module = cpp_extension.load(
        name="detector_C",
        sources=build.sources,
        extra_include_paths=[build.include],
        extra_cflags=build.cxx_flags,
        extra_cuda_cflags=build.nvcc_flags,
        with_cuda=build.cuda_home is not None,
    )
    sys.modules["detector._C"] = vars(sys.modules["detector"])["_C"] = module  # as an import would
    return module
