"""detector.engine.loss_log: what the log reads, and what stops a run."""

import pytest
import torch

from detector.engine.loss_log import LossLog, NonFiniteLoss


def test_means_since_the_last_call():
    log = LossLog()
    log.add({"a": torch.tensor(1.0), "b": torch.tensor(5.0)}, ("x",), 1)
    log.check()
    log.add({"a": torch.tensor(2.0)}, ("y",), 2)
    assert log.means() == {"a": 1.5, "b": 5.0}
    log.add({"a": torch.tensor(7.0)}, ("z",), 3)
    assert log.means() == {"a": 7.0}
    assert log.means() == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_first_value_that_is_not_finite_names_its_images(value):
    log = LossLog()
    log.add({"a": torch.tensor(1.0)}, ("w",), 1)
    log.add({"a": torch.tensor(value)}, ("x", "y"), 2)
    log.add({"a": torch.tensor(value)}, ("z",), 3)
    with pytest.raises(NonFiniteLoss, match=f"in step 2 a is {value}, from the images x, y;"):
        log.check()


def test_values_do_not_keep_the_graph():
    log = LossLog()
    weight = torch.ones((), requires_grad=True)
    log.add({"a": weight * 2}, ("x",), 1)
    assert not log._unread[0][3].requires_grad
