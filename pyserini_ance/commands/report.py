"""`pyserini-ance report`: the report of a run, or of several runs compared, as one HTML file."""

import argparse
from pathlib import Path

from pyserini_ance.commands import console

REPORT = "report.html"
DETAILS = f"""\
A run writes its {REPORT} at its end; the command writes it again, or that of a run that stopped.
The file holds all it shows: it opens without network, and can be sent as it is."""
EXAMPLE = """pyserini-ance report runs/demo-ance
  pyserini-ance report runs/demo-ance runs/demo-rand-batch --output compared.html"""
COMPARED = "comparison.html"


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    from pyserini_ance.reports.grid_tables import runs_in
    from pyserini_ance.reports.report import write_report
    from pyserini_ance.reports.report_comparison import comparison_report
    from pyserini_ance.reports.report_plots import check_installed
    from pyserini_ance.runs.rundir import RunDir
    from pyserini_ance.storage.files import write_whole

    check_installed()
    runs = runs_in(args.runs)
    if len(runs) == 1:
        reason = f"{runs[0]} alone is compared with no other run"
        console.refuse_options(parser, args, reason, "--significance", "--test")
        path = write_report(RunDir(runs[0]), args.output)
    else:
        path = args.output or Path(COMPARED)
        write_whole(path, comparison_report(runs, args.significance, args.test))
    print(f"written: {path}")


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "report", "Write the report of a run, or of several on one page, as HTML.", EXAMPLE, DETAILS
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="run directories, finished or not, or the folder of a grid",
    )
    parser.add_argument(
        "--output",
        type=console.output_file,
        metavar="FILE.html",
        help=f"the file to write (default: {REPORT} in the run, or {COMPARED} here for several)",
    )
    test = parser.add_argument_group("significance, with several runs")
    test.add_argument(
        "--significance",
        metavar="ROW",
        help="test against this row, or that of a run (default: the first recipe)",
    )
    test.add_argument("--test", choices=console.TESTS, default="t", help="paired test (default: %(default)s)")
    return parser
