"""What can be said of the arguments of a command before torch is imported, which takes seconds."""

import logging
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from detector.config import KEYS, load_cfg
from detector.data.pictures import IMAGE_SUFFIXES
from detector.inference.zoo import find_weights
from detector.utils.command_line import teacher_words
from detector.utils.config_files import how_to_make, nearest
from detector.utils.errors import UserError

_CONFIGS = (".yaml", ".yml")
_LOOKED_AT = 200  # files of a folder and those in it, to see whether it has pictures


def check(command: str, options: Namespace) -> None:
    """Raise a UserError or FileNotFoundError where a config, run folder or file cannot be right."""
    if getattr(options, "config_file", None):
        _check_config(command, options)
    if command in _CHECKS:
        _CHECKS[command](options)


def _check_config(command: str, options: Namespace) -> None:
    if getattr(options, "images", None) or getattr(options, "voc", None):
        return  # propose has no config, and says so
    if options.config_file.partition("=")[0] in KEYS:
        words = [options.config_file, *options.overrides]
        if config := next((word for word in words if word.endswith(_CONFIGS) or _is_run(Path(word))), None):
            words.remove(config)
        right = shlex.join(["detector", command, config or "CONFIG", *words])
        raise UserError(f"the config comes before its keys: {right}")
    given = Path(options.config_file)
    for word in options.overrides[::2]:
        if word.replace("-", "_") in vars(options):
            raise UserError(f"{word} is an option, written --{word}")
        if word.endswith(_CONFIGS) or Path(word).exists():
            raise UserError(f"{word} follows the config {given}, expected one config and then KEY VALUE")
    if given.is_dir() and not _is_run(given) and _has_pictures(given, "**/*"):
        init = shlex.join(["detector", "init", str(given)])
        raise UserError(f"{given} is a folder of pictures, expected a config, which this writes: {init}")
    if _is_run(given) and not (given / "config.yaml").exists():
        return  # a student alone
    logging.disable(logging.WARNING)  # the command warns of the same
    try:
        cfg = load_cfg(given, [*options.overrides, *teacher_words(options)])
    finally:
        logging.disable(logging.NOTSET)
    if command == "test" and options.weights is None:
        _check_trained(Path(cfg.output_dir))


def _check_trained(run: Path) -> None:
    """Raise if neither training of a run folder has finished."""
    weights = [run / "model_final.pt", run / "self_train" / "model_final.pt"]
    if not any(path.exists() for path in weights):
        raise FileNotFoundError(f"checkpoint {weights[0]} does not exist; {how_to_make(weights[0])}")


def _check_predict(options: Namespace) -> None:
    weights = [Path(options.weights)] if options.weights else []
    named: list[Path] = [*weights, *options.paths]
    run, *pictures = named
    if not _is_run(run) and (runs := [path for path in pictures if _is_run(path)]):
        others = [path for path in (run, *pictures) if path != runs[0]]
        right = shlex.join(["detector", "predict", str(runs[0]), *map(str, others)])
        raise UserError(f"RUN, {runs[0]}, comes before PICTURES: {right}")
    _check_run(run, "predict")
    if not pictures:
        raise UserError(f"PICTURES is missing: detector predict {run} and a folder of pictures")
    for path in pictures:
        _check_exists(path, "the file or folder")


def _check_label(options: Namespace) -> None:
    _check_run(Path(options.weights), "label")
    _check_exists(options.labels, "the table")
    _check_exists(options.images, "the folder")


def _check_init(options: Namespace) -> None:
    if options.pictures is not None and options.pictures.is_file():
        raise UserError(
            f"{options.pictures} is a file, expected the folder of the pictures; a table of labels is named "
            f"as in detector init FOLDER --labels {shlex.quote(str(options.pictures))}"
        )
    if options.pictures is not None and not options.pictures.exists():
        raise FileNotFoundError(f"{options.pictures} is no folder of pictures{nearest(options.pictures)}")
    _check_exists(options.labels, "the file or folder of labels")


def unexpected(command: str, options: Namespace, words: Sequence[str]) -> str:
    """What to say of words that a command does not take."""
    paths = [options.pictures, Path(words[0])] if command == "init" and len(words) == 1 else []
    folder, file = (
        next((path for path in paths if known(path)), None) for known in (Path.is_dir, Path.is_file)
    )
    if folder and file:
        right = shlex.join(["detector", "init", str(folder), "--labels", str(file)])
        return f"a table of labels is named with --labels: {right}"
    return f"not expected: {shlex.join(words)}; detector {command} --help shows the arguments"


def _check_import(options: Namespace) -> None:
    _check_exists(options.path, "CORRECTED")
    _check_exists(options.table, "the table")


_CHECKS: dict[str, Callable[[Namespace], None]] = {
    "predict": _check_predict,
    "label": _check_label,
    "init": _check_init,
    "export": lambda options: _check_run(options.weights, "export"),
    "report": lambda options: _check_run(options.folder, "report"),
    "review-import": _check_import,
}


def _check_run(path: Path, command: str) -> None:
    """Raise if a path is not that of a run folder or checkpoint; one without weights is told later."""
    path = find_weights(path)
    if not path.exists():
        raise FileNotFoundError(f"run folder or checkpoint {path} does not exist{nearest(path)}")
    if path.suffix.lower() in _CONFIGS and path.name != "config.yaml":
        try:
            run = f", {load_cfg(path).output_dir}"
        except (UserError, OSError):
            run = ""
        raise UserError(
            f"{path} is a config, which holds no weights: detector {command} takes the run folder that "
            f"detector train wrote, its OUTPUT_DIR{run}, or a checkpoint, a .pt file"
        )
    if path.is_dir() and not _is_run(path) and _has_pictures(path):
        raise UserError(f"{path} is a folder of pictures, expected a run folder, which detector train writes")
    if path.is_dir() and not _is_run(path):
        raise FileNotFoundError(f"{path} is no run folder{nearest(path)}: train first, or name another one")
    if path.is_dir() and command != "report":
        _check_trained(path.parent if path.name == "self_train" else path)


def _is_run(path: Path) -> bool:
    names = ("config.yaml", "self_train", "model_final.pt")
    return path.suffix == ".pt" or any((path / name).exists() for name in names)


def _has_pictures(folder: Path, pattern: str = "*") -> bool:
    some = (path for _, path in zip(range(_LOOKED_AT), folder.glob(pattern), strict=False))
    return any(path.suffix.lower() in IMAGE_SUFFIXES for path in some)


def _check_exists(path: str | Path | None, what: str) -> None:
    if path is not None and not Path(path).exists():
        raise FileNotFoundError(f"{what} {path} does not exist{nearest(Path(path))}")
