"""Scores of a ranking as teacher: BM25's, which the run makes, or those of a file that any model made."""

from pathlib import Path
from typing import Literal

import numpy as np

from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.scored_pairs import ScoredPairs, read_scored_pairs
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext
from pyserini_ance.storage.files import sha256_file, sha256_json
from pyserini_ance.storage.publish import publish_once, read_manifest

KEY = "stages.<stage>.terms.<term>.teacher.file"
SCORES_FORMAT = 2  # of the arrays of `scores_in_file`; another number is another place in the cache


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
        scored = scores_in_file(context.snapshot.data.training_rankings["bm25"], self.kind, context)
        assert context.snapshot.bm25 is not None, "recipes with a `bm25` teacher have `bm25:`"
        scores = scored.of(pairs.queries, pairs.documents)
        lowest = scored.lowest(pairs.queries, context.snapshot.bm25.hits)
        return np.where(np.isnan(scores), lowest, scores).astype(np.float32)


class RankingTeacher(Teacher):
    """Scores of a TREC run, or of training files of Tevatron and FlagEmbedding that list scores.

    A pair that the file does not list has no score: it does not count in the loss.
    """

    kind: Literal["ranking"] = "ranking"
    file: Path
    """The file of the scores, in a form of `data/scored_pairs.py`."""

    @property
    def files(self) -> tuple[Path, ...]:
        return (find_file(self.file, KEY),)

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        scored = scores_in_file(self.files[0], f"{self.kind} {self.file}", context)
        return scored.of(pairs.queries, pairs.documents)


def scores_in_file(path: Path, origin: str, context: TeacherContext) -> ScoredPairs:
    """The scores of a file, whose digest becomes `origin` in the context.

    A file of many lines takes minutes, so the first call leaves arrays in the recipe's cache, which all
    processes map. Raises as `read_scored_pairs` does, RuntimeError for a damaged cache.
    """
    snapshot, world = context.snapshot, context.snapshot.world
    collection, split = snapshot.collection, snapshot.split
    digest = context.origins[origin] = world.on_main(lambda: sha256_file(path))
    about = {"file": str(path), "sha256": digest, "collection": collection.digest, "split": split.name}
    identity = sha256_json([SCORES_FORMAT, digest, collection.digest, split.name])
    folder = context.cache / "scored-pairs" / identity[:32]

    def fill(claimed: Path) -> None:
        scored = read_scored_pairs(path, split, collection)
        if sha256_file(path) != digest:
            raise RuntimeError(f"{path} has changed while its scores were read; start again")
        scored.save(claimed)

    world.on_main(lambda: publish_once(folder, about, fill))
    read_manifest(folder, verify=False)
    return ScoredPairs.open(folder)
