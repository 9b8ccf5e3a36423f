"""A collection whose queries are documents: every ranking leaves out the document with the query's id."""

import json

import pytest
from helpers.stages import make_stage

from pyserini_ance.data.trec import read_run
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pipeline.experiment import train
from pyserini_ance.reports.ranking_inputs import open_ranking

DOCUMENTS, TRAINED = 12, 8


@pytest.fixture(scope="module")
def run(small_recipe, tmp_path_factory):
    """Query n is document n; relevant to it is the next one. All rankings are of all documents."""
    folder = tmp_path_factory.mktemp("identical")
    (folder / "qrels").mkdir()
    texts = {str(n): f"text of {n * 7919}" for n in range(DOCUMENTS)}
    for name in ("corpus", "queries"):
        lines = (json.dumps({"_id": id, "text": text}) for id, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    for name, numbers in {"train": range(TRAINED), "test": range(TRAINED, DOCUMENTS)}.items():
        qrels = "".join(f"{n}\t{(n + 1) % DOCUMENTS}\t1\n" for n in numbers)
        (folder / f"qrels/{name}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    every = [(q, d) for q in range(DOCUMENTS) for d in range(DOCUMENTS)]
    (folder / "all.trec").write_text("".join(f"{q} Q0 {d} 1 {d} t\n" for q, d in every))
    ranking = {"kind": "ranking", "file": str(folder / "all.trec")}
    dev = {"every_steps": 1, "split": "test", "keep_best": False}
    filled = {"top_k": 3}
    sources = [{"kind": kind, **filled} for kind in ("ann", "lookahead")] + [{**ranking, **filled}]
    stages = {"mined": make_stage(*sources, steps=1, evaluate=dev, refresh={"every_steps": 1})}
    stages["live"] = make_stage({"kind": "live", "top_k": 4}, steps=1, trainable="query_tower")
    stages["mined"]["terms"]["document"] = {"anchor": "document", "negatives": sources[:1]}
    splits = {name: f"qrels/{name}.tsv" for name in ("train", "test")}
    measured = {"measures": ["RR@10"], "query_measures": ["RR@10"], "indexes": ["Flat"]}
    data = {"kind": "beir", "folder": str(folder), "splits": splits, "ignore_identical_ids": True}
    reranked = {**measured, "rerank": {"test": str(folder / "all.trec")}}
    train(small_recipe(stages, data=data, final_evaluation=reranked), folder / "run")
    return folder / "run"


def test_no_ranking_has_the_query_itself(run):
    rankings = sorted((run / "runs").glob("*.trec"))
    assert len(rankings) >= 4 * 3
    for path in rankings:
        found = read_run(path)
        wanted = DOCUMENTS - 1
        if path.name.endswith("queries.trec"):  # four queries, and documents 9, 10, 11 are some of them
            assert {id: len(hits) for id, hits in found.items()} == {"9": 3, "10": 3, "11": 3, "0": 4}
        else:
            assert {len(hits) for hits in found.values()} == {wanted} and len(found) == DOCUMENTS - TRAINED
        assert not any(query in hits for query, hits in found.items())
    command = json.loads((run / "measures.json").read_text())["export"]["command"]
    assert "--hits 101 --remove-query" in command and "topics.test.json" in command


def test_nor_has_any_table_of_negatives(run):
    tables = [NegativeTable.load(path.parent) for path in (run / "negatives").rglob("table.json")]
    assert {table.source for table in tables} == {"ann", "lookahead", "ranking"}
    for table in tables:
        assert (table.counts == 3).all() and not (table.candidates == table.anchors[:, None]).any()


def test_a_given_ranking_is_read_without_it(run):
    ranked = open_ranking(str(run), run.parent / "all.trec")
    assert {len(hits) for hits in ranked.run.values()} == {DOCUMENTS - 1}
    assert ranked.identity["ignore_identical_ids"] == "true"
