"""Writes the tables of kernels in docs/layers_support.md and the READMEs of csrc from those that choose.

The latter are in csrc/*_plan.h.

python docs/make/kernel_tables.py
"""

from pathlib import Path

import torch

from detector.layers import explain
from detector.layers.explain import Candidate, Explanation

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- written by docs/make/kernel_tables.py -->", "<!-- end of what it writes -->"


def explanations(gpu: str | None) -> dict[str, Explanation]:
    """Of the ops that have a choice, for some arguments."""
    device = "cpu" if gpu is None else "meta"
    images, boxes = torch.empty(1, 1, 3, 3, device=device), torch.empty(1, 5, device=device)
    arguments: dict[str, tuple] = {
        "depthwise_conv2d": (images, images),
        "roi_align": (images, boxes, 7),
        "roi_pool": (images, boxes, 7),
        "nms": (boxes[:, 1:], boxes[:, 0], 0.5),
        "upsample_bilinear2d": (images, 9),
        "trilinear_interpolate": (images.new_empty(1, 8, 4), images.new_empty(1, 3)),
        "quick_gelu": (images,),
    }
    found = {op: explain(op, *each, gpu=gpu) for op, each in arguments.items()}
    rows, counts = boxes[:, 1:], boxes[:, 0].long()
    found["proposal_clusters"] = explain("proposal_clusters", rows, rows, rows, counts, method="pcl", gpu=gpu)
    return found


def table(passes: dict[str, list[Candidate]], op: str | None = None) -> str:
    """One row for each kernel; passes with the same kernels share theirs."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for key, candidates in passes.items():
        for c in candidates:
            rows.setdefault((c.name, c.takes, c.why), []).append(key)
    first = "" if op is None else f" `{op}` |"
    lines = [
        f"|{first} {'all' if len(keys) == len(passes) else ', '.join(keys)} | {name} | {takes} | {why} |"
        for (name, takes, why), keys in rows.items()
    ]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """The pages with their tables."""
    header, rule = "| pass | kernel | takes | why it is there |", "|---|---|---|---|"
    on_gpu = explanations("sm_90")
    csrc = ROOT / "detector/csrc"
    tables = {
        csrc / f"cuda/{op}/README.md": f"{header}\n{rule}\n{table(explanation.passes)}"
        for op, explanation in on_gpu.items()
        if op != "quick_gelu"  # a file, not a folder
    }
    on_cpu = explanations(None)["depthwise_conv2d"].passes
    tables[csrc / "cpu/depthwise_conv2d/README.md"] = f"{header}\n{rule}\n{table(on_cpu)}"
    rows = "\n".join(table(explanation.passes, op) for op, explanation in on_gpu.items())
    tables[ROOT / "docs/layers_support.md"] = f"| op {header}\n|---{rule}\n{rows}"
    found = {}
    for path, text in tables.items():
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        found[path] = f"{before}{BEGIN}\n\n{text}\n\n{END}" + rest.partition(END)[2]
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
