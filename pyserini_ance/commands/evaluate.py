"""`pyserini-ance evaluate`: measure run files against judgments."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_ance.commands import console

if TYPE_CHECKING:
    from pyserini_ance.data.trec import Qrels, Run

MEASURES = ("nDCG@10", "RR@10", "R@100")
OVERLAP_CUTOFF = 100
ENDINGS = (".json", ".csv")  # of --output
DETAILS = """Hole rate and overlap, as in ANCE's tables, are means over the judged queries with hits in
the run."""
EXAMPLE = "pyserini-ance evaluate --run run.trec --qrels qrels.txt --measures nDCG@10 R@100"


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
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
    if not args.qrels:
        parser.error(f"--run needs --qrels: the judgments of its queries. {_qrels_of_runs(args.run)}")
    if args.overlap_cutoff and not args.overlap:
        parser.error("--overlap-cutoff needs --overlap: the run to compare with")
    if args.output and args.output.suffix not in ENDINGS:
        parser.error(
            f"--output {args.output}: measures are written as {' or '.join(ENDINGS)}; give the file one of "
            "these endings"
        )
    return args


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser("evaluate", "Measure run files with ir-measures.", EXAMPLE, DETAILS)
    parser.add_argument(
        "--run",
        type=Path,
        required=True,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="runs of TREC or MS MARCO, plain or .gz; several give a row each",
    )
    parser.add_argument(
        "--qrels",
        type=Path,
        metavar="FILE",
        help="judgments: RUN/qrels.SPLIT.txt, TREC's or BEIR's, plain or .gz",
    )
    parser.add_argument("--measures", nargs="+", action="extend", help=f"default: {' '.join(MEASURES)}")
    parser.add_argument(
        "--holes",
        type=console.positive_int,
        nargs="+",
        action="extend",
        default=[],
        metavar="K",
        help="add the share of unjudged documents among the first K",
    )
    parser.add_argument(
        "--overlap",
        type=Path,
        metavar="FILE",
        help="add the share of the first documents that this run also has among its first",
    )
    parser.add_argument(
        "--overlap-cutoff",
        type=console.positive_int,
        metavar="K",
        help=f"documents that --overlap compares (default: {OVERLAP_CUTOFF})",
    )
    parser.add_argument("--per-query", action="store_true", help="also show each judged query")
    parser.add_argument(
        "--output", type=console.output_file, metavar="FILE", help="also write the measures as .json or .csv"
    )
    return parser
