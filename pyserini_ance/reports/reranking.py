"""Rerank the first documents of a ranking with a model that reads query and document together.

The output folder is a query log, which an interrupted command continues; at the end it also has
`measures.json`, and `first-K.trec` for each number K of documents reranked.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.trec import Qrels, best_first, write_run
from pyserini_ance.encoders.cross_encoder_model import Pair, record_text
from pyserini_ance.evaluation.metrics import latency, row_of
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.bm25_rankings import bm25_index
from pyserini_ance.reports.ranking_inputs import RankingInput, parse_ranking_name
from pyserini_ance.storage import files
from pyserini_ance.storage.progress import progress_bar

Scorer = Callable[[Sequence[Pair]], np.ndarray]  # (P,) float32
FIRST_STAGE = "first stage"  # the row of `measures.json` before reranking


@dataclass(frozen=True)
class QueryLog:
    """The log in `folder`: `about.json` and `queries.jsonl`."""

    folder: Path

    def begin(self, settings: dict[str, Any], model: str) -> None:
        """Start the log, or continue it.

        `settings` (JSON values) and the weights of `model`, which may change under the same name, decide the
        results; a name on a hub has no digest. Raises FileExistsError if the folder holds other files, or
        results of other settings; a command that failed before its first query has left none.
        """
        weights = sorted(path for path in Path(model).glob("*") if path.suffix in (".safetensors", ".bin"))
        digests = {path.name: files.sha256_file(path) for path in weights}
        settings = {**settings, "weights": files.sha256_json(digests) if weights else None}
        path = self.folder / "about.json"
        recorded = files.read_json_object(path)
        if recorded is None and self.folder.exists() and any(self.folder.iterdir()):
            raise FileExistsError(f"{self.folder} holds other files; pass another --output")
        for key, value in settings.items():
            if recorded is not None and recorded.get(key) != value and self.records:
                raise FileExistsError(
                    f"{self.folder} was made with {key} {recorded.get(key)}, not {value}; pass another "
                    "--output, or remove the folder"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write_json(path, settings)

    def append(self, record: dict[str, Any]) -> None:
        """Add the record of one query, which has the key `query`."""
        files.append_json_line(self.folder / "queries.jsonl", record)

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records by query, in the order in which the queries were finished."""
        return {record["query"]: record for record in files.read_json_lines(self.folder / "queries.jsonl")}


