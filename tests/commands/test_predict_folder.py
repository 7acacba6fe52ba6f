import threading

import pytest

from detector.inference.sources import ahead


def test_results_come_in_order_and_errors_with_theirs():
    def half(number):
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    results = list(ahead(half, range(5), threads=3))
    assert [item for item, _ in results] == [0, 1, 2, 3, 4]
    assert [future.result() for item, future in results if item % 2 == 0] == [0, 1, 2]
    with pytest.raises(ValueError, match="3 is odd"):
        results[3][1].result()


def test_calls_run_at_once():
    together = threading.Barrier(3, timeout=10)  # breaks unless three wait for it
    assert all(future.result() in (0, 1, 2) for _, future in ahead(lambda _: together.wait(), range(6), 3))


def test_no_more_than_needed_is_begun():
    drawn = []
    items = (drawn.append(number) or number for number in range(100))
    results = ahead(abs, items, threads=2)
    next(results)
    assert len(drawn) == 5  # the one that is returned, and twice the threads
    results.close()
    assert len(drawn) == 5
