"""Calls layers of an installed wheel and checks their results: try_wheels.py runs it beside torch alone."""

import torch

from detector.layers import nms, pcl_loss, roi_align, selective_search

for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
    boxes = torch.tensor([[0.0, 0, 8, 8], [0, 0, 8, 7], [4, 4, 12, 12]], device=device)
    kept = nms(boxes, torch.tensor([0.5, 0.9, 0.7], device=device), 0.5)
    assert kept.tolist() == [1, 2]

    features = torch.rand(1, 2, 16, 16, device=device, requires_grad=True)
    rois = torch.cat([torch.zeros(3, 1, device=device), boxes], 1)
    pooled = roi_align(features, rois, 4)
    (grad,) = torch.autograd.grad(pooled.sum(), features)
    torch.testing.assert_close(grad.sum(), torch.tensor(float(pooled.numel()), device=device))
    torch.testing.assert_close(torch.compile(roi_align, fullgraph=True)(features, rois, 4), pooled)

    # Two proposals of class 1 in one cluster: loss = -2 log 0.5 / 2.
    probs = torch.full((2, 2), 0.5, device=device, requires_grad=True)
    index = torch.ones(2, dtype=torch.int64, device=device)
    loss = pcl_loss(probs, index, torch.ones(2, device=device), index - 1)
    loss.backward()
    torch.testing.assert_close(loss, torch.log(torch.tensor(2.0, device=device)))
    assert probs.grad is not None
    assert (probs.grad[:, 1] < 0).all()

image = torch.zeros(3, 64, 64, dtype=torch.uint8)
image[:, 16:48, 16:48] = 255
found = selective_search([image])[0]
assert ((found - torch.tensor([16.0, 16, 48, 48])).abs().amax(1) <= 2).any(), found
