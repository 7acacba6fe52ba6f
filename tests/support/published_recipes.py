"""The published recipes key by key, from the authors' configurations, solvers and code.

This is the specification: the configs are held to it, not the other way round. Keys that are not here have
the value of `COMMON`.
"""

SIZES = (480, 576, 688, 864, 1200)
SIX_SIZES = (480, 576, 688, 864, 1000, 1200)

# Equal in all of the recipes, unless one says otherwise.
COMMON = {
    "DATASETS.DIFFICULT_LABELS": False,
    "DATASETS.TRAIN_SPLIT": "trainval",
    "DATASETS.TEST_SPLIT": "test",
    "PROPOSALS.MIN_SIZE": 2.0,
    "INPUT.TRAIN_SIZES": SIZES,
    "INPUT.TEST_SIZES": SIZES,
    "INPUT.SIDE": "shortest",
    "INPUT.MAX_SIZE": 2000,
    "INPUT.TEST_SIDE": "same",
    "INPUT.FLIP": True,
    "INPUT.TEST_FLIP": True,
    "INPUT.INCLUSIVE_ROIS": True,
    "INPUT.PAD_MULTIPLE": 1,
    "MODEL.WEIGHTS": "datasets/vgg16_caffe.pth",
    "MODEL.STREAMS": 3,
    "MODEL.STREAM_WEIGHTS": (1.0, 1.0, 1.0),
    "MODEL.HEAD_STD": 0.01,
    "MODEL.IMAGE_HEAD": False,
    "MODEL.MIL_REDUCTION": "mean",
    "MODEL.MIL_BACKGROUND": False,
    "MODEL.BACKBONE.NAME": "vgg16",
    "MODEL.BACKBONE.STRIDE": 8,
    "MODEL.BACKBONE.FROZEN_STAGES": 2,
    "MODEL.BOX_FEATURES.POOL": "roi_pool",
    "MODEL.BOX_FEATURES.OUTPUT_SIZE": 7,
    "MODEL.BOX_FEATURES.WIDTHS": (4096, 4096),
    "MODEL.BOX_FEATURES.DROPOUT": 0.5,
    "MODEL.BOX_FEATURES.DROP_CELLS": 0.0,
    "MODEL.BOX_FEATURES.CONTEXT": 0.0,
    "MODEL.DROP_BLOCK.ENABLED": False,
    "MODEL.REGRESSION.ENABLED": False,
    "CLUSTERS.GRAPH_IOU": 0.4,
    "CLUSTERS.MAX_CENTERS": 5,
    "CLUSTERS.MEMBER_IOU": 0.5,
    "CLUSTERS.IGNORE_IOU": 0.0,
    "CLUSTERS.IGNORE_COVER": 0.0,
    "SOLVER.OPTIMIZER": "sgd",
    "SOLVER.IMAGES_PER_BATCH": 1,
    "SOLVER.SORT_WINDOW": 1,
    "SOLVER.REPEAT_THRESHOLD": 0.0,
    "SOLVER.BOXED_SHARE": 0.5,
    "SOLVER.BASE_LR": 1e-3,
    "SOLVER.GRADIENT_REDUCTION": "mean",
    "SOLVER.LR_SCALING": "none",
    "SOLVER.BACKBONE_LR_FACTOR": 1.0,
    "SOLVER.REFINEMENT_LR_FACTOR": 1.0,
    "SOLVER.BIAS_LR_FACTOR": 2.0,
    "SOLVER.MOMENTUM": 0.9,
    "SOLVER.SCALE_MOMENTUM": False,
    "SOLVER.WEIGHT_DECAY": 5e-4,
    "SOLVER.BIAS_WEIGHT_DECAY": 0.0,
    "SOLVER.SCHEDULE": "step",
    "SOLVER.GAMMA": 0.1,
    "SOLVER.CLIP_NORM": 0.0,
    "SOLVER.WARMUP_FACTOR": 1 / 3,
    "TEST.NMS": 0.3,
    "TEST.SCORE_THRESHOLD": 1e-5,
    "TEST.MAX_PER_CLASS": 0,
    "TEST.MAX_DETECTIONS": 100,
}

CAFFE = {
    "PROPOSALS.MIN_SIZE": 0.0,  # lib/datasets/pascal_voc.py drops none
    "INPUT.TEST_SIDE": "longest",
    "SOLVER.IMAGES_PER_STEP": 2,
    "SOLVER.REFINEMENT_LR_FACTOR": 10.0,  # biases x 20
    "SOLVER.STEPS": (40000,),
    "SOLVER.WARMUP_ITERS": 0,
    "TEST.SCORE_THRESHOLD": 0.0,
    "TEST.MAX_PER_CLASS": 100,
    "TEST.MAX_DETECTIONS": 100 * 20,
}

PYTORCH = {
    "INPUT.SIDE": "longest",  # lib/utils/blob.py, get_target_scale; no cap, so that MAX_SIZE 2000 is none
    "MODEL.BOX_FEATURES.DROPOUT": 0.0,
    "CLUSTERS.IGNORE_IOU": 0.1,
    "SOLVER.IMAGES_PER_STEP": 4,
    "SOLVER.BASE_LR": 5e-4,
    "SOLVER.GRADIENT_REDUCTION": "sum",
    "SOLVER.SCALE_MOMENTUM": True,
    "SOLVER.WARMUP_ITERS": 500,
}

