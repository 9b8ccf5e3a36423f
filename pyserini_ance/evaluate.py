"""`python -m pyserini_ance.evaluate`: run files against qrels, by any measure of ir-measures.

Beside them stand, as ANCE's tables have them, the hole rate and the overlap with another run; both are means over the judged queries that
the run has hits for.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ir_measures import Measure

from pyserini_ance import cli
from pyserini_ance.data.rankings import read_ranked
from pyserini_ance.data.trec import Qrels, Run, read_qrels
from pyserini_ance.measures.evaluate import evaluate, means, per_query
from pyserini_ance.measures.holes import holes
from pyserini_ance.measures.overlap import CUTOFF, overlap
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.measure import parse
from pyserini_ance.storage.files import write_json


@dataclass(frozen=True)
class Asked:
    """What is to be said of each run; `other` is the run to overlap with."""

    qrels: Qrels
    measures: Sequence[Measure]
    holes: Sequence[int]
    other: Run | None
    overlap_cutoff: int

    def totals(self, run: Run) -> dict[str, float]:
        return evaluate(self.qrels, run, self.measures) | means(self._beside(run))

    def per_query(self, run: Run) -> dict[str, dict[str, float]]:
        found, beside = per_query(self.qrels, run, self.measures), self._beside(run)
        return {query: values | beside.get(query, {}) for query, values in found.items()}

    def _beside(self, run: Run) -> dict[str, dict[str, float]]:
        unjudged = holes(self.qrels, run, self.holes) if self.holes else {}
        shared = {} if self.other is None else overlap(run, self.other, self.qrels, self.overlap_cutoff)
        return {query: unjudged.get(query, {}) | shared.get(query, {}) for query in unjudged.keys() | shared.keys()}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    measures = parse(options.measures)
    other = read_ranked(options.overlap) if options.overlap else None
    asked = Asked(read_qrels(options.qrels), measures, options.holes, other, options.overlap_cutoff)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, nargs="+", required=True, help="TREC's or MS MARCO's, plain or .gz; of several, a row each")
    parser.add_argument("--qrels", type=Path, required=True, help="TREC qrels, plain or .gz")
    parser.add_argument("--measures", nargs="+", default=["nDCG@10", "RR@10", "R@100"], help="default: nDCG@10 RR@10 R@100")
    parser.add_argument("--holes", type=_cutoff, nargs="+", default=[], metavar="K", help="also the share of the first K that is not judged")
    parser.add_argument("--overlap", type=Path, metavar="RUN", help="also the share of the first 100 that this run has there too")
    parser.add_argument("--overlap-cutoff", type=_cutoff, default=CUTOFF, metavar="K", help="of the first K (default: %(default)s)")
    parser.add_argument("--per-query", action="store_true", help="show each judged query too")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="also write the figures as JSON")
    return parser


def _cutoff(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    cli.run(main)
