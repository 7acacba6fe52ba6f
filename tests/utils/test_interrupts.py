"""detector.utils.interrupts: when Ctrl-C takes effect."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from detector.utils.interrupts import quiet_interrupt, uninterrupted


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
