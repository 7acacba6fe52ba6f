"""Sequences whose items are made when they are asked for."""

import pytest

from detector.utils.lazy import Lazy


def test_items_are_made_when_they_are_asked_for():
    made = []
    squares = Lazy(lambda index: made.append(index) or index**2, 5)
    roots = squares.map(lambda square: f"root of {square}")
    assert (len(squares), len(roots), made) == (5, 5, [])
    assert roots[2] == "root of 4"
    assert squares[-1] == 16
    assert squares[1:3] == [1, 4]
    assert made == [2, 4, 1, 2]
    assert list(squares) == [0, 1, 4, 9, 16]
    with pytest.raises(IndexError):
        squares[5]
