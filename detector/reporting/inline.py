"""`detector.report`: the page about a run, which Jupyter shows below the cell."""

import html
from dataclasses import dataclass
from pathlib import Path

from detector.config.yaml_files import Overrides
from detector.reporting.build import write_report
from detector.self_training.networks import Model
from detector.utils.errors import check_path


@dataclass(frozen=True)
class Report:
    """A page that is written; the last line of a cell of Jupyter shows it."""

    path: Path

    def _repr_html_(self) -> str | None:
        """The page in a frame, which keeps its style and script from the notebook; None: it is gone."""
        try:
            page = self.path.read_text("utf-8")
        except OSError:
            return None
        frame = 'sandbox="allow-scripts" width="100%" height="800" style="border: 0"'
        return f'<iframe srcdoc="{html.escape(page)}" {frame}></iframe>'


def report(
    run: str | Path, overrides: Overrides = (), *, output: str | Path | None = None, model: Model = "auto"
) -> Report:
    """Write the report of a run that was tested: `detector.report("runs/demo")`.

    Args:
        run: the run folder.
        overrides: keys of the config to change, as in {"TEST.PICTURES": 12}; docs/config.md.
        output: the page; None: report.html in the run folder, or in its folder self_train.
        model: of a run folder, see :func:`detector.load`.

    Raises:
        UserError, OSError: a file of the run is missing or damaged, or the page cannot be written.
    """
    check_path("run", run, "a run folder")
    written = write_report(Path(run), overrides, None if output is None else Path(output), model)
    return Report(written.page)
