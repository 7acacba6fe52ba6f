"""detector.utils.interrupts: when Ctrl-C takes effect."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from detector.utils.interrupts import quiet_interrupt, uninterrupted

_PARENT = """
from detector.utils.workers import map_in_processes
class Begin:
    def __reduce__(self):
        return __import__, ("slow",)
if __name__ == "__main__":
    list(map_in_processes(Begin(), "a", 1))
"""


def test_a_worker_that_imports_ends_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "main.py").write_text(_PARENT)
    (tmp_path / "slow.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, tmp_path / "main.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, start_new_session=True) as process:
        try:
            assert process.stdout.readline() == b"importing\n"
            process.terminate()
            process.wait()
            began = time.monotonic()
            assert process.stdout.read() == b""  # at its end once the worker has ended
            assert time.monotonic() - began < 20
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_what_a_worker_imports_before_it_can_end_with_its_parent_is_small():
    code = "import detector.__main__, detector.utils.workers, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_block_is_done_before_ctrl_c_takes_effect():
    done = []

    def work():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_the_block_passes_and_the_handler_is_put_back():
    with pytest.raises(ZeroDivisionError), uninterrupted():
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_thread_and_a_program_with_a_handler_of_its_own_are_left_alone(monkeypatch):
    done = []

    def work():
        with uninterrupted():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [signal.default_int_handler, signal.SIG_IGN]


def test_ctrl_c_during_imports_leaves_no_traceback():
    code = (
        "import os, signal\nfrom detector.utils.interrupts import quiet_interrupt\n"
        "with quiet_interrupt():\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT)\n    except BaseException: print('caught')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    with quiet_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
