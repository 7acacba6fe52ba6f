"""What all tests share: the devices they run on."""

import logging
import signal

import pytest
import torch
from hypothesis import settings


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # xdist already keeps every core busy
    settings.register_profile("detector", deadline=None)  # on a busy machine any example may take long
    settings.load_profile("detector")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a script starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is tested


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # so that no worker ends with them
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = item.get_closest_marker("gpu_memory")
    if needed and torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < needed.args[0] * 2**30:
        pytest.skip(f"needs {needed.args[0]} GiB of free GPU memory")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Runs the test on the CPU and, where there is one, on the GPU."""
    return torch.device(request.param)


@pytest.fixture
def not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without timing steps to say how long training will take, which tests/commands/test_forecast.py does."""
    for command in ("stages", "self_train"):
        monkeypatch.setattr(f"detector.commands.{command}.announce", lambda *_, **__: {})


@pytest.fixture
def process_as_before():
    """After the test, undo what commands and `detector.train` set for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)
    logger = logging.getLogger("detector")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
