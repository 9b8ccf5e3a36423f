"""Cases: the queries on which one ranking gains or loses most against another, with the texts that each has first, as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.measures.evaluate import best_first, per_query, row_of
from pyserini_ance.measures.paired import Difference, differences
from pyserini_ance.measures.table import table

NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Cases:
    """Two named rankings by one measure; texts are cut after `characters`."""

    qrels: Qrels
    queries: Texts
    documents: Texts
    rankings: dict[str, Run]
    measure: Measure
    characters: int = 300

    @cached_property
    def values(self) -> dict[str, tuple[float, float]]:
        """Both rankings' measures by judged query: what the first gains most on comes first, what it loses most on last."""
        found = [per_query(self.qrels, run, [self.measure]) for run in self.rankings.values()]
        pairs = {query: tuple(values[query][str(self.measure)] for values in found) for query in self.qrels}
        return dict(sorted(pairs.items(), key=lambda case: case[1][1] - case[1][0]))

    @property
    def difference(self) -> Difference:
        """Of the first against the second; p by the paired t test."""
        first, second = np.array(list(self.values.values())).T
        return differences({"first": first}, second)["first"]

    def as_markdown(self, most: int) -> str:
        """The counts, then up to `most` queries that the first ranking wins and as many that it loses, largest differences first."""
        found, (first, second) = self.difference, self.rankings
        counts = f"{found.wins} wins, {found.ties} ties, {found.losses} losses of {len(self.values)} queries; mean difference {found}"
        ordered = list(self.values)
        wins, losses = ordered[: min(most, found.wins)], ordered[::-1][: min(most, found.losses)]
        sections = [*self._section(f"## {first} wins", wins), *self._section(f"## {second} wins", losses)]
        return "\n\n".join([f"# {self.measure}: {first} against {second}", counts, *sections])

    def _section(self, title: str, queries: Sequence[str]) -> list[str]:
        return [title, *map(self._case, queries)] if queries else []

    def _case(self, query: str) -> str:
        asked = self.queries.columns["text"][self.queries.rows[query]]
        sides = zip(self.rankings.items(), self.values[query], strict=True)
        rows = [{"ranking": name, str(self.measure): value, **self._first(query, run)} for (name, run), value in sides]
        return f"### {query}: {asked}\n\n{table(rows, ['ranking', str(self.measure), 'first', 'grade', 'text'])}"

    def _first(self, query: str, run: Run) -> dict:
        """The document at rank 1, and what it is; nothing where there are no hits."""
        if not run.get(query):
            return {}
        document = best_first(run[query])[0]
        text = " ".join(" ".join(self.documents[row_of(self.documents, document)].values()).split())
        cut = text if len(text) <= self.characters else f"{text[: self.characters].rstrip()} ..."
        return {"first": document, "grade": str(self.qrels[query].get(document, NOT_JUDGED)), "text": cut}
