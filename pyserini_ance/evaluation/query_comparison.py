"""Query-by-query comparison of two rankings: the largest wins and losses, with the first document of each, as
Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.evaluation.metrics import best_first, per_query, row_of
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import table

UNJUDGED = "not judged"


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
