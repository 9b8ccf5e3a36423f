"""`pyserini-ance evaluate`: measure run files against judgments, or compare runs with published figures."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_ance.commands import console

if TYPE_CHECKING:
    from pyserini_ance.data.trec import Qrels, Run

MEASURES = ("nDCG@10", "RR@10", "R@100")
OVERLAP_CUTOFF = 100
RUNS = Path("runs")
RUN_OPTIONS = ("--qrels", "--measures", "--holes", "--overlap", "--overlap-cutoff", "--per-query")
ENDINGS = (".json", ".csv")  # of the measures of --run
DETAILS = """Hole rate and overlap, as in ANCE's tables, are means over the judged queries with hits in
the run. --table makes the papers' table of a set from the run directories that exist."""
EXAMPLE = """pyserini-ance evaluate --run run.trec --qrels qrels.txt --measures nDCG@10 R@100
  pyserini-ance evaluate --table recipes/msmarco-passage"""


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    if args.table:
        _print_table(args)
    else:
        _print_runs(args)


def _print_table(args: argparse.Namespace) -> None:
    from pyserini_ance.analysis.published_tables import PublishedTable

    published = PublishedTable.of(args.table, args.runs)
    if args.output:
        published.write(args.output)
    print(published.as_markdown())


def _print_runs(args: argparse.Namespace) -> None:
    from pyserini_ance.data.rankings import read_ranked
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.evaluation.metrics import RunReport
    from pyserini_ance.evaluation.tables import as_csv
    from pyserini_ance.recipe.evaluation_settings import parse_measures
    from pyserini_ance.storage.files import check_not_input, write_json, write_whole

    if args.output:
        check_not_input(args.output, [*args.run, args.qrels, *[args.overlap] * bool(args.overlap)])
    measures = parse_measures(args.measures or MEASURES)
    other = read_ranked(args.overlap) if args.overlap else None
    report = RunReport(_qrels(args), measures, args.holes, other, args.overlap_cutoff or OVERLAP_CUTOFF)
    names = _names(args.run)
    rows: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    notes = []
    for name, path in zip(names, args.run, strict=True):
        run = read_ranked(path)
        totals = report.totals(run)
        by_query = report.per_query(run) if args.per_query else {}
        rows += [{"run": name, "query": query} | values for query, values in by_query.items()]
        rows.append({"run": name, "query": "all"} | totals)
        per_query = {"per_query": by_query} if args.per_query else {}
        records.append({"run": str(path), "measures": totals} | per_query)
        notes.append(_query_counts(report.qrels, run))
    if args.output and args.output.suffix == ".csv":
        write_whole(args.output, as_csv(rows, ["run", "query", *records[0]["measures"]]))
    elif args.output:
        overlap = {"overlap": str(args.overlap)} if args.overlap else {}
        header = {"qrels": str(args.qrels), "queries": len(report.qrels)}
        write_json(args.output, header | overlap | {"runs": records})
    columns = ["run"] if len(records) > 1 else []
    columns += ["query"] if len(records) == 1 or args.per_query else []
    counts = notes[:1] if len(set(notes)) == 1 else map(": ".join, zip(names, notes, strict=True))
    print(table_with_legend(rows, [*columns, *records[0]["measures"]], *counts))


def _qrels(args: argparse.Namespace) -> "Qrels":
    """The judgments of `--qrels`. Raises ValueError that also says where those of a run directory are."""
    from pyserini_ance.data.trec import read_qrels

    try:
        return read_qrels(args.qrels)
    except (OSError, ValueError) as error:
        raise ValueError(f"--qrels: {error}. {_qrels_of_runs(args.run)}") from error


def _qrels_of_runs(runs: Sequence[Path]) -> str:
    """Where the judgments of these runs may be: in the run directory that they are in, or in `runs/` of."""
    folders = dict.fromkeys(folder for run in runs for folder in (run.parent, run.parent.parent))
    found = [str(path) for folder in folders for path in sorted(folder.glob("qrels.*.txt"))]
    if found:
        return f"The run directory has: {', '.join(found)}"
    return "A run directory has the judgments of its splits as RUN/qrels.SPLIT.txt"


def _names(runs: Sequence[Path]) -> list[str]:
    """The names of the files, or their paths if names repeat."""
    are_distinct = len({path.name for path in runs}) == len(runs)
    return [path.name if are_distinct else str(path) for path in runs]


def _query_counts(qrels: "Qrels", run: "Run") -> str:
    judged, with_hits, unjudged = len(qrels), len(qrels.keys() & run.keys()), len(run.keys() - qrels.keys())
    text = f"{judged} judged queries, {judged - with_hits} of them without any hit (they count as 0)"
    return f"{text}; {unjudged} queries of the run are not judged and not counted" if unjudged else text


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.run and not args.qrels:
        parser.error(f"--run needs --qrels: the judgments of its queries. {_qrels_of_runs(args.run)}")
    if args.overlap_cutoff and not args.overlap:
        parser.error("--overlap-cutoff needs --overlap: the run to compare with")
    if args.table:
        reason = "--table shows the measures recorded by the runs"
        console.refuse_options(parser, args, reason, *RUN_OPTIONS)
    else:
        console.refuse_options(parser, args, "--run names the rankings; --runs is of --table", "--runs")
        if args.output and args.output.suffix not in ENDINGS:
            parser.error(
                f"--output {args.output}: measures are written as {' or '.join(ENDINGS)}; give the file one "
                "of these endings"
            )
    if args.table and args.runs != RUNS and not args.runs.is_dir():
        parser.error(f"--runs {args.runs}: no such folder")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "evaluate",
        "Measure run files with ir-measures, or compare runs with published figures.",
        EXAMPLE,
        DETAILS,
    )
    subject = parser.add_argument_group("what to evaluate").add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "--run",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="runs of TREC or MS MARCO, plain or .gz; several give a row each",
    )
    subject.add_argument(
        "--table",
        metavar="SET",
        help="the papers' table of a set of recipes: recipes/msmarco-passage, or a folder of your own",
    )
    of_run = parser.add_argument_group("options of --run")
    of_run.add_argument(
        "--qrels",
        type=Path,
        metavar="FILE",
        help="judgments: RUN/qrels.SPLIT.txt, TREC's or BEIR's, plain or .gz",
    )
    of_run.add_argument("--measures", nargs="+", action="extend", help=f"default: {' '.join(MEASURES)}")
    of_run.add_argument(
        "--holes",
        type=console.positive_int,
        nargs="+",
        action="extend",
        default=[],
        metavar="K",
        help="add the share of unjudged documents among the first K",
    )
    of_run.add_argument(
        "--overlap",
        type=Path,
        metavar="FILE",
        help="add the share of the first documents that this run also has among its first",
    )
    of_run.add_argument(
        "--overlap-cutoff",
        type=console.positive_int,
        metavar="K",
        help=f"documents that --overlap compares (default: {OVERLAP_CUTOFF})",
    )
    of_run.add_argument("--per-query", action="store_true", help="also show each judged query")
    of_table = parser.add_argument_group("options of --table")
    of_table.add_argument(
        "--runs",
        type=Path,
        default=RUNS,
        metavar="FOLDER",
        help="the folder of the run directories (default: %(default)s)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=console.output_file,
        metavar="FILE",
        help="also write the measures as .json or .csv; a table as .md, .json or .csv",
    )
    return parser
