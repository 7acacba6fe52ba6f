"""detector.utils.workers: a pool of processes."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from detector.utils.workers import WorkerLost, map_in_processes


def begin(call):
    return call


def kill_at(item):
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def divide(item):
    return 6 // item


def fail():
    raise MemoryError("no memory to begin")


def note(folder, item):
    (folder / str(item)).touch()
    return item


def blocked_signals(item):
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def wait_long(item):
    time.sleep(600 * item)
    return item


@pytest.mark.parametrize("count", [0, 1, 50])
def test_each_item_has_one_result(count):
    results = map_in_processes(partial(begin, str), range(count), 2)
    assert sorted(results, key=int) == [str(item) for item in range(count)]


def test_results_larger_than_a_pipe_holds():
    results = map_in_processes(partial(begin, bytes), [10_000_000] * 6, 2)
    assert [len(result) for result in results] == [10_000_000] * 6


def test_no_more_items_are_begun_than_the_caller_takes(tmp_path):
    results = map_in_processes(partial(begin, partial(note, tmp_path)), range(40), 2)
    taken = [next(results) for _ in range(3)]
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) <= 3 + 2 * 2
    assert sorted([*taken, *results]) == list(range(40))


def test_a_process_that_is_killed_is_noticed():
    with pytest.raises(WorkerLost):
        list(map_in_processes(partial(begin, kill_at), range(9), 2))


def test_errors_of_the_processes_are_raised_with_their_traceback():
    with pytest.raises(ZeroDivisionError) as caught:
        list(map_in_processes(partial(begin, divide), [3, 2, 0], 2))
    assert "in divide" in str(caught.value.__cause__)
    with pytest.raises(MemoryError, match="no memory to begin"):
        list(map_in_processes(fail, [1, 2], 2))


def test_closing_it_ends_its_processes_at_once():
    results = map_in_processes(partial(begin, wait_long), [0, 1, 1, 1], 2)
    assert next(results) == 0
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 20


def test_workers_leave_ctrl_c_to_their_parent():
    """Also the first processes of a program, with which multiprocessing starts one of its own."""
    script = (
        "from test_workers import *; print(list(map_in_processes(partial(begin, blocked_signals), [1], 1)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[[<Signals.SIGINT: 2>]]\n", "")
