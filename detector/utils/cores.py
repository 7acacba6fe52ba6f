"""How many things to do at once."""

import os


def usable_cores() -> int:
    """Cores that this process may use, which a container or a scheduler can make fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
