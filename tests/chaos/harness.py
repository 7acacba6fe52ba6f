"""Runs a command in a sandbox where something is wrong, and checks the outcome.

A :class:`Case` states what is wrong, the command, and the expected outcome: an error or a warning that names
something, or the result of an undisturbed run. `run_cases` runs cases in child processes and judges them; the
totals go to the table that is printed when pytest ends.
"""

import contextlib
import faulthandler
import fnmatch
import hashlib
import os
import random
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = (
    "attempts",
    "crash",
    "unnamed",
    "silent",
    "hangs",
    "outside",
    "left behind",
    "refused",
    "documented",
)
SCALE = float(os.environ.get("CHAOS_COUNT", "1"))  # multiplies the number of random cases
SEED = int(os.environ.get("CHAOS_SEED", "0"))  # of the first random case
MINUTES = float(os.environ.get("CHAOS_MINUTES", "inf"))  # of one core; then no further test begins
PATIENCE = float(os.environ.get("CHAOS_TIMEOUT", "60"))  # seconds until a command counts as hanging
JOBS = int(os.environ.get("CHAOS_JOBS", "2"))  # commands at a time
_MEMORY = 4 << 30  # bytes of address space that a command may allocate
_GRACE = 20.0  # seconds after the end of a command in which its workers must end; some are still importing

Command = Sequence[object] | Callable[[], None]
table: dict[str, Counter[str]] = {}  # of each kind of case
offenses: list[str] = []


@dataclass(frozen=True)
class Run:
    """One process: a tool with its arguments, or a Python function."""

    command: Command
    # A signal that is sent, or a function that is called with the sandbox; and after how many seconds.
    kill: tuple[int | Callable[[Path], object], float] | None = None
    fresh: bool = False  # start a new interpreter instead of forking this one
    file_limit: int | None = None  # largest size of a file in bytes, to simulate a full disk
    patience: float = 1.0  # multiplies PATIENCE


@dataclass(frozen=True)
class Outcome:
    status: int  # the exit status; -N: ended by signal N
    output: str = ""  # stdout and stderr
    timed_out: bool = False
    orphans: int = 0  # processes that outlived the command
    seconds: float = 0.0


@dataclass(frozen=True)
class Case:
    """What is wrong, the command, and the expected outcome."""

    kind: str  # a row of the table
    name: str  # what is wrong, with the seed
    command: Command
    # "error", "warning", "error or warning", "equal", or "error or equal", where a warning passes too
    expect: str
    names: tuple[str, ...] = ()  # texts that the error or warning must contain; "a|b": either
    prepare: Callable[[Path], object] = lambda folder: None  # changes the sandbox
    result: Callable[[Path, Outcome], str] = lambda folder, outcome: outcome.output
    reference: str = ""  # the result of the undisturbed run
    writes: tuple[str, ...] = ()  # patterns of paths that the command may write; "!": that it may not
    documented: bool = False  # the file has no checksum, so a valid change cannot be detected
    # As in `Run`; applies to `command`; `then` is run after it.
    kill: tuple[int | Callable[[Path], object], float] | None = None
    fresh: bool = False
    file_limit: int | None = None
    patience: float = 1.0
    then: Command | None = None  # if given, `expect` and `result` apply to it


@dataclass
class Judgement:
    case: Case
    faults: set[str] = field(default_factory=set)  # columns of the table
    outcomes: list[Outcome] = field(default_factory=list)

    def __str__(self) -> str:
        said = "\n".join(outcome.output.strip()[-600:] for outcome in self.outcomes)
        stated = f"expected {self.case.expect} {' '.join(self.case.names)}".strip()
        status = [outcome.status for outcome in self.outcomes]
        faults = ", ".join(sorted(self.faults))
        return f"[{faults}] {self.case.kind}: {self.case.name} ({stated}; status {status})\n{_indent(said)}"


def repeats(count: int) -> range:
    """The seeds of a random case that is run `count` times by default."""
    return range(SEED, SEED + max(1, round(count * SCALE)))


def minutes_used() -> float:
    """Minutes of one core that this process and its ended children took."""
    return sum(os.times()[:4]) / 60


def check(cases: Iterable[Case], world: Path, folder: Path) -> None:
    """Run the cases; raise AssertionError with those whose outcome was not the expected one."""
    bad = [str(judgement) for judgement in run_cases(cases, world, folder) if judgement.faults]
    assert not bad, f"{len(bad)} cases had another outcome:\n" + "\n".join(bad)


