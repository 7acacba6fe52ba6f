import torch

from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.head import Head, ImageHead
from detector.modeling.pcl import PCL
from detector.modeling.weak_rcnn import WeakRCNN
from detector.modeling.wsddn import Criterion


def make_model() -> WeakRCNN:
    backbone = SmallBackbone((8, 16))
    box_features = BoxFeatures(16, backbone.stride, output_size=3, widths=(20,), dropout=0.0)
    return WeakRCNN(backbone, box_features, Head(20, 2, 3, init_std=0.1))


def test_training_and_testing_return_the_same_type(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    trained = model(batch.images, batch.rois, batch.counts)
    tested = model.eval()(batch.images, batch.rois, batch.counts)
    torch.testing.assert_close(trained.scores(), tested.scores())


def test_a_batch_can_be_learnt(make_batch):
    torch.manual_seed(0)
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [30, 40])
    criterion, optimizer = Criterion(PCL()), torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = criterion(model(batch.images, batch.rois, batch.counts), batch)
        sum(loss.values()).backward()
        optimizer.step()
        losses.append(loss["mil"].item())
    assert losses[-1] < 0.2 * losses[0]


def test_the_image_head_classifies_the_whole_image(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    assert "image" not in Criterion(PCL())(model(batch.images, batch.rois, batch.counts), batch)
    model.image_head = ImageHead(16, 2)
    outputs = model(batch.images, batch.rois, batch.counts)
    assert outputs.image_logits.shape == (2, 2)
    loss = Criterion(PCL())(outputs, batch)["image"]
    scores = outputs.image_logits.sigmoid()
    expected = -torch.where(batch.labels == 1, scores, 1 - scores).log().mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(p.grad is not None for p in model.backbone.parameters())


def test_every_parameter_gets_a_gradient(make_batch):
    model, batch = make_model(), make_batch([[1, 1]], [30])
    sum(Criterion(PCL())(model(batch.images, batch.rois, batch.counts), batch).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_an_image_without_proposals_beside_one_with(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [0, 7])
    losses = Criterion(PCL())(model(batch.images, batch.rois, batch.counts), batch)
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
