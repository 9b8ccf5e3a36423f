"""Teachers: the base class, the pairs that they score, and the scores as training reads them.

A term with a `teacher` learns to score an anchor's candidates as the teacher does. The refresher scores all
pairs that a step can draw when it mines the tables, and publishes the scores with them.
"""

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.scored_pairs import ScoredPairs
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.components import MiningComponent
from pyserini_ance.storage.files import save_array, sha256_json
from pyserini_ance.storage.progress import progress_bar

PAIRS_PER_BLOCK = 8192  # scored between two writes of the cache: what a killed process loses
BLOCK = np.dtype([("key", np.int64), ("score", np.float32)])


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a query and a document that a teacher scores, sorted by anchor, then by candidate.

    queries, documents: (P,) int32 rows. groups: (P,) int64, ascending from 0: the anchor of each pair.
    """

    queries: np.ndarray
    documents: np.ndarray
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class TeacherContext:
    """What a teacher may look at: the snapshot of the model that is being trained.

    origins: what the scores come from, for the report of a refresh; each teacher adds its kind, with a digest
        of its weights or of its file, when it scores.
    new_pairs: the number of pairs that the cache lacked, by the kind of teacher.
    """

    snapshot: Snapshot
    origins: dict[str, str] = field(default_factory=dict)
    new_pairs: Counter[str] = field(default_factory=Counter)

    @property
    def cache(self) -> Path:
        assert self.snapshot.cache is not None, "a teacher keeps scores: pass a cache to Snapshot"
        return self.snapshot.cache


class Teacher(MiningComponent):
    """A model, or a ranking, whose scores of pairs the retriever learns from.

    compares_candidates: a pair's score depends on the other pairs of its anchor in the same call. highest: of
        grades from 0 on, which only some pairs have; None: scores, and the others are ranked last.
    """

    compares_candidates: ClassVar[bool] = False
    highest: ClassVar[float | None] = None

    @abstractmethod
    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        """(P,) float32, the teacher's own scores (logits, never squashed); NaN for a pair without one.

        All processes of the snapshot's world make the call and get the same scores.
        """


def score_tables(
    teacher: Teacher, tables: Sequence[NegativeTable], anchor_set: AnchorSet, context: TeacherContext
) -> ScoredPairs:
    """The teacher's scores of the candidates in `tables` and of the known positives of their anchors,
    promoted pairs of `anchor_set` included.

    With `query_chunks`, tables may have different anchors; those that all of them have are scored, because a
    step draws no others. All processes make the call.
    """
    anchors = tables[0].anchors
    for table in tables[1:]:
        anchors = np.intersect1d(anchors, table.anchors, assume_unique=True)
    known_positives = anchor_set.known_positives.subset(anchors)
    keys = [anchor_set.pair_keys(np.repeat(anchors, known_positives.counts), known_positives.rows)]
    for table in tables:
        candidates = table.candidates[table.positions(anchors)]
        keys.append(anchor_set.pair_keys(anchors[:, None], candidates)[candidates != PADDING])
    return score_keys(teacher, np.unique(np.concatenate(keys)), anchor_set, context)


def score_keys(
    teacher: Teacher, keys: np.ndarray, anchor_set: AnchorSet, context: TeacherContext
) -> ScoredPairs:
    """The teacher's scores of the pairs with these `pair_keys` (P,), ascending; all processes call it."""
    rows, others = (part.astype(np.int32) for part in np.divmod(keys, anchor_set.candidates))
    groups = np.unique(rows, return_inverse=True)[1]
    queries, documents = (rows, others) if anchor_set.anchor == "query" else (others, rows)
    scores = teacher.score(Pairs(queries, documents, groups), context)
    return ScoredPairs(keys, scores.astype(np.float32, copy=False), anchor_set.candidates)


def scored_once(
    pairs: Pairs,
    identity: str,
    context: TeacherContext,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    label: str,
) -> np.ndarray:
    """(P,) float32 scores of the pairs, each scored once by a teacher that never changes.

    identity: a digest of all that the scores depend on besides the collection. score: maps query rows and
    document rows (p,) to scores (p,) float32. Pairs that the cache holds are not scored again; the others are
    shared by the processes and written block by block, so that an interrupted call continues.
    """
    snapshot = context.snapshot
    data, world = sha256_json([identity, snapshot.collection.digest, snapshot.split.name]), snapshot.world
    folder = context.cache / "teachers" / data[:32]
    width = len(snapshot.collection.documents)
    keys = pairs.queries.astype(np.int64) * width + pairs.documents
    # The main process says which blocks count: another run may add one at any time.
    names = world.on_main(lambda: sorted(path.name for path in folder.glob("*.npy")))
    scores = ScoredPairs(*read_cache(folder, names), width).of(pairs.queries, pairs.documents)
    missing = np.flatnonzero(np.isnan(scores))
    context.new_pairs[label] += len(missing)
    blocks = np.split(missing, range(PAIRS_PER_BLOCK, len(missing), PAIRS_PER_BLOCK)) if len(missing) else []
    for block in progress_bar(
        iterable=blocks, desc=f"{label} scores", unit="block", leave=False, disable=not world.is_main
    ):
        own = np.array_split(block, world.size)[world.rank]
        part = score(pairs.queries[own], pairs.documents[own]).astype(np.float32)
        scores[block] = world.gather_rows(part)
        if len(wrong := block[~np.isfinite(scores[block])]):
            query, document = pairs.queries[wrong[0]], pairs.documents[wrong[0]]
            raise RuntimeError(
                f"the {label} scores {len(wrong)} of {len(block)} pairs with no finite number, first "
                f"query {snapshot.split.queries.ids[query]} with document "
                f"{snapshot.collection.documents.ids[document]}: {scores[wrong[0]]}; its weights are "
                "damaged: use another model, or train it again"
            )
        world.on_main(partial(write_block, folder, keys[block], scores[block]))
    return scores


def read_cache(folder: Path, names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The keys (P,) int64, ascending, and scores (P,) float32 in the blocks `names` of a cache.

    A block is named by the digest of its content. Raises RuntimeError for a damaged one.
    """
    stored = [np.empty(0, BLOCK)]
    for path in (folder / name for name in names):
        block = None
        with suppress(ValueError, EOFError):
            block = np.load(path)
        if block is None or _name(block) != path.name:
            raise RuntimeError(
                f"{path}, with scores of a teacher, is damaged; remove it, and its pairs are scored again"
            )
        stored.append(block)
    blocks = np.concatenate(stored)
    blocks = blocks[np.argsort(blocks["key"], kind="stable")]
    return blocks["key"], blocks["score"]


def write_block(folder: Path, keys: np.ndarray, scores: np.ndarray) -> None:
    """Store the scores (P,) of the keys (P,) as a block that appears whole; an equal one is stored once."""
    block = np.empty(len(keys), BLOCK)
    block["key"], block["score"] = keys, scores
    folder.mkdir(parents=True, exist_ok=True)
    save_array(folder / _name(block), block)


def _name(block: np.ndarray) -> str:
    return f"{hashlib.sha256(block.tobytes()).hexdigest()[:32]}.npy"
