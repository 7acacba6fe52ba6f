import multiprocessing
import os
import signal
from dataclasses import replace
from itertools import islice

import pytest
import torch

from detector.data.batch_order import SeededBatches
from detector.data.datasets.voc import VOCDataset
from detector.data.loader import TestDataset, WeakDataset, collate, make_views
from detector.data.tiles import Tiling
from detector.data.transforms import TestTransform, TrainTransform
from detector.data.worker_loader import WorkerLoader, _explain_errors, seeded_loader
from detector.structures import Sample
from detector.utils.errors import DataError, UserError, worker_failure

CLASSES = ("bird", "cat", "dog")


@pytest.fixture
def source(small_voc):
    return VOCDataset(small_voc.root, "trainval", CLASSES)


@pytest.fixture
def proposals(source):
    """Different numbers of boxes an image; none in image b."""
    generator = torch.Generator().manual_seed(0)
    counts = {"a": 9, "b": 0, "c": 4, "d": 6, "e": 1}
    boxes = {}
    for image_id, count in counts.items():
        corners = torch.randint(0, 12, (count, 2), generator=generator).float()
        boxes[image_id] = torch.cat([corners, corners + 15 + torch.arange(count)[:, None]], dim=1)
    return boxes


@pytest.fixture
def dataset(source, proposals):
    transform = TrainTransform(sizes=(24, 40, 56), side="shortest", max_size=200, flip=True)
    return WeakDataset(source, proposals, transform, min_size=2, stride=1, max_count=100)


# ---- Samples


def test_a_sample_depends_on_its_draw_alone(dataset):
    torch.manual_seed(0)
    first = dataset[0, 5]
    torch.manual_seed(1)
    second = dataset[0, 5]
    assert torch.equal(first.image, second.image)
    assert torch.equal(first.proposals, second.proposals)
    assert len({dataset[0, draw].image.shape for draw in range(20)}) == 3


def test_a_sample_holds_its_own_image(dataset, source):
    for index in range(5):
        sample = dataset[index, 0]
        assert sample.image_id == source.image_ids[index]
        assert torch.equal(sample.labels, source.labels(index))
        assert (sample.image.dtype, sample.proposals.dtype) == (torch.uint8, torch.float32)


@pytest.mark.parametrize("size", [20, 400])
def test_what_counts_as_small_does_not_depend_on_the_size_drawn(source, size):
    boxes = dict.fromkeys(source.image_ids, torch.tensor([[0.0, 0, 3, 9], [0, 0, 4, 9], [0, 0, 9, 9]]))
    transform = TrainTransform(sizes=(size,), side="shortest", max_size=2000, flip=False)
    dataset = WeakDataset(source, boxes, transform, min_size=3, stride=1, max_count=100)
    scale = size / 40
    assert dataset[0, 0].proposals.tolist() == [[0, 0, 4 * scale, 9 * scale], [0, 0, 9 * scale, 9 * scale]]


@pytest.mark.parametrize("flip", [False, True])
def test_roi_pooling_may_get_the_inclusive_corners_of_the_authors_code(source, flip):
    """A box from pixel x1 to pixel x2, both in it, counted from 0: the authors scale these two numbers."""
    inclusive = torch.tensor([[4.0, 2, 19, 29], [7, 7, 7, 7]])
    half_open = inclusive + torch.tensor([0, 0, 1, 1])
    sample = Sample(torch.zeros(3, 40, 60, dtype=torch.uint8), half_open, torch.ones(2), "a")
    test = TestTransform(80, "shortest", 2000, flip, inclusive_rois=True)
    train = TrainTransform((100,), "shortest", 2000, False, inclusive_rois=True)
    batch = collate(make_views(sample, [test, test]).samples)
    if flip:
        x1, y1, x2, y2 = inclusive.unbind(dim=1)
        inclusive = torch.stack([59 - x2, y1, 59 - x1, y2], dim=1)
    for moved in (batch, batch.to("cpu")):
        rois = moved.inputs[1]
        assert torch.equal(rois[:, 1:], 2 * torch.cat([inclusive, inclusive]))
        assert torch.equal(moved.rois[:2, 3:] - rois[:2, 3:], torch.full((2, 2), 2.0))  # IoUs see these
    if not flip:
        rois = collate([train(sample, torch.Generator())]).inputs[1]
        torch.testing.assert_close(rois[:, 1:], 2.5 * inclusive)
    plain = collate(make_views(sample, [replace(test, inclusive_rois=False)]).samples)
    assert plain.inputs[1] is plain.rois


