"""A ranking as a dictionary: scores by query and document, best first."""

from pathlib import Path

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.data.trec import PADDING


class AnyId(dict):
    """The rows of `ids`, where every id has one: it is put there when it is first asked for."""

    def __init__(self, ids: list[str]):
        super().__init__({id: row for row, id in enumerate(ids)})
        self._ids = ids

    def get(self, id, default=None):
        if id not in self:
            self[id] = len(self)
            self._ids.append(id)
        return self[id]


def read(
    path: Path, queries: Texts, documents: Texts | None = None, depth: int = 1000
) -> dict[str, dict[str, float]]:
    """Without `documents` those that the file names are all there. No document is relevant to any query."""
    known = documents or Texts([], {"text": []})
    if documents is None:
        vars(known).update(rows=AnyId(known.ids))
    split, collection = Split("train", queries, Qrels.of([], [], [], len(queries))), Collection(known, {})
    ranking = read_ranking(path, split, collection, depth)
    return {
        query: {
            known.ids[row]: float(score) for row, score in zip(rows, scores, strict=True) if row != PADDING
        }
        for query, rows, scores in zip(queries.ids, ranking.rows.tolist(), ranking.scores, strict=True)
    }
