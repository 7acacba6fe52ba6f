"""What finds whole animals rather than their heads on photographs, three seeds each.

python benchmarks/ablations_photos.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

"context": a proposal is compared with what is around it. "cover": one that contains a center is no
background; "bounded": unless it is much larger. configs/photos_pcl_lite0.yaml says where photographs,
proposals and weights come from.
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