@pytest.mark.parametrize(("size", "kept"), [(40, 1), (80, 2)])
def test_the_feature_grid_is_that_of_the_transformed_image(source, size, kept):
    boxes = dict.fromkeys(source.image_ids, torch.tensor([[0.0, 0, 32, 32], [0, 0, 35, 32]]))
    transform = TrainTransform(sizes=(size,), side="shortest", max_size=2000, flip=False)
    dataset = WeakDataset(source, boxes, transform, min_size=2, stride=8, max_count=100)
    assert len(dataset[0, 0].proposals) == kept


def test_the_first_proposals_are_kept(source, proposals):
    transform = TrainTransform(sizes=(40,), side="shortest", max_size=2000, flip=False)
    dataset = WeakDataset(source, proposals, transform, min_size=2, stride=1, max_count=3)
    assert torch.equal(dataset[0, 0].proposals, proposals["a"][:3])  # 40 pixels is its own height


# ---- Batches


def white(height, width, count):
    """A white image with `count` equal boxes."""
    image, boxes = torch.full((3, height, width), 255, dtype=torch.uint8), torch.tensor([[0.0, 0, 1, 1]])
    return Sample(image, boxes.expand(count, 4), torch.tensor([1.0, 0.0]), "a")


def test_collate_pads_right_and_bottom():
    batch = collate([white(18, 20, 1), white(17, 24, 0), white(2, 2, 2)])
    assert batch.images.shape == (3, 3, 18, 24)
    assert batch.images.dtype == torch.uint8
    assert batch.images.sum(dim=(1, 2, 3)).tolist() == [3 * 255 * cells for cells in (18 * 20, 17 * 24, 4)]
    assert batch.images[0, :, :18, :20].min() == batch.images[1, :, :17, :24].min() == 255
    assert batch.rois.tolist() == [[0, 0, 0, 1, 1], [2, 0, 0, 1, 1], [2, 0, 0, 1, 1]]
    assert batch.counts.tolist() == [1, 0, 2]
    assert batch.counts.dtype == torch.int64
    assert batch.labels.shape == (3, 2)
    assert batch.sizes.tolist() == [[18, 20], [17, 24], [2, 2]]


def test_collate_keeps_the_unknown_classes():
    assert collate([white(2, 2, 1), white(2, 2, 1)]).unknown is None
    samples = [
        replace(white(2, 2, 1), unknown=torch.tensor(each)) for each in ([True, False], [False, False])
    ]
    assert collate(samples).to("cpu").unknown.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize(("multiple", "padded"), [(1, (16, 40)), (8, (16, 40)), (32, (32, 64))])
def test_a_mere_line_is_padded_to_what_networks_need_and_to_a_multiple(multiple, padded):
    assert collate([white(1, 40, 1)], multiple).images.shape[2:] == padded


def test_collate_of_images_without_any_proposal():
    batch = collate([Sample(torch.ones(3, 4, 4), torch.zeros(0, 4), torch.zeros(2), "a")])
    assert batch.rois.shape == (0, 5)
    assert batch.counts.tolist() == [0]


def test_batches_do_not_depend_on_workers(dataset):
    alone = list(islice(seeded_loader(dataset, collate, images_per_batch=2, seed=4), 8))
    for workers in (1, 2):
        shared = islice(seeded_loader(dataset, collate, images_per_batch=2, seed=4, workers=workers), 8)
        assert list(shared) == alone


