"""The process that trains while the server of a review runs: it has low priority and ends with the server."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from detector.data.build import build_training_set, name_classes
from detector.engine.run_folder import start_run
from detector.inference.load import find_checkpoint
from detector.labeling.suggest import find_detector
from detector.review.rounds import Rounds
from detector.review.store import Store
from detector.utils.command_line import run_command, usable_cores
from detector.utils.files import all_temporary
from detector.utils.folder_lock import folder_lock

logger = logging.getLogger(__name__)

_CHUNK = 8  # images whose boxes are found between checks whether a round is due
_WAIT = 1.0  # seconds between reads of the file
_PATIENCE = 5.0  # seconds for the process to end


def learned_folder(file: Path) -> Path:
    """The folder of the weights that are trained during a review."""
    return file.with_name(f"{file.stem}_learned")


class Learner:
    """A context manager that runs the process; it also ends if the server is killed.

    Args:
        config_file, overrides: as for :func:`detector.review.session.open_session`.
        store: the file of the review.
        every: number of images to review between two rounds.
    """

    def __init__(self, config_file: str, overrides: Sequence[object], store: Store, every: int) -> None:
        self.store, self.every, self.folder = store, every, learned_folder(store.path)
        words = {"config_file": str(config_file), "overrides": [*map(str, overrides)]}
        self.given = words | {"file": str(store.path), "every": every}
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Learner":
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "output.txt").open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "detector.review.learner"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the server alone, which ends this process
            )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(self.given)}\n")
        self.process.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def status(self) -> dict[str, Any]:
        """Status for the page: `doing`, the `rounds` so far, and an `error` if the process has stopped."""
        found = {"every": self.every, "rounds": json.loads(self.store.get_meta("rounds") or "[]")}
        if self.process is None or self.process.poll() is None:
            return found | {"doing": json.loads(self.store.get_meta("learning") or '""'), "error": ""}
        return found | {"doing": "", "error": f"Learning has stopped: {self.folder / 'output.txt'} says why."}


def main() -> None:
    """Train until the server ends, which closes stdin."""
    given = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(19)
    folder = learned_folder(Path(given["file"]))
    with warnings.catch_warnings(), folder_lock(folder):
        warnings.simplefilter("ignore")  # about data: the command has shown them
        cfg, _ = find_detector(given["config_file"], given["overrides"])
        training_set = build_training_set(cfg)
        cfg = name_classes(cfg, training_set.dataset)
        device = start_run(cfg, folder)
        torch.set_num_threads(min(torch.get_num_threads(), max(1, usable_cores() - 1)))
        for path in all_temporary(folder):
            path.unlink()  # left by a killed process
        store = Store(Path(given["file"]), training_set.dataset.class_names)
        _learn(
            store,
            Rounds(cfg, store, training_set, find_checkpoint(cfg.output_dir), folder, device),
            given["every"],
        )


def _learn(store: Store, rounds: Rounds, every: int) -> None:
    doing = None

    def tell(what: str) -> None:
        nonlocal doing
        if what != doing:
            store.set_meta(learning=what)
        doing = what

    while True:
        if rounds.due(every):
            tell("training")
            rounds.take()
        elif not rounds.improve(_CHUNK):
            tell("waiting")
            time.sleep(_WAIT)
        else:
            tell("finding boxes")


def _end_with_the_server() -> None:
    sys.stdin.read()
    os._exit(0)  # nothing is half-written: files are renamed when complete, SQLite undoes


if __name__ == "__main__":
    sys.exit(run_command(main))
