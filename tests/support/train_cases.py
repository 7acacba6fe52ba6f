"""A tiny model with the interface of the detector, and batches for it, for tests of the training loop."""

import itertools

import torch
from torch import nn

from detector.engine.resuming import Progress, load_newest, restore
from detector.structures import Batch


class Net(nn.Module):
    """A network with a backbone, dropout and the signature of the detector."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(3, 4)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, images, rois, counts, sizes):
        return self.head(self.dropout(self.backbone(images.mean(dim=(2, 3)))))


def criterion(outputs, batch):
    return {"mil": ((outputs - batch.labels) ** 2).mean(), "refine_1": outputs.abs().mean()}


def make_batch(position, size=2):
    generator = torch.Generator().manual_seed(position)
    return Batch(
        images=torch.rand(size, 3, 4, 4, generator=generator),
        rois=torch.zeros(size, 5),
        labels=torch.rand(size, 2, generator=generator).round(),
        counts=torch.ones(size, dtype=torch.int64),
        image_ids=tuple(f"image{position}_{i}" for i in range(size)),
    )


def batches(start=0, step=1):
    return map(make_batch, itertools.count(start, step))


def make(device="cpu"):
    torch.manual_seed(1)
    net = Net().to(device)
    return net, torch.optim.SGD(
        [{"params": list(net.parameters()), "initial_lr": 0.1}], lr=0.1, momentum=0.9, weight_decay=0.01
    )


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def restore_newest(folder, model, optimizer, scaler=None):
    """Load the newest usable checkpoint of a run folder, if it has any."""
    newest = load_newest(folder)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    return Progress() if newest is None else restore(newest[1], newest[0], model, optimizer, scaler)
