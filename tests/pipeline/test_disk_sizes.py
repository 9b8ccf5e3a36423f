"""The disk that a plan expects, against the files of a run."""

import numpy as np

import pyserini_ance as pa
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives import snapshot
from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.disk_sizes import (
    bm25_index_bytes,
    bm25_training_bytes,
    cache_bytes,
    factory_index_bytes,
    metrics_bytes,
    ranking_bytes,
)
from pyserini_ance.pipeline.plan import plan
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.runs.rundir import RunDir

STAGE = {
    "steps": 4,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}},
    "refresh": {"every_steps": 2},
}
STATIC = {
    "terms": {"query": {"negatives": [{"kind": "bm25", "top_k": 5, "on_shortage": "fill_random"}]}},
    "refresh": None,
}
TEST = {"split": ["dev", "test"], "hits": 20, "measures": ["RR@10"], "rerank": {"dev": {"hits": 10}}}


def train(recipe, folder) -> None:
    """A whole run whose BM25 ranks the documents as they are listed."""

    def retrieve(documents, jobs, settings, index, count) -> None:
        ids = [id for id, _ in documents]
        for job in jobs:
            job.output.parent.mkdir(parents=True, exist_ok=True)
            hits = (
                (query, id, rank) for query, _ in job.queries for rank, id in enumerate(ids[: job.hits], 1)
            )
            lines = (f"{query} Q0 {id} {rank} {100 - rank:.6f} bm25\n" for query, id, rank in hits)
            job.output.write_text("".join(lines))

    bm25.retrieve = retrieve
    experiment.check_tools = lambda recipe: None  # there may be no Java
    pa.train(recipe, folder)


def indexes_at_once(recipe, folder) -> tuple[int, int, int, str]:
    """The largest number and size of index files that a run has at a time, the size planned, and the plan."""
    most, make_index = [], snapshot.make_index

    def watched(*arguments) -> None:
        make_index(*arguments)
        files = list(RunDir(folder).scratch.glob("*/index"))
        most.append((len(files), sum(path.stat().st_size for path in files)))

    snapshot.make_index = watched
    pa.train(recipe, folder)
    data = prepare(recipe, World())
    planned = factory_index_bytes(recipe, len(data.documents), 32)
    return max(most)[0], max(size for _, size in most), planned, plan(recipe)


def test_indexes_of_sources_and_of_the_final_evaluation_are_no_larger_than_planned(
    small_recipe, run_processes, tmp_path
):
    live = [{"kind": "live", "top_k": 5, "index": index} for index in ("SQ8", "IVF2,Flat;nprobe=2", "flat")]
    stages = {
        name: {
            **STAGE,
            "refresh": None,
            "trainable": "query_tower",
            "terms": {"query": {"negatives": sources}},
        }
        for name, sources in (("first", live[:1]), ("second", live))
    }
    test = {"hits": 20, "measures": ["RR@10"], "indexes": ["HNSW8", "SQ8"], "rows": ["untrained", "stages"]}
    recipe = small_recipe(stages, final_evaluation=test)
    [(files, written, planned, shown)] = run_processes(
        1, indexes_at_once, recipe, tmp_path / "run", join=False
    )
    assert files >= 2 and 0 < written <= planned
    assert ", compressed indexes 0.00, negatives 0.00" in shown
    assert factory_index_bytes(small_recipe({"a": STAGE}), 30, 32) == 0


def test_rankings_and_metrics_are_no_larger_than_planned_and_not_much_smaller(
    small_recipe, run_processes, tmp_path
):
    stages = {"warm": {**STAGE, **STATIC}, "ance": STAGE}
    test = {**TEST, "query_measures": {"dev": ["RR@5"]}, "rows": ["bm25", "untrained", "stages"]}
    recipe = small_recipe(stages, bm25={"hits": 30}, final_evaluation=test, cache=str(tmp_path / "cache"))
    run_processes(1, train, recipe, tmp_path / "run", join=False)
    data, run = prepare(recipe, World()), RunDir(tmp_path / "run")
    files = [path for path in run.folder.rglob("*.trec") if path.is_file()]
    written = sum(path.stat().st_size for path in files)
    assert len(files) == 2 * 5 + 3 + 3 + 1  # two splits; reranked dev; queries of dev; training
    assert written <= ranking_bytes(recipe, data) <= 1.3 * written
    training = run.bm25_negatives("train").stat().st_size
    assert training <= bm25_training_bytes(recipe, data) <= 1.3 * training
    ranks = [np.load(path).nbytes for path in run.folder.rglob("*.positive_ranks.npy")]
    assert 0 < sum(ranks) <= metrics_bytes(recipe, data) == (1 + 2 + 1) * 15 * 4
    texts = sum(
        path.stat().st_size
        for path in (tmp_path / "cache").rglob("*")
        if path.is_file() and "bm25" not in path.parts
    )
    assert 0.5 * texts <= cache_bytes(recipe, data) <= texts
    shown = plan(recipe)
    assert "rankings 0.00, metrics 0.00\ncache: 0.00 GiB of texts and tokens, 0.00 of BM25's ranking" in shown
    assert "queries, at most 0.00 of BM25's index" in shown
    documents = data.collection.documents
    text = sum(len(one) for one in (*documents.columns["text"], *documents.ids, *documents.ids))
    assert bm25_index_bytes(recipe, documents) == 65_536 + text
    wanted = recipe.final_evaluation.model_copy(update={"rows": (), "rerank": {}})
    fewer = recipe.model_copy(update={"final_evaluation": wanted})
    assert ranking_bytes(fewer, data) < ranking_bytes(recipe, data)
