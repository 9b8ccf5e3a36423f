"""What a cross-encoder is trained on: the positives and the last mined negatives of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.negatives.table import PADDING, NegativeTable, promoted_in
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import in_use, open_generation
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir


@dataclass(frozen=True, eq=False)
class MinedLists:
    """The training queries of a run, with the candidates of the tables that were last in use.

    split: with the positives that filters or `refresh.positives_top_k` added to the judged ones. tables:
        without candidates that are positives in `split`.
    generations: the hash of the weights that mined each generation, by its name.
    """

    collection: Collection
    split: Split
    tables: tuple[NegativeTable, ...]
    generations: dict[str, str]

    @classmethod
    def of(cls, run: RunDir, recipe: Recipe, collection: Collection) -> "MinedLists":
        """Open the tables of the last stage that has any for queries.

        Raises ValueError if no stage mined negatives, RuntimeError if a table is damaged.
        """
        adoptions = RunLog(run, writes=False).decisions("adopt")
        for name, stage in reversed(recipe.stages.items()):
            used = in_use(stage, [record for record in adoptions if record["stage"] == name])
            generations = {record["folder"]: record["weights"] for record in used}
            tables = {}
            for folder, weights in generations.items():
                tables.update(open_generation(run.folder / folder, {"weights": weights}).tables)
            of_queries = tuple(table for table in tables.values() if table.anchor_side == "query")
            if of_queries:
                by_name = {Path(folder).name: weights for folder, weights in generations.items()}
                split = collection.split(recipe.train_split.name)
                return cls.of_tables(collection, split, of_queries, by_name)
        raise ValueError(
            f"{run.folder} has no mined negatives: its stages train on random, in-batch or live negatives "
            "only. Pass a run with a source such as `ann` or `bm25`, for example one of demo/ance"
        )

    @classmethod
    def of_tables(
        cls,
        collection: Collection,
        split: Split,
        tables: Sequence[NegativeTable],
        generations: dict[str, str],
    ) -> "MinedLists":
        """The lists of `tables`, whose promoted pairs join the positives of `split`.

        What one table promotes another may still list, and tables of `train_split: {positives: last}` list a
        query's other positives.
        """
        pairs = promoted_in(tables)
        known = is_known_positive(split.known_positives("query"), pairs[:, 0], pairs[:, 1:])[:, 0]
        split = split.with_positives(pairs[~known])
        positives = split.known_positives("query")
        listed = tuple(table.excluding(table.anchors, positives) for table in tables)
        return cls(collection, split, listed, generations)

    @property
    def queries(self) -> np.ndarray:
        """(Q,) rows of the queries with a candidate, ascending."""
        anchors = [table.anchors[table.counts > 0] for table in self.tables]
        return np.unique(np.concatenate(anchors))

    def candidates(self, query: int) -> np.ndarray:
        """The different candidates of a query in all tables, ascending."""
        spans = [np.searchsorted(table.anchors, [query, query + 1]) for table in self.tables]
        found = [
            table.candidates[slice(*span)].ravel() for table, span in zip(self.tables, spans, strict=True)
        ]
        return np.setdiff1d(np.concatenate(found), [PADDING])

    def draw(self, count: int, num_negatives: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield `count` lists: the row of a query, and the rows of its documents, a positive first.

        Each pass over the queries has an order of its own. A list has one of the query's positives and up to
        `num_negatives` of its candidates, all drawn anew.
        """
        rng, queries = random_stream("teacher training lists", seed), self.queries
        for number in range(count):
            if number % len(queries) == 0:
                order = rng.permutation(queries)
            query = int(order[number % len(queries)])
            positive, candidates = rng.choice(self.split.qrels.relevant(query)), self.candidates(query)
            negatives = rng.choice(candidates, min(num_negatives, len(candidates)), replace=False)
            yield query, np.concatenate([[positive], negatives])

    def texts(self, query: int, documents: np.ndarray) -> tuple[str, list[str]]:
        """A query's text and its documents' texts, as the teacher `cross_encoder` and `rerank` read them."""
        texts = self.collection.documents
        return self.split.queries.columns["text"][query], [
            record_text(texts[row]) for row in documents.tolist()
        ]
