"""`pyserini-ance report`: the report of a run as one HTML file."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import parsing


@parsing.command("pyserini-ance report runs/demo-ance")
def main(
    run: Annotated[Path, Argument(metavar="RUN", file_okay=False, help="a run directory")],
    output: Annotated[Path | None, parsing.output_file("FILE.html", "default: RUN/report.html")] = None,
) -> None:
    """Write the report of a run as HTML.

    A run writes its report.html at its end; the command writes it again, or that of a run that stopped. The
    file holds all it shows: it opens without network, and can be sent as it is.
    """
    from pyserini_ance.reports.report import write_report
    from pyserini_ance.runs.rundir import RunDir

    print(f"written: {write_report(RunDir.find(run), output)}")
