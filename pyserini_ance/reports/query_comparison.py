"""The queries that one ranking wins and loses most against another, with the first document of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, best_first, read_run
from pyserini_ance.evaluation.metrics import per_query, row_of
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import table
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.ranking_inputs import collection_of, common_qrels, parse_ranking_name, ranking_file


def compare_queries(
    run_name: str, other_name: str, measure_name: str, split: str | None
) -> "QueryComparison":
    """Compare two rankings, RUN or RUN:ROW, on a test split (default: the first).

    Raises ValueError if they judge the split differently, or if it has no judgments.
    """
    (measure,) = parse_measures([measure_name])
    named = {name: parse_ranking_name(name) for name in (run_name, other_name)}
    (run, _), _ = named.values()
    collection = collection_of(run)
    split = split or run.read_final_evaluation().split[0]
    rankings = {name: read_run(ranking_file(of, row, split)) for name, (of, row) in named.items()}
    qrels = common_qrels([of for of, _ in named.values()], split)
    if qrels is None:
        raise ValueError(
            f"{run.folder} has no judgments of split {split!r}, which is judged by answers; "
            "pass another split with --split"
        )
    queries = collection.split(split).queries
    return QueryComparison(qrels, queries, collection.documents, rankings, measure)


@dataclass(frozen=True)
class QueryComparison:
    """Two named rankings, compared by one measure; texts are truncated to `characters`."""

    qrels: Qrels
    queries: Texts
    documents: Texts
    rankings: Mapping[str, Run]
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

    def as_markdown(self, most: int = 10) -> str:
        """The counts, then the largest wins and the largest losses of the first ranking, up to `most` queries
        of each."""
        found, queries = self.difference, list(self.values)
        first, second = self.rankings
        parts = [
            f"# {self.measure}: {first} against {second}",
            f"{found.wins} wins, {found.ties} ties, {found.losses} losses of {len(queries)} queries; "
            f"mean difference {found}",
        ]
        columns = ["ranking", str(self.measure), "first", "grade", "text"]
        wins, losses = queries[: min(most, found.wins)], queries[::-1][: min(most, found.losses)]
        for winner, shown in ((first, wins), (second, losses)):
            if shown:
                parts.append(f"## {winner} wins")
            for query in shown:
                rows = [
                    {"ranking": name, str(self.measure): value, **self.first(query, run)}
                    for (name, run), value in zip(self.rankings.items(), self.values[query], strict=True)
                ]
                text = self.queries.columns["text"][self.queries.rows[query]]
                parts += [f"### {query}: {text}", table(rows, columns)]
        return "\n\n".join(parts)

    def first(self, query: str, run: Run) -> dict[str, str]:
        """Id, grade and text of the document at rank 1; empty if there are no hits."""
        if not run.get(query):
            return {}
        document = best_first(run[query])[0]
        text = " ".join(" ".join(self.documents[row_of(self.documents, document)].values()).split())
        shown = text if len(text) <= self.characters else f"{text[: self.characters].rstrip()} ..."
        return {"first": document, "grade": str(self.qrels[query].get(document, "not judged")), "text": shown}
