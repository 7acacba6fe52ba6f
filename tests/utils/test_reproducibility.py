"""detector.utils.reproducibility: equal seeds, equal draws."""

import torch

from detector.utils.reproducibility import seed_batch, seed_everything


def test_seed_everything_fixes_what_is_drawn():
    draws = []
    for seed in (1, 1, 2):
        seed_everything(seed)
        draws.append(torch.rand(4))
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])


def test_a_batch_draws_by_seed_iteration_and_number_alone():
    def draw(seed, iteration, batch, before=0):
        torch.rand(before)
        seed_batch(seed, iteration, batch)
        return torch.rand(4).tolist()

    assert draw(3, 10, 1) == draw(3, 10, 1, before=5)
    assert len({tuple(draw(s, i, b)) for s in range(4) for i in range(4) for b in range(4)}) == 64
