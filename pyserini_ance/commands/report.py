"""`pyserini-ance report`: the report of a run, or of several runs compared, as one HTML file."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import parsing

REPORT = "report.html"
COMPARED = "comparison.html"
EXAMPLE = """pyserini-ance report runs/demo-ance
  pyserini-ance report runs/demo-ance runs/demo-rand-batch --output compared.html"""


@parsing.command(EXAMPLE)
def main(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="run directories, or the folder of a grid")],
    output: Annotated[
        Path | None,
        parsing.output_file("FILE.html", f"default: RUN/{REPORT}, or {COMPARED} here for several runs"),
    ] = None,
    significance: Annotated[
        str | None, parsing.option("ROW", "test against it (default: the first recipe's)")
    ] = None,
    test: parsing.Test = None,
) -> None:
    """Write the report of a run, or of several on one page, as HTML.

    A run writes its report.html at its end; the command writes it again, or that of a run that stopped. The
    file holds all it shows: it opens without network, and can be sent as it is.
    """
    from pyserini_ance.reports.compare import runs_in
    from pyserini_ance.reports.report import comparison_report, write_report
    from pyserini_ance.runs.rundir import RunDir
    from pyserini_ance.storage.files import write_whole

    folders = runs_in(runs)
    if len(folders) == 1:
        reason = f"{folders[0]} alone is compared with no other run"
        parsing.refuse_options(reason, significance=significance, test=test)
        path = write_report(RunDir(folders[0]), output)
    else:
        path = output or Path(COMPARED)
        write_whole(path, comparison_report(folders, significance, test or "t"))
    print(f"written: {path}")
