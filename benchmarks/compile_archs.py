"""Compiles the CUDA kernels for each GPU architecture and records time, size and success.

    python benchmarks/compile_archs.py                  # all, result in benchmarks/results/compile_archs.json

No GPU is needed. Exits with 1 if a file does not compile.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
from measure import command_line, commit, machine_name
from torch.utils import cpp_extension

from detector.layers import _extension

RESULT = Path(__file__).parent / "results/compile_archs.json"
ARCHITECTURES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "11.0", "12.0")


@dataclass(frozen=True)
class Row:
    """One source file for one architecture."""

    architecture: str
    file: str
    ok: bool
    seconds: float
    kilobytes: float


def compile_file(recipe: _extension.Recipe, source: Path, architecture: str) -> Row:
    """Compile one file to an object, and print the compiler's message if it fails."""
    number = architecture.replace(".", "")
    includes = [recipe.include, *cpp_extension.include_paths("cuda")]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        command = [
            str(Path(recipe.cuda_home or "") / "bin/nvcc"),
            *(f"-I{path}" for path in includes),
            *recipe.nvcc_flags,
            *cpp_extension.COMMON_NVCC_FLAGS,
            "-Xcompiler=-fPIC",
            f"-gencode=arch=compute_{number},code=sm_{number}",
            "-c",
            str(source),
            "-o",
            str(output),
        ]
        begin = time.perf_counter()
        result = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        ok = result.returncode == 0
        kilobytes = output.stat().st_size / 1e3 if ok else 0.0
    file = str(source.relative_to(_extension.CSRC))
    message = f"{architecture:>4} {file:<52} {seconds:6.1f} s {kilobytes:8.0f} kB"
    print(message if ok else f"{message} failed\n{result.stderr}", flush=True)
    return Row(architecture, file, ok, round(seconds, 1), round(kilobytes, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("architectures", nargs="*", default=ARCHITECTURES, metavar="X.Y")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    os.environ["FORCE_CUDA"] = "1"
    recipe = _extension.recipe()
    sources = [Path(source) for source in recipe.sources if source.endswith(".cu")]
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            pool.submit(compile_file, recipe, source, architecture)
            for architecture in args.architectures
            for source in sources
        ]
        rows = [job.result() for job in jobs]
    for architecture in args.architectures:
        own = [row for row in rows if row.architecture == architecture]
        failed = [row.file for row in own if not row.ok]
        seconds, megabytes = sum(row.seconds for row in own), sum(row.kilobytes for row in own) / 1e3
        state = f"failed: {', '.join(failed)}" if failed else "ok"
        print(f"{architecture}: {seconds:.0f} s, {megabytes:.1f} MB, {state}")
    nvcc = _extension._nvcc_version(Path(recipe.cuda_home or ""))
    result = {
        "machine": machine_name(torch.device("cpu")),
        "date": date.today().isoformat(),
        "versions": {"nvcc": nvcc, "torch": torch.__version__},
        "commit": commit(),
        "command": command_line(),
        "rows": [asdict(row) for row in rows],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
