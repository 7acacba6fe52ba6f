"""Writes the tables of host times in docs/results_ops.md, from benchmarks/results/host_*.json.

python docs/make/host_table.py
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results_ops.md"
BEGIN, END = "<!-- written by docs/make/host_table.py -->", "<!-- end of what it writes -->"
PASSES = ("forward", "forward, for a gradient", "backward")


def page() -> str:
    """The page with the tables of all results that there are."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    files = sorted((ROOT / "benchmarks/results").glob("host_*.json"))
    return f"{before}{BEGIN}\n" + "".join(map(table, files)) + END + rest.partition(END)[2]


def table(path: Path) -> str:
    result = json.loads(path.read_text(encoding="utf-8"))
    device = "cuda" if path.stem.endswith("gpu") else "cpu"
    lines = [
        f"\n`python benchmarks/bench_host.py --device {device}` on {result['machine']}, torch"
        f" {result['versions']['torch']} (`{path.name}`):\n",
        f"| us, ours / alternative | {' | '.join(PASSES)} |",
        "|---" * (1 + len(PASSES)) + "|",
    ]
    by_op: dict[str, dict[str, dict]] = {}
    for row in result["rows"]:
        by_op.setdefault(f"`{row['case'].replace(' ', '` ', 1)}", {})[row["pass"]] = row
    for op, rows in by_op.items():
        name = op if op.count("`") == 2 else op + "`"
        cells = [cell(rows[pass_]) if pass_ in rows else "" for pass_ in PASSES]
        lines.append(f"| {name}, {next(iter(rows.values()))['baseline']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(row: dict) -> str:
    return f"{1e3 * row['ours_ms']:.3g} / {1e3 * row['baseline_ms']:.3g}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
