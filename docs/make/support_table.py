"""Writes docs/layers_support.md: what each op of detector.layers supports, as its tests show.

    python docs/make/support_table.py

A cell says on which devices there is a test of it; nothing here is kept by hand, and
tests/layers/test_support_table.py fails when the page is not what the tests say.
"""

import contextlib
import inspect
import io
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/layers_support.md"

# A row of the table and the name of its tests' files; test_roi_ops has a parameter `op` in place of a name.
ROWS = {
    "proposal_clusters": "test_proposal_clusters",
    "pcl_loss": "test_pcl_loss",
    "roi_pool": "test_roi_pool",
    "roi_align": "test_roi_align",
    "nms, batched_nms, nms_mask": "test_nms",
    "depthwise_conv2d": "test_depthwise_conv2d",
    "upsample_bilinear2d": "test_upsample_bilinear2d",
    "quick_gelu": "test_quick_gelu",
    "trilinear_interpolate": "test_trilinear_interpolate",
    "lltm, lltm_sequence": "test_lltm",
    "winograd_conv2d": "test_winograd_conv2d",
}
# A column of the table and what the name or the source of a test of it holds.
COLUMNS = {
    "gradient": r"\bgradcheck\(",
    "second gradient": r"\bgradgradcheck\(",
    "same bits": r"assert_repeats_bitwise\(",
    "any strides": r"assert_any_layout\(",
    "compile": r"assert_compiles\(|torch\.compile\(",
    "export": r"torch\.export\.export\(",
    "autocast": r"torch\.autocast\(|assert_autocast_keeps_dtype\(",
    "CUDA graph": r"assert_graph_capture\(",
    "> 2^31 elements": r"def test_\w*(past_two_to_the_31|past_2_31|more_than_2_to_31)",
}
WITHOUT = {  # what stands where no test shows support, but one shows that there is none
    "gradient": (r"def test_(no_gradient_flows|centres_have_no_gradient)", "none"),
    "second gradient": (r"def test_second_derivative_is_refused", "refused"),
}
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


class Tested(NamedTuple):
    """One test of an op."""

    device: str  # "CPU" or "GPU"
    dtype: torch.dtype | None
    source: str


class Collector:
    """A plugin of pytest that notes what is collected."""

    def __init__(self) -> None:
        self.tests: dict[str, list[Tested]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            on_gpu = item.get_closest_marker("cuda") or parameters.get("device") == "cuda"
            source = inspect.getsource(item.function)
            for row in self.rows_of(item.path.stem, parameters):
                self.tests[row].append(Tested("GPU" if on_gpu else "CPU", parameters.get("dtype"), source))

    @staticmethod
    def rows_of(file: str, parameters: dict) -> list[str]:
        if file == "test_roi_ops":
            return [parameters["op"].name] if "op" in parameters else []
        return [row for row, stem in ROWS.items() if file == stem or file.startswith(f"{stem}_")]


def collect() -> dict[str, list[Tested]]:
    """The tests of each row, those for a GPU too, wherever this runs."""
    collector = Collector()
    arguments = [str(ROOT / "tests/layers"), "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main([*arguments, "--collect-only"], plugins=[collector])
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest could not collect the tests: {status!r}\n{printed.getvalue()}")
    return collector.tests


def devices_of(tests: list[Tested], pattern: str) -> str:
    found = {test.device for test in tests if re.search(pattern, test.source)}
    return "both" if len(found) == 2 else "".join(found)


def dtypes_of(tests: list[Tested]) -> str:
    """The floating dtypes that a test takes which is not about bad input."""
    lines = []
    for device in ("CPU", "GPU"):
        good = [t for t in tests if t.device == device and not re.search(r"def test_(bad|labels)", t.source)]
        names = [str(dtype).removeprefix("torch.") for dtype in FLOATS if any(t.dtype == dtype for t in good)]
        lines.append("all" if len(names) == len(FLOATS) else " ".join(names))
    return lines[0] if lines[0] == lines[1] else f"CPU: {lines[0]}; GPU: {lines[1]}"


def page(tests: dict[str, list[Tested]]) -> str:
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "<!-- Written by docs/make/support_table.py from the tests: run it, do not edit. -->",
        "# What each layer supports",
        "",
        "A cell says on which devices a test in `tests/layers` shows it: `CPU`, `GPU`, `both`, or `-`: none.",
        "The tests of a GPU run where there is one; CI has none.",
        "",
        f"| op | dtypes | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for row in ROWS:
        cells = [f"`{name}`" for name in row.split(", ")]
        values = []
        for column, pattern in COLUMNS.items():
            value = devices_of(tests[row], pattern)
            if not value and column in WITHOUT:
                shows_none, word = WITHOUT[column]
                value = word if devices_of(tests[row], shows_none) else ""
            values.append(value or "-")
        lines.append(f"| {' '.join(cells)} | {dtypes_of(tests[row])} | {' | '.join(values)} |")
    lines += [
        "",
        "* `dtypes`: `all` are float64, float32, float16 and bfloat16.",
        "* `gradient`, `second gradient`: against numerical ones, in float64. `none`: none flows.",
        "* `same bits`: ten runs, forward and backward, are equal bit for bit.",
        "* `any strides`: transposed, sliced, expanded and channels-last inputs and incoming gradients.",
        "* `compile`: `torch.compile` takes it as one graph, dynamic too. `export`: `torch.export`.",
        "* `autocast`: the output keeps the dtype that it has outside.",
        "* `CUDA graph`: captured, and replayed with other values; the host never waits.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page(collect())
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text() != text)
    PAGE.write_text(text)
