"""README.md and docs/: every command and snippet runs, and every key, file and command named in prose exists.

The blocks of a page run in order, in a folder with the tools, the configs and tiny data. They run as written,
with the arguments of SHORTER appended. A block that cannot run in a test says why in an HTML comment; its
commands are still checked against the parsers of the tools, the configs and their keys.

Where DETECTOR_DEMO names a checkout in which `make demo` has run, as in CI, pages that read `runs/demo` get
that run. Otherwise a smaller one is trained for each of them.
"""

import logging
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from doc_blocks import (
    FOLLOWED_ELSEWHERE,
    PAGES,
    READ,
    REASONS,
    ROOT,
    RUN,
    Block,
    check_command,
    commands_of,
    read_blocks,
    run_script,
    shell_expansions,
)

from detector.config import KEYS, load_cfg
from detector.data.toybox import draw_toybox

BLOCKS = [b for page in PAGES if page.name != FOLLOWED_ELSEWHERE for b in read_blocks(page)]
RUNNING = [page for page in PAGES if any(b.page == page and b.language in RUN and not b.mark for b in BLOCKS)]

_SMALL = (
    "DEVICE cpu DATASETS.WORKERS 0 INPUT.TRAIN_SIZES (64,) INPUT.TEST_SIZES (64,)"
    " PROPOSALS.LONGEST_SIDE 48 MODEL.BOX_FEATURES.WIDTHS (16,) SOLVER.MAX_ITER 2 SOLVER.PICTURE_PERIOD 0"
    " PROPOSALS.MAX_COUNT 50"
    " SELF_TRAIN.MAX_ITER 1 SELF_TRAIN.TEACHER_STEPS 0 SELF_TRAIN.SIZES (64,) SELF_TRAIN.IMAGES_PER_BATCH 1"
    " TEST.PICTURES 1"
)
FOLDERS = "docs|tools|tests|benchmarks|configs|detector|csrc|layers|data|modeling|evaluation|engine"
DETECTOR = str(ROOT / "detector" / "__main__.py")  # what the command `detector` runs
# Arguments appended to a command so that it takes about a second: fewer and smaller images, fewer steps.
SHORTER = {
    "tools/make_toybox.py": "--train 8 --test 4",
    "benchmarks/make_doom.py": "--train 2 --test 1",
    "detector export": "--count 4",
    "detector propose": "--workers 1",
    "detector train": _SMALL,
    "detector test": _SMALL,
    "detector self-train": _SMALL,
    "tools/train_net.py": _SMALL,
    "tools/test_net.py": _SMALL,
}
# What a page may expect to exist: the images that the quick start makes, and the run of `make demo`.
(PICTURES,) = (b for b in BLOCKS if b.page.name == "quick_start.md" and b.language == "python")
PROPOSALS = "detector propose configs/toybox_pcl.yaml PROPOSALS.MODE grid"
DEMO = [
    f"detector {command} configs/toybox_pcl.yaml OUTPUT_DIR runs/demo"
    for command in ("train", "test", "self-train")
]
TRAINED_DEMO = os.environ.get("DETECTOR_DEMO")
# Makes selective search faster, by whether the command has a config.
SMALLER_SEARCH = {True: "PROPOSALS.LONGEST_SIDE 48", False: "--longest-side 48"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder datasets/ as `make demo` makes it, with a few images and without proposals."""
    folder = tmp_path_factory.mktemp("data")
    draw_toybox(folder / "toybox", train=8, test=4)
    return folder


@pytest.fixture
def checkout(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_announced: None):
    """A current folder with tools, configs and data. Restores the global state that the tools set."""
    for name in ("tools", "configs", "benchmarks", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(data, tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)
    # A search in worker processes, which import torch anew, is tested by tests/tools/test_make_proposals.py.
    monkeypatch.setattr("detector.commands.propose.usable_cores", lambda: 1)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    logger = logging.getLogger("detector")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def run_command(words: list[str], where: Block | str) -> None:
    """Run a command of a block in this process with its arguments of SHORTER. A failure names the block."""
    program = words[1] if words[0] == "python" else " ".join(words[:2])
    shorter = SHORTER.get(program, "").split()
    if "--to" in words:
        shorter += ["--effort", "1"]
    if program == "detector propose" and "grid" not in words:
        shorter += SMALLER_SEARCH["--images" not in words and "--voc" not in words].split()
    with pytest.MonkeyPatch.context() as patch:
        try:
            if words[0] == "detector":
                words = ["python", DETECTOR, *words[1:]]
            assert words[0] == "python", "only python commands can run in a test: mark the block as not run"
            if words[1] == "-m":
                module = Path(sys.modules["detector"].__path__[0]).parent / words[2].replace(".", "/")
                run_script(module.with_suffix(".py"), words[3:], patch)
            else:
                run_script(Path(words[1]), [*words[2:], *shorter], patch)
        except SystemExit as end:
            if end.code:
                pytest.fail(f"{where}: {shlex.join(words)} ended with {end.code}")
        except AssertionError as error:
            raise AssertionError(f"{where}: {shlex.join(words)}: {error}") from error


def with_expected_files(blocks: list[Block]) -> list[Block]:
    """The blocks of a page, after blocks that make the files which the page reads and does not make."""
    text = "\n".join(block.text for block in blocks)
    demo = DEMO if "runs/demo" in text and not TRAINED_DEMO else []
    made = "detector propose configs/toybox" in text
    commands = [PROPOSALS, *demo] if demo or ("configs/toybox" in text and not made) else []
    images = [PICTURES] if re.search("datasets/mine|configs/own_", text) and PICTURES not in blocks else []
    return [*images, PICTURES._replace(language="bash", text="\n".join(commands)), *blocks]


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_every_block_runs(page: Path, checkout: Path) -> None:
    running = [b for b in BLOCKS if b.page == page and b.language in RUN and not b.mark]
    if TRAINED_DEMO and any("runs/demo" in block.text for block in running):
        for folder in ("datasets/toybox", "runs/demo"):
            shutil.rmtree(checkout / folder, ignore_errors=True)
            shutil.copytree(Path(TRAINED_DEMO, folder), checkout / folder)
    for block in with_expected_files(running):
        if block.language == "python":
            exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
        else:
            for words in commands_of(block.text):
                run_command(words, block)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.mark], ids=str)
def test_a_block_that_does_not_run_has_a_reason_and_valid_commands(block: Block) -> None:
    assert block.mark in REASONS, f"{block}: {block.mark!r} is none of {', '.join(sorted(REASONS))}"
    assert block.language == "bash", f"{block}: a snippet of {block.language} can always run"
    for words in commands_of(block.text):
        check_command(words)
        if block.mark == "by CI itself":
            assert shlex.join(words) in (ROOT / ".ci/run").read_text()


def test_commands_mean_the_same_in_bash_and_zsh() -> None:
    for block in BLOCKS:
        if block.language == "bash":
            assert not shell_expansions(block.text), f"{block}: quote it, or put the keys into a config file"
    assert shell_expansions("python a.py $OWN") == ["$"]
    assert shell_expansions("python a.py [] '[]' \"(1,)\"") == ["[", "]"]


def test_every_block_has_a_known_language() -> None:
    for block in BLOCKS:
        assert block.language in RUN | READ, f"{block}: ```{block.language}, expected one of {RUN | READ}"
        if block.language in READ:  # commands belong into bash blocks
            assert not re.search(r"^\$? ?(python|make|pip) ", block.text, re.M), f"{block} holds commands"


@pytest.mark.skipif(not TRAINED_DEMO, reason="DETECTOR_DEMO names no checkout in which make demo has run")
def test_the_demo_that_pages_read_is_that_of_make_demo() -> None:
    """So that no page is followed with smaller images than those that a reader has."""
    cfg = load_cfg(Path(TRAINED_DEMO or "", "runs/demo/self_train/config.yaml"))
    whole = load_cfg(ROOT / "configs/toybox_pcl.yaml")
    assert whole.self_train.sizes == cfg.self_train.sizes
    assert whole.input.test_sizes == cfg.input.test_sizes


def test_the_check_finds_mistakes() -> None:
    for command, problem in [
        ("python tools/train_nets.py", "tools/train_nets.py"),
        ("python tools/make_toybox.py x --size 3", "rejected by its parser"),
        ("python tools/train_net.py --config-file configs/none.yaml", "configs/none.yaml"),
        ("make demos", "no target demos"),
        ("pip install numpi", "numpi"),
        ("mkae demo", "mkae"),
    ]:
        with pytest.raises(AssertionError, match=problem):
            check_command(command.split())
    command = "python tools/train_net.py --config-file configs/toybox_pcl.yaml SOLVER.MAX_ITERS 3"
    with pytest.raises(ValueError, match=r"SOLVER\.MAX_ITERS"):
        check_command(command.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_files_and_targets_in_prose_exist(page: Path) -> None:
    """In inline code: config keys, files of the checkout, make targets."""
    keys = set(KEYS)
    groups = {key.rsplit(".", depth)[0] for key in keys for depth in (1, 2) if key.count(".") >= depth}
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose):
        for word in re.findall(r"(?<![\w./])[A-Z][A-Z_]+(?:\.[A-Z][A-Z_]+)+(?![\w./])", span):
            assert word in keys | groups, (
                f"{page.name}: `{span}`: no key {word} in detector/config/settings.py"
            )
        for file in re.findall(rf"(?<![\w./-])(?:{FOLDERS})/[\w/.-]+\.(?:py|md|yaml|h|cpp|cu|json)\b", span):
            places = [ROOT / file, ROOT / "detector" / file]
            exists = any(place.exists() for place in places)
            assert exists or page.name == FOLLOWED_ELSEWHERE or "OP" in file, f"{page.name}: no `{file}`"
        if target := re.fullmatch(r"make ([a-z0-9-]+)", span):
            check_command(["make", target[1]])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site_exist(page: str) -> None:
    """tests/test_site.py checks those of docs/."""
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", (ROOT / page).read_text())
    for target in filter(None, (link or attribute for link, attribute in links)):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            linked = ROOT / (file or page)
            assert linked.exists(), f"{page}: no {target}"
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.M) if anchor else []
            anchors = [re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings]
            assert not anchor or anchor in anchors, f"{page}: no heading {target}"
