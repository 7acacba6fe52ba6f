"""Records the inputs of proposal_clusters in a trained detector, as score_maps.npz next to this file.

python tests/layers/data/record_score_maps.py runs/demo
"""

import sys
from pathlib import Path

import numpy as np
import torch

from detector.config import load_cfg
from detector.data.build import build_train_loader, build_training_set
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.modeling.build import build_model
from detector.structures import Batch

IMAGES = 4


@torch.no_grad()
def main(run: Path) -> None:
    cfg = load_cfg(run / "config.yaml")
    model = build_model(cfg)
    restore_model(model, load_checkpoint(run / "model_final.pt"), run / "model_final.pt")
    model.eval()
    loader = build_train_loader(cfg, build_training_set(cfg), stride=model.backbone.stride)
    batches: list[Batch] = []
    for batch in loader:
        batches.append(batch)
        if sum(len(b.counts) for b in batches) >= IMAGES:
            break
    outputs = [model(batch.images, batch.rois, batch.counts) for batch in batches]
    np.savez_compressed(
        Path(__file__).with_name("score_maps.npz"),
        boxes=torch.cat([b.rois[:, 1:] for b in batches]).numpy(),
        mil=torch.cat([o.mil for o in outputs]).numpy(),
        refinements=torch.cat([o.refinements for o in outputs], dim=1).numpy(),
        image_labels=torch.cat([b.labels for b in batches]).numpy(),
        counts=torch.cat([b.counts for b in batches]).numpy(),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