OICR_REG = {
    **PYTORCH,
    "MODEL.METHOD": "oicr",
    "MODEL.STREAM_WEIGHTS": (3.0, 1.0, 1.0),
    "MODEL.REGRESSION.ENABLED": True,
    "MODEL.REGRESSION.LABELS": "top1",
    "MODEL.REGRESSION.WEIGHT": 1.0,
    "MODEL.REGRESSION.SCORE_WEIGHT": 3.0,  # (mean of three streams + branch) / 2
}

PUBLISHED = {
    "voc07_pcl_caffe_vgg16": {**COMMON, **CAFFE, "MODEL.METHOD": "pcl", "SOLVER.MAX_ITER": 50000},
    "voc07_oicr_caffe_vgg16": {**COMMON, **CAFFE, "MODEL.METHOD": "oicr", "SOLVER.MAX_ITER": 70000},
    "voc07_pcl_pytorch_vgg16": {
        **COMMON,
        **PYTORCH,
        "MODEL.METHOD": "pcl",
        "SOLVER.MAX_ITER": 25000,
        "SOLVER.STEPS": (17500,),
    },
    "voc07_oicr_reg_pytorch_vgg16": {
        **COMMON,
        **OICR_REG,
        "SOLVER.MAX_ITER": 140_000 // 4,
        "SOLVER.STEPS": (100_000 // 4,),
    },
    "voc07_oicr_reg_longer_vgg16": {
        **COMMON,
        **OICR_REG,
        "INPUT.TRAIN_SIZES": SIX_SIZES,
        "INPUT.TEST_SIZES": SIX_SIZES,
        "SOLVER.MAX_ITER": 150_000 // 4,
        "SOLVER.STEPS": (110_000 // 4,),
    },
    "voc07_mist_reg_wetectron_vgg16": {
        **COMMON,
        "PROPOSALS.MIN_SIZE": 1.0,  # remove_small_boxes keeps sides of at least 2
        "INPUT.TRAIN_SIZES": SIX_SIZES,
        "INPUT.TEST_SIZES": (480, 576, 688, 800, 864, 1000, 1200),  # flipped as well: 14 passes
        "INPUT.PAD_MULTIPLE": 32,
        "MODEL.METHOD": "mist_wetectron",
        "MODEL.STREAM_WEIGHTS": (3.0, 1.0, 1.0),
        "MODEL.HEAD_STD": 0.001,
        "MODEL.MIL_BACKGROUND": True,  # softmax over 21 classes
        "MODEL.DROP_BLOCK.ENABLED": True,
        "MODEL.DROP_BLOCK.SHARE": 0.3,
        "MODEL.DROP_BLOCK.SIZE": 3,
        "MODEL.DROP_BLOCK.TEMPERATURE": 0.01,
        "MODEL.REGRESSION.ENABLED": True,
        "MODEL.REGRESSION.WEIGHT": 1.0,
        "CLUSTERS.TOP_SHARE": 0.15,
        "CLUSTERS.NMS_IOU": 0.2,
        "SOLVER.IMAGES_PER_STEP": 8,
        "SOLVER.BASE_LR": 0.01,
        "SOLVER.DROP_BLOCK_LR_FACTOR": 0.01,  # 1e-4, and 1e-6 with the gradient's factor
        "SOLVER.DROP_BLOCK_GAMMA": 3.0,
        "SOLVER.SCALE_MOMENTUM": True,
        "SOLVER.WEIGHT_DECAY": 1e-4,
        "SOLVER.MAX_ITER": 30000,
        "SOLVER.STEPS": (20000, 26700),
        "SOLVER.WARMUP_ITERS": 200,
        "TEST.SCORE_THRESHOLD": 0.0,
    },
}

# Keys that may have any value in a published recipe: where things are, how fast, and what it does not use.
FREE = {
    *(
        "SEED",
        "DETERMINISTIC",
        "DEVICE",
        "THREADS",
        "PRECISION",
        "CHANNELS_LAST",
        "CUDNN_BENCHMARK",
        "COMPILE",
    ),
    *("OUTPUT_DIR", "DATASETS.FORMAT", "DATASETS.ROOT", "DATASETS.CLASSES", "DATASETS.PROPOSALS"),
    *(
        "DATASETS.COCO_JSON",
        "DATASETS.COCO_IMAGES",
        "DATASETS.WORKERS",
        "DATASETS.BOXED",
        "DATASETS.BOXED_SHARE",
        "DATASETS.HINTS",
        "DATASETS.TEACHER",
        "DATASETS.TEACHER_CLASSES",
        "DATASETS.MISSING_TAGS",
        "DATASETS.FALSE_TAGS",
        "INPUT.TILE",
        "INPUT.TILE_OVERLAP",
        "INPUT.TILES_PER_STEP",
        "PROPOSALS.MODE",
    ),
    *(
        "PROPOSALS.LONGEST_SIDE",
        "PROPOSALS.MIN_REGION",
        "PROPOSALS.SIDES",
        "PROPOSALS.MAX_COUNT",
        "INPUT.MEAN",
        "INPUT.STD",
    ),
    *("MODEL.BACKBONE.RECOMPUTE", "MODEL.BACKBONE.TIMM_NAME"),
    *("MODEL.BOX_FEATURES.CHUNK", "CLUSTERS.COVER_IOU", "SOLVER.ACCUMULATE", "SOLVER.LR_IMAGES"),
    *(
        "SOLVER.LOG_PERIOD",
        "SOLVER.PICTURE_PERIOD",
        "SOLVER.AP_SHARE",
        "SOLVER.CHECKPOINT_PERIOD",
        "SOLVER.KEEP_CHECKPOINTS",
    ),
    *("DISTRIBUTED.TIMEOUT", "TEST.METRICS", "TEST.PICTURES", "TEST.PICTURE_SCORE"),
}
