"""A ranking as a dictionary: scores by query and document, best first."""

from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.known_positives import PADDING
from pyserini_ance.data.rankings import read_ranking


class AnyTexts(Texts):
    """Texts that have every id: it is added when its row is first asked for."""

    def rows_of(self, ids) -> np.ndarray:
        ids = list(ids)
        self.ids.extend(dict.fromkeys(id for id in ids if id not in self.ids))
        rows = {id: row for row, id in enumerate(self.ids)}
        return np.array([rows[id] for id in ids], np.int64)


def read(path: Path, queries: Texts, documents: Texts | None = None, depth: int = 1000) -> dict[str, dict]:
    """Without `documents` those that the file names are all there. No document is relevant to any query."""
    known = documents or AnyTexts([], {"text": []})
    split, collection = Split("train", queries, Qrels.of([], [], [], len(queries))), Collection(known, {})
    ranking = read_ranking(path, split, collection, depth)
    return {
        query: {known.ids[row]: float(one) for row, one in zip(rows, scores, strict=True) if row != PADDING}
        for query, rows, scores in zip(queries.ids, ranking.rows.tolist(), ranking.scores, strict=True)
    }
