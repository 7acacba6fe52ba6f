"""detector.engine.schedule: learning rates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from detector.engine.schedule import logged_lr, lr_factor, parameter_groups, set_lr


def test_the_voc_recipe():
    def factor(iteration):
        return lr_factor(iteration, max_iter=50000, schedule="step", steps=(35000,), warmup_iters=500)

    assert factor(0) == pytest.approx(1 / 3)
    assert factor(250) == pytest.approx(2 / 3)
    assert factor(500) == factor(34999) == 1
    assert factor(35000) == factor(49999) == pytest.approx(0.1)


@given(st.integers(1, 100), st.floats(0, 1), st.integers(0, 10))
def test_cosine_falls_from_one_after_the_warm_up(max_iter, warmup_factor, warmup_iters):
    factors = [
        lr_factor(
            i, max_iter=max_iter, schedule="cosine", warmup_iters=warmup_iters, warmup_factor=warmup_factor
        )
        for i in range(max_iter)
    ]
    assert all(0 <= f <= 1 for f in factors)
    falling = factors[warmup_iters:]
    assert falling == sorted(falling, reverse=True)
    if warmup_iters == 0:
        assert factors[0] == 1
        assert factors[-1] == pytest.approx((1 + math.cos(math.pi * (max_iter - 1) / max_iter)) / 2)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="schedule is 'poly', expected 'step' or 'cosine'"):
        lr_factor(0, max_iter=1, schedule="poly")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)


def test_groups_give_each_kind_of_parameter_its_rate_and_decay():
    net = Net()
    groups = parameter_groups(
        net,
        base_lr=0.1,
        weight_decay=0.01,
        lr_factors={"backbone": 0.5},
        bias_lr_factor=2,
        bias_weight_decay=0.001,
    )
    found = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    conv, group_norm, batch_norm = net.backbone
    assert found == {
        id(conv.weight): (0.05, 0.01),
        id(conv.bias): (0.1, 0.001),
        **{id(p): (0.05, 0) for p in (*group_norm.parameters(), *batch_norm.parameters())},
        id(net.head.weight): (0.1, 0.01),
        id(net.head.bias): (0.2, 0.001),
    }


def test_frozen_parameters_are_in_no_group():
    net = Net()
    net.backbone.requires_grad_(False)
    groups = parameter_groups(net, base_lr=0.1, weight_decay=0.01)
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in net.head.parameters()}


def test_a_part_of_the_model_has_a_learning_rate_of_its_own():
    """Caffe's OICR: weights of the refinement streams at 10 times, their biases at 20 times the base."""
    net = nn.ModuleDict({"head": nn.ModuleDict({"mil": nn.Linear(2, 2), "refinements": nn.Linear(2, 2)})})
    groups = parameter_groups(net, base_lr=0.1, weight_decay=0.01, lr_factors={"head.refinements": 10.0})
    found = {id(p): g["lr"] for g in groups for p in g["params"]}
    mil, streams = net["head"]["mil"], net["head"]["refinements"]
    rates = [found[id(p)] for p in (mil.weight, mil.bias, streams.weight, streams.bias)]
    assert rates == pytest.approx([0.1, 0.2, 1.0, 2.0])
    names = ["head weight", "head bias", "head.refinements weight", "head.refinements bias"]
    assert [g["name"] for g in groups] == names


def test_a_name_that_begins_like_a_part_is_another_part():
    net = nn.ModuleDict({"drop": nn.Linear(2, 2, bias=False), "drop_more": nn.Linear(2, 2, bias=False)})
    groups = parameter_groups(net, base_lr=1.0, weight_decay=0.0, lr_factors={"drop": 3.0})
    assert sorted(g["lr"] for g in groups) == [1.0, 3.0]


def test_without_factors_the_groups_are_those_of_the_backbone_and_the_rest():
    """A checkpoint of the optimizer holds groups by their number: equal settings, equal groups."""
    sizes = [sorted(len(g["params"]) for g in parameter_groups(Net(), base_lr=1.0, weight_decay=0.0))]
    sizes += [
        sorted(len(g["params"]) for g in parameter_groups(Net(), base_lr=1.0, weight_decay=0.0, lr_factors=f))
        for f in ({"backbone": 0.5}, {})
    ]
    assert sizes[0] == sizes[1] == sizes[2] == [1, 1, 1, 1, 4]


def test_set_lr_multiplies_the_initial_rates():
    optimizer = torch.optim.SGD(parameter_groups(Net(), base_lr=0.1, weight_decay=0.01))
    set_lr(optimizer, [0.1, 0.5].__getitem__, 0)
    set_lr(optimizer, [0.1, 0.5].__getitem__, 1)
    assert {g["lr"] for g in optimizer.param_groups} == {0.05, 0.1}


@pytest.mark.parametrize(("factor", "logged"), [(1.0, {"lr": 0.1}), (0.5, {"lr": 0.1, "lr_backbone": 0.05})])
def test_the_logged_rate_is_that_of_the_heads(factor, logged):
    """The backbone comes first in the model, and so in the optimizer."""
    net = nn.ModuleDict({"backbone": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    groups = parameter_groups(net, base_lr=0.1, weight_decay=0.0, lr_factors={"backbone": factor})
    assert logged_lr(torch.optim.SGD(groups)) == logged
    net["backbone"].requires_grad_(False)
    groups = parameter_groups(net, base_lr=0.1, weight_decay=0.0, lr_factors={"backbone": factor})
    assert logged_lr(torch.optim.SGD(groups)) == {"lr": 0.1}
    assert logged_lr(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)) == {"lr": 0.3}


def test_a_group_may_have_a_gamma_of_its_own():
    """MIST's drop block: its learning rate triples where that of the others falls to a tenth."""

    def schedule(iteration, gamma=0.1):
        return lr_factor(iteration, max_iter=30, schedule="step", steps=(20, 26), gamma=gamma)

    net = Net()
    groups = parameter_groups(net, base_lr=1.0, weight_decay=0.0, gammas={"head": 3.0}, bias_lr_factor=1.0)
    optimizer = torch.optim.SGD(groups)
    for iteration, rest, head in ((19, 1.0, 1.0), (20, 0.1, 3.0), (26, 0.01, 9.0)):
        set_lr(optimizer, schedule, iteration)
        found = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
        assert found[id(net.head.weight)] == pytest.approx(head)
        assert found[id(net.backbone[0].weight)] == pytest.approx(rest)


@pytest.mark.parametrize(("factor", "scaled"), [(0.1, 0.1), (3.0, 3.0), (1.09, 1.0), (0.92, 1.0)])
def test_momentum_is_scaled_with_large_changes_of_the_learning_rate(factor, scaled):
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([{"params": [weight], "initial_lr": 0.1}], lr=0.1, momentum=0.9)
    set_lr(optimizer, [1.0, factor].__getitem__, 0, scale_momentum=True)  # there is no momentum yet
    weight.grad = torch.ones(3)
    optimizer.step()
    for scale_momentum, expected in ((False, 1.0), (True, scaled)):
        set_lr(optimizer, [1.0, factor].__getitem__, 1, scale_momentum=scale_momentum)
        momentum = optimizer.state[weight]["momentum_buffer"]
        torch.testing.assert_close(momentum, torch.full((3,), expected))
