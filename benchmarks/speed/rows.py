"""Benchmarks `ids` and `plan`: what happens to rows between a search and a training step, without a model.

`ids`: drop positives, filter and sample what a search has found, beside the same in plain Python with the
result objects of Pyserini's searchers. `plan`: draw the rows of training steps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.rounds import Contender, Contest, Rounds

FOUND, SCORES, POSITIVES, POSITIVE_SCORES = (
    f"{name}.npy" for name in ("found", "scores", "positives", "positive-scores")
)
MARGIN, OVERSAMPLE, NUM_NEGATIVES = 0.05, 100, 8
MOST_POSITIVES, BEST_PLACES = 4, 60  # of a query, found among so many best
PLANNED_BATCH, PLANNED_STEPS, PLANNED_TOP_K = 64, 1000, 200


def ids(options: Mapping[str, Any], folder: Path) -> Contest:
    """What a search found for `options["searches"]` queries, to `options["top_k"]` candidates and a draw."""
    top_k = options["top_k"]
    write_found(folder, options["documents"], options["searches"], top_k + OVERSAMPLE + MOST_POSITIVES)
    count = min(NUM_NEGATIVES, top_k)
    settings = {"documents": options["documents"], "top_k": top_k, "num_negatives": count}
    return Contest(
        "ids",
        f"rows found for {options['searches']:,} queries: drop positives and what scores within {MARGIN} of "
        f"the positive, keep {top_k}, draw {count}",
        [
            Contender("ours", ours, settings),
            Contender("pyserini's result objects", stock, settings, ("pyserini",), against=True),
        ],
        None,
        lambda own, reference: {"equal rows": float((own == reference).mean())},
    )


def write_found(folder: Path, documents: int, queries: int, k: int) -> None:
    """Write rows (Q, k) int32 and scores (Q, k) float32 as a search finds them, best first, and the positives
    (Q, 4) int32 of each query, -1 where it has fewer, with the score of the best (Q,) float32."""
    rng = np.random.default_rng(0)
    found = np.stack([rng.choice(documents, k, replace=False) for _ in range(queries)]).astype(np.int32)
    scores = -np.sort(-rng.normal(0.5, 0.1, found.shape).astype(np.float32), axis=1)
    places = np.sort(rng.integers(0, min(k, BEST_PLACES), (queries, MOST_POSITIVES)), axis=1)
    positives = np.take_along_axis(found, places, 1)
    positives[:, 1:][places[:, 1:] == places[:, :-1]] = -1
    positives[np.arange(MOST_POSITIVES) >= rng.integers(1, MOST_POSITIVES + 1, queries)[:, None]] = -1
    best = np.take_along_axis(scores, places[:, :1], 1)[:, 0]
    arrays = {FOUND: found, SCORES: scores, POSITIVES: positives, POSITIVE_SCORES: best}
    for name, array in arrays.items():
        np.save(folder / name, array)


def ours(rounds: Rounds, folder: Path, documents: int, top_k: int, num_negatives: int) -> None:
    """A refresh's own steps after its search, and the draw of negatives for all queries."""
    from pyserini_ance.data.prepared import AnchorSet
    from pyserini_ance.negatives.ann import Ann
    from pyserini_ance.negatives.filters.base import Candidates
    from pyserini_ance.negatives.filters.relative_margin import RelativeMargin

    found, scores, positives, positive_scores = _read(folder)
    source = Ann(top_k=top_k, num_negatives=num_negatives, filters=(RelativeMargin(margin=MARGIN),))
    lines, columns = np.nonzero(positives >= 0)
    anchor_set = AnchorSet(_split(lines, positives[lines, columns], len(found)), "query", documents)
    snapshot: Any = None  # read by filters that look at texts
    for _ in rounds:
        candidates = Candidates(snapshot, anchor_set, found, scores, lambda: positive_scores)
        table = source.table_of(candidates, top_k)
        drawn = source.draw(table.anchors, table, anchor_set, np.random.default_rng(0))
        rounds.output = np.concatenate([table.candidates, drawn], axis=1)


def _split(query_rows: np.ndarray, document_rows: np.ndarray, queries: int) -> Any:
    from pyserini_ance.data.collection import Qrels, Split, Texts

    texts = Texts([str(row) for row in range(queries)], {"text": [""] * queries})
    return Split("train", texts, Qrels.of(query_rows, document_rows, np.ones_like(query_rows), queries))


