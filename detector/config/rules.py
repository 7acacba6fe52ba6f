"""The checks across keys: what values require of one another, and what is probably not intended."""

from collections.abc import Iterator
from itertools import chain

from detector.config.keys import require
from detector.config.settings import KEYS, Settings

# Whether a requirement holds, and else the key to change and what is expected of it.
Rules = Iterator[tuple[bool, str, str]]


def check_settings(cfg: Settings, source: str) -> None:
    """Raise ConfigError, which begins with `source`, where values do not fit one another."""
    values = cfg.values()
    for holds, key, expected in chain(
        _list_rules(cfg), _data_rules(cfg), _network_rules(cfg), _regression_rules(cfg)
    ):
        require(holds, f"{source}{key}", values[key], expected)


def schedule_warnings(cfg: Settings) -> list[str]:
    """What is allowed in the schedule of SOLVER, but probably not intended."""
    solver, warnings = cfg.solver, []
    if solver.warmup_iters >= solver.max_iter:
        warnings.append(
            f"SOLVER.WARMUP_ITERS is {solver.warmup_iters} and SOLVER.MAX_ITER {solver.max_iter}: the "
            "learning rate never reaches its full value"
        )
    late = [step for step in solver.steps if step >= solver.max_iter]
    if solver.schedule == "cosine" and solver.steps not in ((), KEYS["SOLVER.STEPS"].default):
        warnings.append(
            f"SOLVER.SCHEDULE is 'cosine', which ignores SOLVER.STEPS {solver.steps}: leave them out, or "
            "take the schedule 'step'"
        )
    if solver.schedule == "step" and late:
        warnings.append(
            f"SOLVER.STEPS has {', '.join(map(str, late))}, and SOLVER.MAX_ITER is {solver.max_iter}: the "
            "learning rate is not lowered there"
        )
    return warnings


def _list_rules(cfg: Settings) -> Rules:
    inputs, student = cfg.input, cfg.self_train
    yield len(inputs.train_sizes) > 0, "INPUT.TRAIN_SIZES", "at least one size"
    yield len(inputs.test_sizes) > 0, "INPUT.TEST_SIZES", "at least one size"
    yield len(student.sizes) > 0, "SELF_TRAIN.SIZES", "at least one size"
    yield len(inputs.mean) == 3, "INPUT.MEAN", "3 numbers: red, green, blue"
    yield len(inputs.std) == 3, "INPUT.STD", "3 numbers: red, green, blue"
    sides, jitter = cfg.proposals.sides, student.scale_jitter
    ascending = len(sides) == 2 and 1 <= sides[0] <= sides[1]
    yield ascending, "PROPOSALS.SIDES", "the shortest and the longest side, at least 1 pixel"
    ascending = len(jitter) == 2 and jitter[0] <= jitter[1]
    yield ascending, "SELF_TRAIN.SCALE_JITTER", "two factors, the lower one first"
    expected = f"as many numbers as MODEL.STREAMS, which is {cfg.model.streams}"
    yield len(cfg.model.stream_weights) == cfg.model.streams, "MODEL.STREAM_WEIGHTS", expected
    steps = cfg.solver.steps
    yield list(steps) == sorted(steps), "SOLVER.STEPS", "ascending iterations"


def _data_rules(cfg: Settings) -> Rules:
    data, learns = cfg.datasets, cfg.model.method != "wsddn" or cfg.model.regression.enabled
    yield len(set(data.classes)) == len(data.classes), "DATASETS.CLASSES", "names, each once"
    yield not (data.boxed_share and data.boxed), "DATASETS.BOXED_SHARE", "0, as DATASETS.BOXED is set"
    yield (
        bool(data.teacher) or not data.teacher_classes,
        "DATASETS.TEACHER_CLASSES",
        "'', as DATASETS.TEACHER is ''",
    )
    boxed = bool(data.boxed or data.boxed_share)
    yield boxed or cfg.solver.boxed_share < 1, "SOLVER.BOXED_SHARE", "less than 1, as DATASETS.BOXED is ''"
    learners = (
        "a method with refinement streams, which learn reviewed boxes and hints (DATASETS.BOXED, HINTS)"
    )
    yield learns or not (boxed or data.hints), "MODEL.METHOD", learners


def _network_rules(cfg: Settings) -> Rules:
    backbone, student = cfg.model.backbone, cfg.self_train
    because = f"because MODEL.BACKBONE.NAME is {backbone.name!r}"
    # For a name such as hf-hub:USER/NAME timm would download code and weights.
    expected = "the plain name of a network in timm, without ':'"
    yield ":" not in backbone.timm_name, "MODEL.BACKBONE.TIMM_NAME", expected
    named = backbone.name != "timm" or backbone.timm_name != ""
    yield named, "MODEL.BACKBONE.TIMM_NAME", f"the name of a timm network, {because}"
    fits = student.backbone in ("timm", "small") or student.channels == 256
    yield fits, "SELF_TRAIN.CHANNELS", f"256, because SELF_TRAIN.BACKBONE is {student.backbone!r}"
    fine = student.detector != "fcos" or student.backbone != "mobilenet_v3"
    expected = "'faster_rcnn', because the maps of SELF_TRAIN.BACKBONE 'mobilenet_v3' have strides from 32 on"
    yield fine, "SELF_TRAIN.DETECTOR", expected
    # Its 32 norm groups of one channel each would have no variance in a map of one cell.
    grouped = student.detector != "fcos" or (student.channels % 32 == 0 and student.channels > 32)
    yield grouped, "SELF_TRAIN.CHANNELS", "64, 96, 128, ..., because SELF_TRAIN.DETECTOR is 'fcos'"
    yield cfg.model.drop_block.size % 2 == 1, "MODEL.DROP_BLOCK.SIZE", "an odd number"
    because = "because MODEL.METHOD is 'wsddn', whose scores of different tiles cannot be compared"
    yield cfg.input.tile == 0 or cfg.model.method != "wsddn", "INPUT.TILE", f"0, {because}"
    context = cfg.model.box_features.context
    yield context == 0 or context > 1, "MODEL.BOX_FEATURES.CONTEXT", "0, or more than 1"


def _regression_rules(cfg: Settings) -> Rules:
    branch, has_streams = cfg.model.regression, cfg.model.method != "wsddn"
    because = "because MODEL.METHOD is 'wsddn'"
    yield has_streams or branch.labels == "top1", "MODEL.REGRESSION.LABELS", f"'top1', {because}"
    if branch.enabled and cfg.model.method == "mist_wetectron":
        because = "because with MODEL.METHOD 'mist_wetectron' there is no branch with classes of its own"
        yield branch.labels == "top1", "MODEL.REGRESSION.LABELS", f"'top1', {because}"
        yield branch.score_weight == 1, "MODEL.REGRESSION.SCORE_WEIGHT", f"1, {because}"
