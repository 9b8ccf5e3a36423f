"""BM25 as teacher: the ranking of the training queries that the run makes itself."""

from typing import Literal

import numpy as np

from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext, scores_in_file


class Bm25Teacher(Teacher):
    """BM25's scores, as the recipe's `bm25:` sets it.

    A document beyond a query's `bm25.hits` gets the score of the last hit, which is as much as it can have; 0
    if fewer documents than that share a word with the query.
    """

    kind: Literal["bm25"] = "bm25"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"bm25"})

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        scored = scores_in_file(context.snapshot.data.run_files["bm25"], self.kind, context)
        assert context.recipe.bm25 is not None, "recipes with a `bm25` teacher have `bm25:`"
        scores = scored.of(pairs.queries, pairs.documents)
        lowest = scored.lowest(pairs.queries, context.recipe.bm25.hits)
        return np.where(np.isnan(scores), lowest, scores).astype(np.float32)
