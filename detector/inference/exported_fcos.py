"""FCOS of self-training for torch.export: images of any sizes in, boxes after NMS out."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from detector.inference.exported_student import StudentNetwork, append, grid, take_rows
from detector.self_training.fcos import FCOS, in_image, place_scores


class FCOSNetwork(StudentNetwork):
    """:class:`StudentNetwork` of an FCOS."""

    def __init__(self, model: FCOS) -> None:
        super().__init__(model)
        self.head, self.box_coder, self.places = model.head, model.box_coder, model.topk_candidates
        self.anchor_generator = copy.deepcopy(model.anchor_generator)
        self.anchor_generator.set_cell_anchors(torch.float32, torch.device("cpu"))

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cells = zip(maps, self.anchor_generator.cell_anchors, strict=True)
        anchors = torch.cat(
            [grid(each, maps[0], self.strides[0], shapes) for each, shapes in cells]
        )  # (A, 4)
        found = self.head(list(maps))
        scores = place_scores(found) * in_image(anchors, resized[:, None])[:, :, None]  # (B, A, C)
        boxes = self.box_coder.decode(found["bbox_regression"], anchors.expand(resized.shape[0], -1, -1))
        # Places that score 0, and so find nothing, fill up an image that has too few.
        boxes, scores = append(boxes, self.places), append(scores, self.places)
        best = scores.amax(dim=2).topk(self.places).indices  # (B, R)
        boxes, scores = take_rows(boxes, best).flatten(0, 1), take_rows(scores, best).flatten(0, 1)
        index = torch.arange(resized.shape[0]).repeat_interleave(self.places)
        return boxes[:, None].expand(-1, scores.shape[1], -1), scores, index
