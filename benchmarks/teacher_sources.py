"""How often the image AP of students, which needs no box, names the best source of boxes for a class.

    python benchmarks/teacher_sources.py

Reads the results of teachers.py: for each simulated teacher and class, students that learned from tags, from
the teacher, or from both joined. The choice is that of detector/self_training/trials.py, with the image AP in
the test split. "Within 1": the AP50 of the source that it names is at most 1 below that of the best one.
"""

import json
from pathlib import Path

import numpy as np

from detector.self_training.fuse import SOURCES
from detector.self_training.trials import best_sources

RESULTS = Path(__file__).parent / "results"
STUDENTS = {"tags": "student_tags", "both": "student_both_{}", "teacher": "student_alone_{}"}


def main() -> None:
    for data_set in ("toybox", "photos"):
        methods = json.loads((RESULTS / f"methods_teachers_{data_set}.json").read_text())["methods"]
        lost: dict[str, list[np.ndarray]] = {}  # by rule: how far below the best source, of each class
        for quality in ("blind", "poor", "middle", "good", "perfect"):
            names = {source: name.format(quality) for source, name in STUDENTS.items()}
            if any(name not in methods for name in names.values()):
                continue
            for seed in range(len(methods[names["both"]])):
                runs = {source: methods[name][seed]["per_class"].values() for source, name in names.items()}
                ap50 = {source: np.array([each["AP50"] for each in runs[source]]) for source in SOURCES}
                image_ap = {s: np.array([each["image_AP"] for each in runs[s]]) / 100 for s in SOURCES}
                chosen = [ap50[source][c] for c, source in enumerate(best_sources(image_ap))]
                best = np.max(list(ap50.values()), axis=0)
                for rule, values in {"chosen by tags": chosen, **ap50}.items():
                    lost.setdefault(rule, []).append(best - values)
        for rule, values in lost.items():
            below = np.concatenate(values)
            within = "  ".join(f"within {most}: {(below <= most).sum()} of {len(below)}" for most in (1, 3))
            print(f"{data_set:8}{rule:16}AP50 below the best {below.mean():5.2f}  {within}")


if __name__ == "__main__":
    main()
