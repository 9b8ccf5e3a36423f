"""The queries that one ranking wins and loses most against another, with the first document of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, best_first, read_qrels, read_run
from pyserini_ance.evaluation.metrics import per_query, row_of
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import table
from pyserini_ance.pipeline.ranking_inputs import collection_of, parse_ranking_name, ranking_file
from pyserini_ance.recipe.evaluation_settings import parse_measures

UNJUDGED = "not judged"


def compare_queries(
    run_name: str, other_name: str, measure_name: str, split: str | None, characters: int
) -> "QueryComparison":
    """Compare two rankings, RUN or RUN:ROW, on a test split (default: the first).

    Raises ValueError if they judge the split differently, or if it has no judgments.
    """
    (measure,) = parse_measures([measure_name])
    folder, _ = parse_ranking_name(run_name)
    collection = collection_of(folder)
    split = split or folder.read_final_evaluation().split[0]
    qrels, run = _ranking(run_name, split)
    other_qrels, other = _ranking(other_name, split)
    if qrels != other_qrels:
        raise ValueError(
            f"{run_name} and {other_name} judge split {split!r} differently; pass two runs over the same "
            "data and split"
        )
    return QueryComparison(
        qrels,
        collection.split(split).queries,
        collection.documents,
        {run_name: run, other_name: other},
        measure,
        characters,
    )


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
            f"{len(self.values)} queries; mean difference {difference}"
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
            {"ranking": name, str(self.measure): value, **self.first(query, run)}
            for (name, run), value in sides
        ]
        return (
            f"### {query}: {text}\n\n{table(rows, ['ranking', str(self.measure), 'first', 'grade', 'text'])}"
        )

    def first(self, query: str, run: Run) -> dict[str, str]:
        """Id, grade and text of the document at rank 1; empty if there are no hits."""
        if not run.get(query):
            return {}
        document = best_first(run[query])[0]
        text = " ".join(" ".join(self.documents[row_of(self.documents, document)].values()).split())
        shown = text if len(text) <= self.characters else f"{text[: self.characters].rstrip()} ..."
        return {"first": document, "grade": str(self.qrels[query].get(document, UNJUDGED)), "text": shown}
