"""What all tests share: the devices they run on."""

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # xdist already keeps every core busy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Runs the test on the CPU and, where there is one, on the GPU."""
    return torch.device(request.param)
