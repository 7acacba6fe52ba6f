"""Seeding: equal seeds give equal results."""

import os
import random

import numpy as np
import torch


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every generator and choose whether torch uses deterministic algorithms; call it first."""
    # cuBLAS is deterministic only with a fixed workspace; it reads this variable when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Warn only: a backbone may contain an operation that has no deterministic implementation on a GPU.
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # No code here reads uninitialized memory, and filling it takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_batch(seed: int, iteration: int, batch: int = 0) -> None:
    """Seed torch for batch number `batch` of a training step.

    A resumed run then draws the same random numbers as an uninterrupted one without saved generator states,
    and several processes draw the same numbers as one process that computes all batches of the step.
    """
    # Hashed, because the CPU generator uses only the low 32 bits of a seed.
    torch.manual_seed(int(np.random.SeedSequence((seed, iteration, batch)).generate_state(1)[0]))
