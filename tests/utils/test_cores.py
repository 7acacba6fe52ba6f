import os

from detector.utils.cores import usable_cores


def test_cores_that_the_process_may_not_use_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert usable_cores() == 7
