"""Property test: pcl_loss matches its reference on random batches."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.layers import pcl_loss, reference


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], int]:
    """Proposals per image, label and cluster of each row, and the number of classes."""
    num_classes = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(0, 12), max_size=4))
    labels, clusters = [], []
    for count in counts:
        classes = draw(st.lists(st.integers(1, num_classes), min_size=count, max_size=count))
        chosen = draw(st.lists(st.integers(-1, count - 1), min_size=count, max_size=count))
        clusters += chosen
        labels += [0 if n == -1 else classes[n] for n in chosen]
    return counts, labels, clusters, num_classes


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=batches(), seed=st.integers(0, 99))
def test_matches_reference_on_random_shapes(batch: tuple, seed: int, device: torch.device) -> None:
    counts, labels, clusters, num_classes = batch
    generator = torch.Generator().manual_seed(seed)
    rows = len(labels)
    probs = torch.rand(rows, num_classes + 1, generator=generator, dtype=torch.float64).to(device)
    weights = torch.rand(rows, generator=generator, dtype=torch.float64).to(device)
    upstream = torch.rand(len(counts), generator=generator, dtype=torch.float64).to(device)
    constants = (torch.tensor(labels).long().to(device), weights, torch.tensor(clusters).long().to(device))
    probs.requires_grad_()
    results = []
    for function in (pcl_loss, reference.pcl_loss):
        losses = function(probs, *constants, torch.tensor(counts, dtype=torch.int64))
        grad = torch.autograd.grad(losses, probs, upstream, allow_unused=True)[0] if counts else None
        results.append((losses.detach(), grad))
    torch.testing.assert_close(*results)