def rerank(
    ranked: RankingInput,
    scorer: Scorer,
    cutoffs: Sequence[int],
    folder: Path,
    measures: Sequence[Measure],
    settings: Mapping[str, Any],
    qrels: Qrels | None = None,
    time_first_stage: Callable[[], Sequence[float]] = tuple,
) -> list[dict[str, Any]]:
    """Score the first `cutoffs[-1]` documents of `ranked` once, in slices that end at each of the rising
    `cutoffs`, and write the runs and `measures.json`; returns the rows of a table, the ranking before
    reranking first.

    The latency at a cutoff is that of its slices, including batches that end there. The first query is scored
    twice: the first batch of a model is slow and would distort the latencies. settings: what else decides the
    scores, with the `model`. qrels: judgments to measure by, instead of the collection's, which may lack
    those that training does not need. time_first_stage: milliseconds of searches of the first stage.

    Raises, before the long scoring, ValueError if the ranking has fewer documents than the last cutoff or
    cannot be measured, FileExistsError if the folder holds something else.
    """
    ranked.check_hits(cutoffs[-1])
    rows: list[dict[str, Any]] = [{"ranking": FIRST_STAGE, **ranked.measure(ranked.run, measures, qrels)}]
    log = QueryLog(folder)
    log.begin({**settings, "depths": list(cutoffs), **ranked.identity}, settings["model"])
    done = log.records
    remaining = [query for query in ranked.ranked_queries if query not in done]
    if remaining:
        scorer(_pairs(ranked, remaining[0], cutoffs[0]))
    total = sum(min(len(ranked.run[query]), cutoffs[-1]) for query in remaining)
    with progress_bar(total=total, desc="rerank", unit="pair") as bar:
        for query in remaining:
            pairs = _pairs(ranked, query, cutoffs[-1])
            scores, milliseconds = list[float](), list[float]()
            for start, stop in pairwise((0, *cutoffs)):
                began = time.perf_counter()
                scores += scorer(pairs[start:stop]).tolist()
                milliseconds.append(round(1000 * (time.perf_counter() - began), 3))
            if not np.isfinite(scores).all():
                problem = f"gives query {query} scores that are no finite numbers"
                raise ValueError(f"{settings['model']} {problem}; pass --precision fp32 or another model")
            log.append({"query": query, "scores": scores, "ms": milliseconds})
            bar.update(len(pairs))
    if first_stage_ms := time_first_stage():
        rows[0] |= latency(first_stage_ms)
    records = log.records
    for position, cutoff in enumerate(cutoffs, start=1):
        path = folder / f"first-{cutoff}.trec"
        reranked = {
            id: merge_reranked(ranked.run[id], record["scores"][:cutoff]) for id, record in records.items()
        }
        hits = ((query, document, score) for query, of in reranked.items() for document, score in of.items())
        write_run(path, hits, "pyserini_ance")
        measured = ranked.measure(reranked, measures, qrels)
        spent = latency([sum(record["ms"][:position]) for record in records.values()])
        rows.append({"ranking": f"first {cutoff}", **measured, **spent})
    files.write_json(folder / "measures.json", {"queries": len(records), "rows": rows})
    return rows


def _pairs(ranked: RankingInput, query: str, count: int) -> list[Pair]:
    """The query's text with each of its first documents."""
    queries, texts = ranked.queries, ranked.collection.documents
    text = queries.columns["text"][queries.rows[query]]
    return [(text, record_text(texts[row_of(texts, id)])) for id in best_first(ranked.run[query])[:count]]


def search_timer(source: str, ranked: RankingInput, queries: int) -> Callable[[], list[float]]:
    """Return a function that times `queries` searches with a run's model or its BM25 (milliseconds per
    query).

    Raises ValueError for any other ranking.
    """
    from pyserini_ance.pyserini_bridge.searchers import time_bm25, time_dense

    run, row = parse_ranking_name(source)
    texts = [ranked.queries[ranked.queries.rows[query]]["text"] for query in ranked.ranked_queries[:queries]]
    hits, bm25 = ranked.recipe.final_evaluation.hits, ranked.recipe.bm25
    bm25_folder = bm25_index(bm25, ranked.recipe.cache, ranked.collection) if bm25 else Path(BM25)
    is_of_run = ranked.file == run.final_run(ranked.split) and not ranked.recipe.first_pass
    if is_of_run and run.index.is_dir():
        return lambda: time_dense(run.model, run.index, texts, hits)
    if row == BM25 and bm25 and bm25_folder.is_dir():
        return lambda: time_bm25(bm25_folder, bm25.k1, bm25.b, texts, hits)
    raise ValueError(
        f"the searches of {ranked.name} cannot be timed: only a run directory's model (with {run.index}) and "
        f"its row {BM25} (with {bm25_folder}) can be timed; remove --time-first-stage"
    )


def merge_reranked(hits: dict[str, float], scores: Sequence[float]) -> dict[str, float]:
    """Replace the scores of the best `hits` by their new `scores`, best first in trec_eval's order.

    The other hits follow in their order with scores below all new ones. Papers drop them, which does not
    change measures of the reranked documents; with them, recall beyond those is still that of the first
    stage.
    """
    order = best_first(hits)
    new = dict(zip(order, scores, strict=False))
    floor = np.floor(min(new.values()))
    rest = {document: float(floor - rank) for rank, document in enumerate(order[len(new) :], start=1)}
    return {document: new[document] for document in best_first(new)} | rest