def run_cases(cases: Iterable[Case], world: Path, folder: Path, *, count: bool = True) -> list[Judgement]:
    """Run the cases and judge each one; `count` adds them to the table."""
    judgements = _schedule([_attempt(case, world, folder / f"{i}") for i, case in enumerate(cases)])
    for judgement in judgements if count else ():
        row = table.setdefault(judgement.case.kind, Counter())
        row.update({"attempts"} | judgement.faults)
        if judgement.faults - {"documented"}:
            offenses.append(str(judgement))
    for judgement in judgements:
        judgement.faults -= {"documented"}
    return judgements


def run_once(command: Command, folder: Path) -> Outcome:
    """Run a command in a folder, undisturbed: the reference that cases are compared with."""
    (outcome,) = _schedule([_one(Run(command), folder)])
    return outcome


def _one(run: Run, folder: Path) -> Generator[tuple[Run, Path], Outcome, Outcome]:
    return (yield run, folder)


def _attempt(case: Case, world: Path, folder: Path) -> Generator[tuple[Run, Path], Outcome, Judgement]:
    judgement = Judgement(case)
    shutil.copytree(world, folder, symlinks=True)
    try:
        case.prepare(folder)
        before = _tree(folder)
        run = Run(case.command, case.kill, case.fresh, case.file_limit, case.patience)
        judgement.outcomes.append((yield run, folder))
        if case.then is not None:
            judgement.outcomes.append((yield Run(case.then), folder))
        outside, left = _changes(before, _tree(folder), case.writes)
        judgement.faults = judge(case, judgement.outcomes, folder, outside, left)
        if outside or left:
            judgement.outcomes.append(Outcome(0, f"changed outside: {outside}; left behind: {left}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judgement


def judge(
    case: Case, outcomes: Sequence[Outcome], folder: Path, outside: Sequence[str], left: Sequence[str]
) -> set[str]:
    """The columns of the table that a case counts in; none if its outcome is the expected one."""
    faults = set()
    killed = outcomes[:-1] if case.then is not None else []
    for outcome in outcomes:
        # Ctrl-C while Python itself starts, before the command can handle it, shows Python's own traceback.
        starting = outcome in killed and "<frozen site>" in outcome.output
        if "Traceback (most recent call last)" in outcome.output and not starting:
            faults.add("crash")
        if outcome.status < 0 and outcome not in killed and not outcome.timed_out:
            faults.add("crash")  # a crash, such as SIGSEGV or SIGBUS
        if outcome.timed_out:
            faults.add("hangs")
        if outcome.orphans:
            faults.add("left behind")
    faults |= {"outside"} if outside else set()
    faults |= {"left behind"} if left else set()
    if faults & {"crash", "hangs"}:
        return faults
    last = outcomes[-1]
    named = all(any(part in last.output for part in name.split("|")) for name in case.names)
    if last.status:
        if case.expect in ("equal", "warning"):
            faults.add("refused")
        elif not named:
            faults.add("unnamed")
    elif case.expect == "error":
        faults.add("silent")
    elif case.expect in ("warning", "error or warning"):
        if not (named and "warning" in last.output.lower()):
            faults.add("silent")
    elif case.result(folder, last) != case.reference:
        warned = case.expect == "error or equal" and "warning" in last.output.lower() and named
        if not warned:
            faults.add("documented" if case.documented else "silent")
    return faults


def table_text() -> str:
    """The table, in Markdown."""
    head = ["kind", *COLUMNS]
    rows = [[kind, *(str(row[column]) for column in COLUMNS)] for kind, row in table.items()]
    total: Counter[str] = sum(table.values(), Counter())
    rows.append(["all", *(str(total[column]) for column in COLUMNS)])
    lines = [head, ["---"] + ["---:"] * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- What may change in the sandbox


def _tree(folder: Path) -> dict[str, tuple]:
    """Mode, size, modification time and inode of each file by path; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode):
            found[path.relative_to(folder).as_posix()] = (
                info.st_mode,
                info.st_size,
                info.st_mtime_ns,
                info.st_ino,
            )
    return found


def _changes(before: dict, after: dict, writes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Paths that changed but must not, and temporary files that were left behind."""
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    allowed, forbidden = (
        ["tmp/*", *(w for w in writes if w[0] != "!")],
        [w[1:] for w in writes if w[0] == "!"],
    )

    def matches(path: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)

    outside = [p for p in changed if not matches(p, allowed) or matches(p, forbidden)]
    left = [p for p in after if p not in before and (Path(p).name.endswith(".tmp") or p.startswith("tmp/"))]
    return outside, left


def digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


def files_digest(folder: Path, *patterns: str) -> str:
    """A hash of the names and contents of files."""
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return digest(
        *(part for p in paths for part in (p.relative_to(folder).as_posix().encode(), p.read_bytes()))
    )


# ---- Processes


def _schedule(attempts: Sequence[Generator]) -> list:
    """The results of generators that yield (Run, folder) and are sent its Outcome; some run at a time."""
    results: list = [None] * len(attempts)
    waiting, running = list(enumerate(attempts)), []

    def go_on(index: int, attempt: Generator, outcome: Outcome | None) -> None:
        try:
            run, folder = attempt.send(outcome) if outcome else next(attempt)
            running.append((index, attempt, _Process(run, folder)))
        except StopIteration as end:
            results[index] = end.value

    while waiting or running:
        while waiting and len(running) < JOBS:
            go_on(*waiting.pop(0), None)
        for entry in list(running):
            index, attempt, process = entry
            if (outcome := process.poll()) is not None:
                running.remove(entry)
                go_on(index, attempt, outcome)
        time.sleep(0.005)
    return results


class _Process:
    """A child process in its own session; processes of that session that outlive it are orphans."""

    def __init__(self, run: Run, folder: Path):
        self.run, self.folder, self.started, self.ended = run, folder, time.monotonic(), 0.0
        self.output, self.status, self.timed_out, self.sent = b"", 0, False, False
        (folder / "tmp").mkdir(exist_ok=True)
        self.read_end, write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _child(run, folder, write_end)
        os.close(write_end)

    def poll(self) -> Outcome | None:
        """The outcome of the process; None while it runs."""
        self._read()
        now = time.monotonic() - self.started
        if not self.ended:
            if self.run.kill and not self.sent and now > self.run.kill[1]:
                self.sent, what = True, self.run.kill[0]
                what(self.folder) if callable(what) else os.kill(self.pid, what)
            if now > PATIENCE * self.run.patience:
                self.timed_out = True
                self._kill([self.pid, *_session(self.pid)])
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return None
            self.status, self.ended = os.waitstatus_to_exitcode(status), now
        orphans = _session(self.pid)
        if orphans and now < self.ended + _GRACE and not self.timed_out:
            return None
        self._kill(orphans)
        self._read()
        os.close(self.read_end)
        output = self.output.decode(errors="replace")
        count = 0 if self.timed_out else len(orphans)
        return Outcome(self.status, output, self.timed_out, count, self.ended)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.read_end, 1 << 16):
                self.output = (self.output + part)[-200_000:]

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    """The running processes of a session, without its leader."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z" and int(path.parent.name) != leader:
                found.append(int(path.parent.name))
    return found


def _child(run: Run, folder: Path, write_end: int) -> None:
    """Become the command; never returns."""
    status = 70
    try:
        os.setsid()
        faulthandler.disable()  # pytest's, which writes to pytest's terminal
        for number in (1, 2):
            os.dup2(write_end, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.environ.update(TMPDIR=str(folder / "tmp"), PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
        os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if run.file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (run.file_limit, run.file_limit))
        if run.fresh:
            os.closerange(3, 256)
            os.execv(sys.executable, [sys.executable, *script_and_words(run.command)])
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # makes its pool anew; of two threads that do so, one would find none
        status = call(run.command)
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def script_and_words(command: Sequence[object]) -> list[str]:
    """The file that runs a script of tools/ or a command of `detector`, and its arguments."""
    name, *words = map(str, command)
    tool = ROOT / "tools" / f"{name}.py"
    if tool.is_file():
        return [str(tool), *words]
    return [str(ROOT / "detector" / "__main__.py"), name, *words]


def call(command: Command) -> int:
    """Run a command as Python would run its file, and return its exit status."""
    from detector.utils.errors import UserError

    if callable(command):
        try:
            command()
        except (UserError, OSError) as error:  # what the caller of a function can correct
            print(f"error: {error}")
            return 2
        return 0
    path, *words = script_and_words(command)
    main = types.ModuleType("__main__")
    main.__file__ = path  # processes that the command spawns import it
    sys.modules["__main__"], sys.argv = main, [path, *words]
    try:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), main.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


# ---- Damage


def flip_bits(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def zero_block(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice((16, 512, 4096)))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def replace(path: Path, draw: random.Random) -> None:
    """A file of another kind takes its place: nothing, JSON, an empty zip archive, or noise."""
    path.write_bytes(draw.choice((b"", b"[]", b"{}", b"PK\x05\x06" + bytes(18), draw.randbytes(200))))


DAMAGES = (flip_bits, truncate, zero_block, replace)


def damage(path: str, seed: int) -> tuple[str, Callable[[Path], None]]:
    """The name of a damage, and a function that does it to a file of a sandbox."""
    how = DAMAGES[seed % len(DAMAGES)]
    return f"{how.__name__} of {path}, seed {seed}", lambda folder: how(
        folder / path, random.Random(f"{path} {seed}")
    )


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
