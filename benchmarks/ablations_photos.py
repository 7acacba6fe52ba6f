"""Ablations on photographs: context and ignore rules that localize whole animals, three seeds each.

python benchmarks/ablations_photos.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

"context": features of a proposal are compared with those of its context. "cover": proposals that contain a
center are ignored instead of background; "bounded": unless they are much larger.
configs/photos_pcl_lite0.yaml documents the origin of photographs, proposals and weights.
"""

from methods import compare

CONTEXT = ("MODEL.BOX_FEATURES.CONTEXT", "1.8")
COVER = ("CLUSTERS.IGNORE_COVER", "0.9")
BOUNDED = (*COVER, "CLUSTERS.COVER_IOU", "0.25")
ABLATIONS = {
    "pcl": (),
    "pcl_regression": ("MODEL.REGRESSION.ENABLED", "True"),
    "wsddn_context": ("MODEL.METHOD", "wsddn", *CONTEXT),
    "pcl_context": CONTEXT,
    "oicr_context": ("MODEL.METHOD", "oicr", *CONTEXT),
    "mist_context": ("MODEL.METHOD", "mist", *CONTEXT),
    "pcl_context_cover": (*CONTEXT, *COVER),
    "mist_context_cover": ("MODEL.METHOD", "mist", *CONTEXT, *COVER),
    "oicr_context_cover": ("MODEL.METHOD", "oicr", *CONTEXT, *COVER),
    "mist_context_cover_bounded": ("MODEL.METHOD", "mist", *CONTEXT, *BOUNDED),
    "oicr_context_cover_bounded": ("MODEL.METHOD", "oicr", *CONTEXT, *BOUNDED),
}

if __name__ == "__main__":
    compare("photos_ablations", "configs/photos_pcl_lite0.yaml", ABLATIONS)
