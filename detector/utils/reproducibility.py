"""Equal seeds, equal results."""

import os
import random

import numpy as np
import torch


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every generator, and ask torch for deterministic algorithms or not; call it first of all."""
    # cuBLAS is deterministic only with a fixed workspace, which it reads from here when it first starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Warn only: our layers have such algorithms, but a backbone may hold an operation that has none on a GPU.
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # We never read memory that was not written, and filling it takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_batch(seed: int, iteration: int, batch: int = 0) -> None:
    """Make what torch draws for batch number `batch` of a step a function of the three numbers alone.

    A resumed run then draws what the unbroken one would have drawn, with no generator state to save; and a
    process draws for its batch what a single one would have drawn that makes all batches of the step.
    """
    # Mixed, because the CPU generator reads the low 32 bits only.
    torch.manual_seed(int(np.random.SeedSequence((seed, iteration, batch)).generate_state(1)[0]))
