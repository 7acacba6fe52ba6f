"""FCOS of self-training for torch.export: an image of any size in, boxes after NMS out."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from detector.inference.exported_student import StudentNetwork, grid
from detector.self_training.fcos import FCOS, in_image, place_scores


class FCOSNetwork(StudentNetwork):
    """:class:`StudentNetwork` of an FCOS."""

    def __init__(self, model: FCOS) -> None:
        super().__init__(model)
        self.head, self.box_coder, self.places = model.head, model.box_coder, model.topk_candidates
        self.anchor_generator = copy.deepcopy(model.anchor_generator)
        self.anchor_generator.set_cell_anchors(torch.float32, torch.device("cpu"))

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor]:
        cells = zip(maps, self.anchor_generator.cell_anchors, strict=True)
        anchors = torch.cat([grid(each, maps[0], self.strides[0], shapes) for each, shapes in cells])
        found = self.head(list(maps))
        scores = place_scores(found)[0] * in_image(anchors, resized)[:, None]  # (A, C)
        boxes = self.box_coder.decode(found["bbox_regression"][0], anchors)
        # Places that score 0, and so find nothing, fill up an image that has too few.
        empty = boxes.new_zeros(self.places, 4), scores.new_zeros(self.places, scores.shape[1])
        boxes, scores = torch.cat([boxes, empty[0]]), torch.cat([scores, empty[1]])
        best = scores.amax(dim=1).topk(self.places).indices
        return boxes[best][:, None].expand(-1, scores.shape[1], -1), scores[best]
