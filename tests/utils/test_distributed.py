"""detector.utils.distributed: what processes know of one another, and how they end together."""

import re

import pytest
import torch
from distributed_cases import fail_on_rank_1, gather_ranks, lose_rank_1, meet_twice, run_processes

from detector.utils.distributed import (
    find_device,
    gather,
    is_main,
    process_group,
    rank,
    sync_errors,
    world_size,
)
from detector.utils.errors import UserError

CPU = torch.device("cpu")


def test_one_process_needs_no_others():
    with process_group(CPU, 1), sync_errors():
        assert (rank(), world_size(), is_main(), gather("a")) == (0, 1, True, ["a"])


@pytest.mark.parametrize("device", ["gpu", {"SEED": 1}, None])
def test_what_is_no_device_is_named(device):
    with pytest.raises(UserError, match=re.escape(f"device is {device!r}, expected 'auto', 'cpu' or 'cuda'")):
        find_device(device)


def test_what_other_launchers_set_is_not_ours(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    assert (rank(), world_size()) == (0, 1)


def test_gather_is_by_rank_and_known_to_all():
    assert run_processes(gather_ranks, 3) == [["rank 0", "rank 1", "rank 2"]] * 3


def test_a_second_group_of_one_torchrun_knows_no_address_of_the_first():
    """As `detector.train` and then `detector.evaluate` join."""
    assert run_processes(meet_twice, 2) == [[False, False]] * 2


def test_what_one_process_cannot_set_up_the_main_one_says_for_all():
    main, *others = run_processes(fail_on_rank_1, 3)
    assert isinstance(main, ValueError)
    assert str(main) == "rank 1: there is no such file"
    assert all(isinstance(other, SystemExit) for other in others)


@pytest.mark.parametrize("way", ["die", "sleep"])
def test_a_process_that_dies_or_sleeps_stops_the_others_with_one_line(way, tmp_path):
    results = run_processes(lose_rank_1, 3, way, tmp_path)
    assert [result for number, result in enumerate(results) if number != 1] == [1, 1]
    for number, prefix in ((0, ""), (2, "rank 2: ")):
        (line,) = (tmp_path / f"{number}.txt").read_text().splitlines()
        assert line.startswith(f"{prefix}error: another process has stopped or does not answer: ")
