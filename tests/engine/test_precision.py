"""detector.engine.precision: what is computed in which format, and what float16 needs."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from detector.engine.loss_log import NonFiniteLoss
from detector.engine.precision import Precision, set_tf32
from detector.layers import pcl_loss, proposal_clusters, roi_pool

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_layers_compute_in_it_and_weights_stay_float32(name, dtype):
    layer, precision = nn.Linear(3, 2), Precision(name, CPU)
    with precision.autocast():
        output = layer(torch.ones(4, 3))
    assert output.dtype == dtype
    output.float().sum().backward()
    assert layer.weight.dtype == layer.weight.grad.dtype == torch.float32
    assert precision.scaler.is_enabled() == (name == "fp16")


def test_an_unknown_precision():
    with pytest.raises(ValueError, match="precision is 'half', expected one of 'float32', 'tf32'"):
        Precision("half", CPU)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_our_ops_under_autocast(name, device):
    """Pooling keeps half features beside float32 boxes; clusters and the PCL loss compute in float32."""
    generator = torch.Generator().manual_seed(0)
    precision = Precision(name, device)
    half = torch.rand(1, 4, 8, 8, generator=generator).to(device, precision.dtype)
    boxes = torch.tensor([[0.0, 1.0, 1.0, 50.0, 40.0]], device=device)
    probs = torch.rand(30, 3, generator=generator).softmax(dim=1).to(device)
    corners = torch.rand(30, 2, generator=generator) * 40
    proposals = torch.cat([corners, corners + 20], dim=1).to(device)
    counts, labels = torch.tensor([30]), torch.ones(1, 2, device=device)

    def run():
        pooled = roi_pool(half, boxes, 2, 1 / 8)
        found = proposal_clusters(proposals, probs[:, 1:], labels, counts, method="pcl")
        return pooled, found.weights, pcl_loss(probs, *found[:3], counts)

    expected = run()
    with precision.autocast():
        pooled, weights, loss = run()
    assert pooled.dtype == precision.dtype
    assert weights.dtype == loss.dtype == torch.float32
    for inside, outside in zip((pooled, weights, loss), expected, strict=True):
        assert inside.equal(outside)


def test_float16_leaves_out_a_step_that_overflows():
    precision, weight = Precision("fp16", CPU), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for gradient, moved in ((float("inf"), 1.0), (1.0, 0.9)):
        scale = precision.scaler.get_scale()
        precision.scaler.scale(weight * gradient).backward()
        precision.scaler.unscale_(optimizer)
        norm = precision.logged_norm(weight.grad.norm())
        precision.scaler.step(optimizer)
        precision.scaler.update()
        optimizer.zero_grad()
        assert norm.isfinite()
        assert weight.item() == pytest.approx(moved)
        assert precision.scaler.get_scale() == (scale if gradient == 1 else scale / 2)
    precision.check(1, ["a"])
    precision.scaler.update(0.5)
    with pytest.raises(NonFiniteLoss, match=r"in step 7 the gradient overflows float16 .* images a, b;"):
        precision.check(7, ["a", "b"])


def test_without_a_scaler_an_infinite_norm_stays_one():
    assert Precision("bf16", CPU).logged_norm(torch.tensor(float("inf"))).isinf()


def test_tf32_is_as_asked():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        for allowed in (True, False):
            set_tf32(allowed)
            assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


_TF32_STATES = """
import torch
from detector.engine.precision import tf32_allowed

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

def state():
    return [each.fp32_precision for each in (matmul, cudnn.conv, cudnn.rnn, torch.backends)]

def flags():
    return [matmul.allow_tf32, cudnn.allow_tf32]

def set_flags(value):
    matmul.allow_tf32 = cudnn.allow_tf32 = value

for change in (lambda: None, lambda: set_flags(True), lambda: set_flags(False)):
    change()
    before = state(), flags()
    for allowed in (True, False):
        with tf32_allowed(allowed):
            assert flags() == [allowed, allowed]
        assert (state(), flags()) == before
torch.backends.fp32_precision = matmul.fp32_precision = "tf32"
before = state()
with tf32_allowed(False):
    assert flags() == [False, False]
assert state() == before
"""


def test_either_setting_of_tf32_is_restored():
    """In a process of its own, as torch's settings inherit from one another until they are set."""
    run = subprocess.run([sys.executable, "-c", _TF32_STATES], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
