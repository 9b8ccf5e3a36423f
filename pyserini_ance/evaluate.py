"""`python -m pyserini_ance.evaluate`: run files against qrels, by any measure of ir-measures; or a set's runs against what is published.

Beside the measures of a run file stand, as ANCE's tables have them, the hole rate and the overlap with another run; both are means over the
judged queries that the run has hits for. `--table recipes/msmarco-passage` makes the papers' table of a set from the run directories that
there are.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.data.rankings import read_ranked
from pyserini_ance.data.trec import Qrels, Run, read_qrels
from pyserini_ance.measures.asked import Asked
from pyserini_ance.measures.overlap import CUTOFF
from pyserini_ance.measures.published import PublishedTable
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.measure import parse
from pyserini_ance.runs.rundir import RUNS
from pyserini_ance.storage.files import write_json

MEASURES = ("nDCG@10", "RR@10", "R@100")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _read(arguments)
    (_print_table if options.table else _print_runs)(options)


def _print_table(options: argparse.Namespace) -> None:
    made = PublishedTable.of(options.table, options.runs)
    if options.output:
        made.write(options.output)
    print(made.as_markdown())


def _print_runs(options: argparse.Namespace) -> None:
    measures = parse(options.measures or MEASURES)
    other = read_ranked(options.overlap) if options.overlap else None
    asked = Asked(read_qrels(options.qrels), measures, options.holes, other, options.overlap_cutoff or CUTOFF)
    rows, reports, notes = [], [], []
    for name, path in zip(_names(options.run), options.run, strict=True):
        run = read_ranked(path)
        by_query, totals = asked.per_query(run) if options.per_query else {}, asked.totals(run)
        rows += [{"run": name, "query": query} | values for query, values in [*by_query.items(), ("all", totals)]]
        reports.append({"run": str(path), "measures": totals} | ({"per_query": by_query} if options.per_query else {}))
        notes.append(_coverage(asked.qrels, run))
    if options.output:
        about = {"qrels": str(options.qrels), "queries": len(asked.qrels)} | ({"overlap": str(options.overlap)} if options.overlap else {})
        write_json(options.output, about | {"runs": reports})
    columns = {"run": len(reports) > 1, "query": len(reports) == 1 or options.per_query}
    print(table(rows, [*(column for column, shown in columns.items() if shown), *reports[0]["measures"]]))
    print("\n".join(notes[:1] if len(set(notes)) == 1 else map(": ".join, zip(_names(options.run), notes, strict=True))))


def _names(runs: Sequence[Path]) -> list[str]:
    """The files', or their paths where those are not distinct."""
    distinct = len({path.name for path in runs}) == len(runs)
    return [path.name if distinct else str(path) for path in runs]


def _coverage(qrels: Qrels, run: Run) -> str:
    judged, with_hits, unjudged = len(qrels), len(qrels.keys() & run.keys()), len(run.keys() - qrels.keys())
    text = f"{judged} judged queries, {judged - with_hits} of them without any hit (they count as 0)"
    return f"{text}; {unjudged} queries of the run are not judged and left out" if unjudged else text


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.evaluate", description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", type=Path, nargs="+", help="TREC's or MS MARCO's, plain or .gz; of several, a row each")
    what.add_argument("--table", metavar="SET", help="the papers' table of a set of recipes: recipes/msmarco-passage, or a folder of yours")
    parser.add_argument("--runs", type=Path, default=RUNS, metavar="FOLDER", help="of --table: where run directories lie (default: %(default)s)")
    parser.add_argument("--qrels", type=Path, help="of --run: TREC qrels, plain or .gz")
    parser.add_argument("--measures", nargs="+", help=f"default: {' '.join(MEASURES)}")
    parser.add_argument("--holes", type=cli.from_one_on, nargs="+", default=[], metavar="K", help="also the share of the first K that is not judged")
    parser.add_argument("--overlap", type=Path, metavar="RUN", help="also the share of the first 100 that this run has there too")
    parser.add_argument("--overlap-cutoff", type=cli.from_one_on, metavar="K", help=f"of the first K (default: {CUTOFF})")
    parser.add_argument("--per-query", action="store_true", help="show each judged query too")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="also write the figures as JSON; a table as .md, .json or .csv")
    options = parser.parse_args(arguments)
    if options.run and not options.qrels:
        parser.error("--run needs --qrels: the judgments of its queries")
    if options.overlap_cutoff and not options.overlap:
        parser.error("--overlap-cutoff needs --overlap: the run to compare with")
    of_runs = ("qrels", "measures", "holes", "overlap", "overlap_cutoff", "per_query")
    if options.table and (given := [f"--{name.replace('_', '-')}" for name in of_runs if getattr(options, name)]):
        parser.error(f"--table has what runs have measured themselves; leave out {', '.join(given)}")
    if options.table and options.runs != RUNS and not options.runs.is_dir():
        parser.error(f"--runs {options.runs}: there is no such folder")
    return options


if __name__ == "__main__":
    cli.run(main)