def test_processes_share_the_batches(dataset):
    alone = list(islice(seeded_loader(dataset, collate, images_per_batch=2, seed=4, start=3), 4))
    options = {"images_per_batch": 2, "seed": 4, "start": 3, "world_size": 2}
    shards = [seeded_loader(dataset, collate, rank=rank, **options) for rank in (0, 1)]
    pairs = islice(zip(*shards, strict=True), 2)
    assert [batch for pair in pairs for batch in pair] == alone


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_leaves_the_global_random_state_alone(dataset, workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    next(iter(seeded_loader(dataset, collate, images_per_batch=2, seed=4, workers=workers)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_shape_is_known_before_the_image_is_read(dataset):
    for entry in next(iter(SeededBatches(5, 5, seed=3))):
        assert dataset.shape(*entry) == dataset[entry].image.shape[1:]


def test_an_error_in_a_worker_names_the_file(dataset, source):
    for left in (0.5, 0):  # the traceback of the decoder is longer
        for index in range(5):
            content = source.image_path(index).read_bytes()
            source.image_path(index).write_bytes(content[: int(left * len(content))])
        with pytest.raises(DataError, match=r"^image [^\n]*\.jpg cannot be read[^\n]*$"):
            next(iter(seeded_loader(dataset, collate, images_per_batch=2, seed=4, workers=1)))
    source.image_path(0).unlink()
    with pytest.raises(FileNotFoundError, match=r"^image [^\n]*a\.jpg does not exist$"):
        list(
            WorkerLoader(
                TestDataset(source, dataset.proposals, (), min_size=1, max_count=1),
                workers=1,
                batch_size=None,
            )
        )


class Slow(torch.utils.data.Dataset):
    """Its worker stops or kills itself while it reads the second item."""

    def __init__(self, deed):
        self.deed = deed

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 1:
            os.kill(os.getpid(), self.deed)
        return index


def read_until_failure(loader):
    """Read until the worker fails; torch's signal handler may raise before the loader's iterator does."""
    try:
        return list(loader)
    except RuntimeError as error:
        if failure := worker_failure(error):
            raise failure from error
        raise


def test_a_killed_worker_is_an_error_of_the_user():
    with pytest.raises(UserError, match=r"has died .*memory.*DATASETS\.WORKERS") as caught:
        read_until_failure(WorkerLoader(Slow(signal.SIGKILL), workers=1, batch_size=None))
    assert len(str(caught.value).splitlines()) == 1


class Unsendable:
    """A batch that the thread of a worker cannot send, as one for which there is no memory to share."""

    def __reduce__(self):
        raise RuntimeError("unable to mmap 8 bytes from file </torch>: Cannot allocate memory (12)\nmore")

    def __getitem__(self, index):
        return Unsendable()

    def __len__(self):
        return 4


def test_a_worker_that_cannot_send_a_batch_ends(capfd):
    with pytest.raises(UserError, match=r"has died .*memory.*DATASETS\.WORKERS"):
        read_until_failure(WorkerLoader(Unsendable(), workers=1, batch_size=None))
    assert "cannot send them: unable to mmap 8 bytes" in capfd.readouterr().err


def test_a_stopped_worker_is_an_error_after_a_time(monkeypatch):
    monkeypatch.setattr("detector.data.worker_loader._WORKER_TIMEOUT", 1)
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    earlier = set(multiprocessing.active_children())  # of other tests
    with pytest.raises(UserError, match=r"timed out after 1 seconds.*DATASETS\.WORKERS 0"):
        list(WorkerLoader(Slow(signal.SIGSTOP), workers=1, batch_size=None))
    for worker in set(multiprocessing.active_children()) - earlier:  # Python would wait for them at its end
        worker.join(10)
        assert not worker.is_alive()


def test_one_time_out_is_forgiven():
    """Where this process was stopped with its workers, the time has passed for nothing."""

    class Paused:
        answers = iter([RuntimeError("DataLoader timed out after 1 seconds"), 1, StopIteration()])

        def __next__(self):
            answer = next(self.answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert list(_explain_errors(Paused())) == [1]


# ---- Test passes


def test_passes(source, proposals):
    transforms = [
        TestTransform(size, "shortest", 200, flipped) for size in (20, 50) for flipped in (False, True)
    ]
    dataset = TestDataset(source, proposals, transforms, min_size=2, max_count=7)
    for workers in (0, 2):
        items = list(WorkerLoader(dataset, workers=workers, batch_size=None))
        assert [views.image_id for views in items] == list(source.image_ids)
        for index, views in enumerate(items):
            boxes = views.proposals
            height, width = views.size
            assert views.size == source.image_size(index)
            assert torch.equal(boxes, proposals[views.image_id][:7])
            for sample, transform in zip(views.samples, transforms, strict=True):
                assert sample.flipped == transform.flip
                new_height, new_width = sample.image.shape[1:]
                assert min(new_height, new_width) == transform.size
                back = sample.proposals / torch.tensor([new_width / width, new_height / height] * 2)
                if transform.flip:
                    back = torch.stack(
                        [width - back[:, 2], back[:, 1], width - back[:, 0], back[:, 3]], dim=1
                    )
                assert torch.allclose(back, boxes, atol=1e-4)  # row for row


# ---- Tiles


def test_a_batch_of_tiles_has_the_proposals_of_each_image_once(source, proposals):
    transform = TrainTransform(sizes=(20,), side="shortest", max_size=200, flip=True)
    options = {"min_size": 2, "stride": 1, "max_count": 100, "tiling": Tiling(20, 0.5, 100)}
    tiled = WeakDataset(source, proposals, transform, **options)
    batch = collate([tiled[0, 3], tiled[1, 4], tiled[2, 5]])
    assert batch.tiles.tolist() == [len(Tiling(20, 0.5).boxes(*source.image_size(i))) for i in range(3)]
    assert len(batch.images) == batch.tiles.sum()
    assert batch.counts.tolist() == [9, 0, 4]
    assert batch.image_ids == ("a", "b", "c")
    assert batch.labels.shape == (3, 3)
    assert batch.owners.tolist() == [0] * 9 + [2] * 4
    assert batch.weights.tolist() == [1] * 13
    found = {tuple(box) for box in batch.boxes[:9].tolist()}
    assert found == {tuple(box) for box in proposals["a"].tolist()}


def test_images_that_fit_in_a_tile_are_as_without_tiles(dataset, source, proposals):
    options = {"min_size": 2, "stride": 1, "max_count": 100, "tiling": Tiling(200)}
    tiled = WeakDataset(source, proposals, dataset.transform, **options)
    batch, whole = collate([tiled[0, 3], tiled[2, 4]]), collate([dataset[0, 3], dataset[2, 4]])
    assert torch.equal(batch.images, whole.images)
    assert torch.equal(batch.rois, whole.rois)
    assert torch.equal(batch.counts, whole.counts)


def test_the_views_of_tiles_have_all_proposals_once(source, proposals):
    transforms = [TestTransform(20, "shortest", 200, flip) for flip in (False, True)]
    options = {"min_size": 2, "max_count": 100}
    tiles = TestDataset(source, proposals, transforms, **options, tiling=Tiling(20, 0.5))[0]
    whole = TestDataset(source, proposals, transforms, **options)[0]
    found = torch.cat([views.proposals for views in tiles])
    assert sorted(found.tolist()) == sorted(whole.proposals.tolist())
    for views in tiles:
        assert views.size == source.image_size(0)
        assert max(views.samples[0].image.shape) <= 20
        assert all(len(sample.proposals) == len(views.proposals) for sample in views.samples)
