"""All ops on smaller GPUs (shared memory capped), in threads, on streams, on a second GPU, after a fork, and
out of memory."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from cuda_cases import CASES

from detector import _C
from detector.layers import quick_gelu, upsample_bilinear2d

TESTS = Path(__file__).parents[1]
CASES_SCRIPT = TESTS / "support/cuda_cases.py"


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(TESTS.parent), str(CASES_SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    return result


def assert_same_bits(results: list[list[torch.Tensor]], expected: list[list[torch.Tensor]]) -> None:
    for name, ours, others in zip(CASES, results, expected, strict=True):
        for a, b in zip(ours, others, strict=True):
            assert torch.equal(a.cpu(), b.cpu()), name


def run_all(device: str = "cuda") -> list[list[torch.Tensor]]:
    return [run(device) for run in CASES.values()]


@pytest.mark.cuda
@pytest.mark.parametrize("kib", [48, 64, 99, 163])
def test_fallbacks_of_smaller_gpus(kib: int) -> None:
    """All launches stay below the cap, and the results are those of the CPU."""
    result = run_python(str(CASES_SCRIPT), DETECTOR_SHARED_MEMORY=str(kib), DETECTOR_EXPLAIN="1")
    used = [int(number) for number in re.findall(r", (\d+) bytes of shared memory", result.stderr)]
    assert len(used) > 100
    assert 24 * 1024 < max(used) <= kib * 1024


@pytest.mark.cuda
def test_explain_prints_the_kernel() -> None:
    code = "import torch; from detector.layers import quick_gelu; quick_gelu(torch.ones(8, device='cuda'))"
    text = run_python("-c", code, DETECTOR_EXPLAIN="1").stderr
    assert re.search(r"^detector: .*quick_gelu.*map_kernel<.*float>, grid \(1, 1, 1\)", text, re.MULTILINE), (
        text
    )
    assert "detector: " not in run_python("-c", code).stderr


@pytest.mark.cuda
def test_two_threads() -> None:
    expected = run_all()
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_all) for _ in range(6)]
        for job in jobs:
            assert_same_bits(job.result(), expected)


@pytest.mark.cuda
def test_side_stream() -> None:
    """Ops wait for their inputs, which the side stream computes, and not for the default stream."""
    input = torch.randn(1 << 24, device="cuda")
    expected = quick_gelu(input * 3)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        scaled = input * 3
        output = quick_gelu(scaled)
        results = run_all()
    stream.synchronize()
    assert torch.equal(output, expected)
    assert_same_bits(results, run_all())


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_gpu() -> None:
    """The device of the tensors counts, not the current one."""
    if torch.cuda.get_device_name(0) != torch.cuda.get_device_name(1):
        pytest.skip("needs two GPUs of one kind")
    expected, results = run_all("cuda:0"), run_all("cuda:1")
    assert torch.cuda.current_device() == 0
    assert all(tensor.device.index == 1 for outputs in results for tensor in outputs)
    assert_same_bits(results, expected)


@pytest.mark.cuda
def test_fork() -> None:
    """The CPU kernels work in a process forked after the GPU was used, as in a data loader's worker."""
    code = """
import os, torch
from detector.layers import nms, quick_gelu
torch.set_num_threads(1)
boxes, scores = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9]]), torch.tensor([0.1, 0.2])
assert nms(boxes.cuda(), scores.cuda(), 0.5).tolist() == [1]
child = os.fork()
if child == 0:
    right = nms(boxes, scores, 0.5).tolist() == [1] and quick_gelu(torch.zeros(9)).sum() == 0
    os._exit(0 if right else 7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert nms(boxes.cuda(), scores.cuda(), 0.5).tolist() == [1]
"""
    run_python("-c", code)


def test_out_of_memory(device: torch.device) -> None:
    """The same exception as torch's own ops raise, without a path of the machine that built the extension."""
    size = 1 << 23  # of 2^49 bytes, more than an address space
    with pytest.raises(RuntimeError) as torchs:
        torch.empty(size, size, dtype=torch.float64, device=device)
    with pytest.raises(RuntimeError) as ours:
        upsample_bilinear2d(torch.zeros(1, 1, 2, 2, dtype=torch.float64, device=device), (size, size))
    assert ours.type is torchs.type
    assert ours.type is (torch.OutOfMemoryError if device.type == "cuda" else RuntimeError)
    assert "memory" in str(ours.value)
    assert "csrc" not in str(ours.value)


def test_no_path_of_the_build_machine() -> None:
    """Error messages name source files relative to the repository."""
    binary = Path(_C.__file__).read_bytes()
    assert b"memory.h" in binary
    folders = {bytes(TESTS.parent / "detector/csrc"), bytes(Path(torch.__file__).parent / "include")}
    assert not [folder for folder in folders if folder in binary]