def stock(rounds: Rounds, folder: Path, documents: int, top_k: int, num_negatives: int) -> None:
    """The dict of lists of `FaissSearcher.batch_search`, and the same work on it, draws included."""
    from pyserini_ance.pyserini_bridge.java import import_pyserini

    result = import_pyserini("pyserini.search.faiss").DenseSearchResult
    found, scores, positives, positive_scores = _read(folder)
    docids = [str(row) for row in range(documents)]
    query_ids = [str(row) for row in range(len(found))]
    relevant = {
        query: {docids[row] for row in line if row >= 0}
        for query, line in zip(query_ids, positives.tolist(), strict=True)
    }
    limits = dict(zip(query_ids, (positive_scores - MARGIN * np.abs(positive_scores)).tolist(), strict=True))
    while rounds.begin():
        rng = np.random.default_rng(0)
        results = {
            query: [
                result(docids[row], score) for score, row in zip(line_scores, line, strict=True) if row != -1
            ]
            for query, line_scores, line in zip(query_ids, scores, found, strict=True)
        }
        kept, drawn = {}, {}
        for query, hits in results.items():
            known, limit = relevant[query], limits[query]
            passing = [hit for hit in hits if hit.docid not in known and not hit.score > limit]
            kept[query] = [hit.docid for hit in passing[:top_k]]
            keys = rng.random(top_k)[: len(kept[query])].tolist()  # the numbers that we draw by
            order = sorted(range(len(keys)), key=keys.__getitem__)[:num_negatives]
            drawn[query] = [kept[query][place] for place in order]
        rounds.end()
        rounds.output = np.array(  # outside of the measured time: saved at the end of the next round
            [_padded(kept[query], top_k) + _padded(drawn[query], num_negatives) for query in query_ids]
        )


def _padded(docids: list[str], width: int) -> list[int]:
    return [*map(int, docids), *[-1] * (width - len(docids))]


def _read(folder: Path) -> list[np.ndarray]:
    return [np.load(folder / name) for name in (FOUND, SCORES, POSITIVES, POSITIVE_SCORES)]


def plan(options: Mapping[str, Any], folder: Path) -> Contest:
    """Steps over `options["training_queries"]` queries: a positive and a mined or random negative each."""
    queries, documents = options["training_queries"], options["documents"]
    sizes = {"queries": queries, "documents": documents}
    return Contest(
        "plan",
        f"the rows of {PLANNED_STEPS:,} steps of {PLANNED_BATCH} of {queries:,} queries: CPU s are "
        "milliseconds a step",
        [
            Contender("mined from a table", draw_steps, {**sizes, "source": "ann"}),
            Contender("random", draw_steps, {**sizes, "source": "random"}),
        ],
    )


def draw_steps(rounds: Rounds, folder: Path, queries: int, documents: int, source: str) -> None:
    """A round's steps follow those of the last one. The epoch's order is drawn before the measured rounds."""
    from pyserini_ance.data.collection import SIDES
    from pyserini_ance.data.prepared import AnchorSet
    from pyserini_ance.negatives.table import NegativeTable
    from pyserini_ance.recipe.stage import Stage
    from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch

    rng = np.random.default_rng(0)
    split = _split(np.arange(queries), rng.integers(0, documents, queries), queries)
    judged = {
        side: AnchorSet(split, side, count) for side, count in zip(SIDES, (documents, queries), strict=True)
    }
    tables, refresh = {}, {}
    if source == "ann":
        candidates = rng.integers(0, documents, (queries, PLANNED_TOP_K), np.int32)
        scores = np.broadcast_to(np.float32(0), candidates.shape)
        anchors = np.arange(queries, dtype=np.int32)
        tables["query", 0] = NegativeTable("query", "document", anchors, candidates, scores, source)
        refresh = {"refresh": {"every_steps": queries}}
    stage = Stage.model_validate(
        {
            "steps": queries,
            "batch_queries": PLANNED_BATCH,
            "terms": {"query": {"negatives": [{"kind": source}]}},
            "optimizer": {"learning_rate": 1e-6},
            **refresh,
        }
    )
    anchor_sets, first = anchor_sets_of(judged, tables.values()), 0
    for _ in rounds:
        for step in range(first, first + PLANNED_STEPS):
            batch = plan_batch(stage, 0, step, 0, anchor_sets, tables)
            rows = [batch.unique(side) for side in SIDES]
        first += PLANNED_STEPS
        rounds.output = np.concatenate(rows)
