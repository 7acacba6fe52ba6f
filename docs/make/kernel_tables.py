"""Writes the tables of kernels in the READMEs of csrc from the tables that choose: csrc/*_plan.h.

python docs/make/kernel_tables.py
"""

from pathlib import Path

import torch

from detector.layers import depthwise_conv2d, explain

CSRC = Path(__file__).resolve().parents[2] / "detector/csrc"
BEGIN, END = "<!-- written by docs/make/kernel_tables.py -->", "<!-- end of what it writes -->"


def pages() -> dict[Path, str]:
    """The READMEs with their tables."""
    any_problem = torch.empty(1, 1, 3, 3, device="meta"), torch.empty(1, 1, 3, 3, device="meta")
    any_on_cpu = torch.empty(1, 1, 3, 3), torch.empty(1, 1, 3, 3)
    tables = {
        "cuda": explain(depthwise_conv2d, *any_problem, gpu="sm_90"),
        "cpu": explain(depthwise_conv2d, *any_on_cpu),
    }
    found = {}
    for folder, explanation in tables.items():
        path = CSRC / folder / "depthwise_conv2d/README.md"
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        lines = ["| kernel | takes | why it is there |", "|---|---|---|"]
        lines += [f"| {c.name} | {c.takes} | {c.why} |" for c in explanation.passes["forward"]]
        found[path] = f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}" + rest.partition(END)[2]
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
