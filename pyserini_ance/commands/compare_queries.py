"""`pyserini-ance compare-queries`: the queries that one ranking wins and loses most against another.

The report is Markdown, with the first document of each ranking.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ir_measures import Measure

from pyserini_ance.analysis.run_comparison import Difference, differences
from pyserini_ance.commands import console
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run
from pyserini_ance.evaluation.metrics import best_first, per_query, row_of
from pyserini_ance.evaluation.tables import table
from pyserini_ance.pipeline.ranking_inputs import collection_of, parse_ranking_name, ranking_file
from pyserini_ance.recipe.evaluation_settings import parse_measures

UNJUDGED = "not judged"


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    (measure,) = parse_measures([args.measure])
    folder, _ = parse_ranking_name(args.run)
    collection = collection_of(folder)
    split = args.split or folder.read_recipe().final_evaluation.split[0]
    qrels, run = _ranking(args.run, split)
    other_qrels, other = _ranking(args.other, split)
    if qrels != other_qrels:
        raise ValueError(
            f"{args.run} and {args.other} judge split {split!r} differently; pass two runs over the same "
            "data and split"
        )
    comparison = QueryComparison(
        qrels,
        collection.split(split).queries,
        collection.documents,
        {args.run: run, args.other: other},
        measure,
        args.characters,
    )
    print(comparison.as_markdown(args.most))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "compare-queries",
        "List the queries that a ranking wins and loses most against another, with their texts, as Markdown.",
        "pyserini-ance compare-queries runs/demo-ance runs/demo-ance:bm25 --measure nDCG@10 --most 5",
        "Both rankings must be over the same data and test split.",
    )
    parser.add_argument(
        "run",
        metavar="RUN",
        help="RUN for the final ranking of a run directory, RUN:ROW for that of a row of its results table",
    )
    parser.add_argument("other", metavar="OTHER", help="the ranking to compare with, named in the same way")
    parser.add_argument("--measure", default="RR@10", help="the measure to compare (default: %(default)s)")
    parser.add_argument("--split", help="the test split (default: the first)")
    parser.add_argument(
        "--most",
        type=console.positive_int,
        default=10,
        metavar="N",
        help="show the N queries won and the N lost by most (default: %(default)s)",
    )
    parser.add_argument(
        "--characters",
        type=console.positive_int,
        default=300,
        metavar="N",
        help="show N characters of each text (default: %(default)s)",
    )
    args = parser.parse_args(arguments)
    if args.run == args.other:
        parser.error("pass two different rankings")
    return args


def _ranking(name: str, split: str) -> tuple[Qrels, Run]:
    folder, row = parse_ranking_name(name)
    path = ranking_file(folder, row, split)
    if not folder.qrels(split).exists():
        raise ValueError(
            f"{folder.folder} has no judgments of split {split!r}, which is judged by answers; "
            "pass another split with --split"
        )
    return read_qrels(folder.qrels(split)), read_run(path)


@dataclass(frozen=True)
class QueryComparison:
    """Two named rankings, compared by one measure; texts are truncated to `characters`."""

    qrels: Qrels
    queries: Texts
    documents: Texts
    rankings: dict[str, Run]
    measure: Measure
    characters: int = 300

    @cached_property
    def values(self) -> dict[str, tuple[float, float]]:
        """Both rankings' measures by judged query, from the first's largest win to its largest loss."""
        first, second = (per_query(self.qrels, run, [self.measure]) for run in self.rankings.values())
        name = str(self.measure)
        pairs = {query: (first[query][name], second[query][name]) for query in self.qrels}
        return dict(sorted(pairs.items(), key=lambda item: item[1][1] - item[1][0]))

    @property
    def difference(self) -> Difference:
        """The first ranking compared with the second; p by the paired t test."""
        first, second = np.array(list(self.values.values())).T
        return differences({"first": first}, second)["first"]

    def as_markdown(self, most: int) -> str:
        """The counts, then the largest wins and the largest losses of the first ranking, up to `most` queries
        of each."""
        difference, (first, second) = self.difference, self.rankings
        counts = (
            f"{difference.wins} wins, {difference.ties} ties, {difference.losses} losses of "
            f"{len(self.values)} queries; "
            f"mean difference {difference}"
        )
        queries = list(self.values)
        wins, losses = queries[: min(most, difference.wins)], queries[::-1][: min(most, difference.losses)]
        sections = [*self._section(f"## {first} wins", wins), *self._section(f"## {second} wins", losses)]
        return "\n\n".join([f"# {self.measure}: {first} against {second}", counts, *sections])

    def _section(self, title: str, queries: Sequence[str]) -> list[str]:
        return [title, *map(self._query, queries)] if queries else []

    def _query(self, query: str) -> str:
        text = self.queries.columns["text"][self.queries.rows[query]]
        sides = zip(self.rankings.items(), self.values[query], strict=True)
        rows = [
            {"ranking": name, str(self.measure): value, **self._first(query, run)}
            for (name, run), value in sides
        ]
        return (
            f"### {query}: {text}\n\n{table(rows, ['ranking', str(self.measure), 'first', 'grade', 'text'])}"
        )

    def _first(self, query: str, run: Run) -> dict[str, str]:
        """Id, grade and text of the document at rank 1; empty if there are no hits."""
        if not run.get(query):
            return {}
        document = best_first(run[query])[0]
        text = " ".join(" ".join(self.documents[row_of(self.documents, document)].values()).split())
        shown = text if len(text) <= self.characters else f"{text[: self.characters].rstrip()} ..."
        return {"first": document, "grade": str(self.qrels[query].get(document, UNJUDGED)), "text": shown}
