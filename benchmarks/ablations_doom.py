"""Ablations of PCL on Doom, and MIST with context, three seeds each.

python benchmarks/ablations_doom.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

"fast" and "grid" require datasets/doom/proposals_fast.npz and proposals_grid.npz; see docs/doom.md for the
commands that create them.
"""

from methods import compare

CONTEXT = ("MODEL.BOX_FEATURES.CONTEXT", "1.8")
ABLATIONS = {
    "pcl": (),
    "no_ignore": ("CLUSTERS.IGNORE_IOU", "0"),
    "1_stream": ("MODEL.STREAMS", "1", "MODEL.STREAM_WEIGHTS", "(1.0,)"),
    "2_streams": ("MODEL.STREAMS", "2", "MODEL.STREAM_WEIGHTS", "(1.0, 1.0)"),
    "fast": ("DATASETS.PROPOSALS", "datasets/doom/proposals_fast.npz"),
    "grid": ("DATASETS.PROPOSALS", "datasets/doom/proposals_grid.npz"),
    "pcl_context": CONTEXT,
    "mist_context": ("MODEL.METHOD", "mist", *CONTEXT),
}

if __name__ == "__main__":
    compare("doom_ablations", "configs/doom_pcl_lite0.yaml", ABLATIONS)
