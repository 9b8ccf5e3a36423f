import importlib.util

import pytest
import torch
from helpers.stages import RANDOM, make_stage

from pyserini_ance.pipeline.experiment import check_device
from pyserini_ance.pipeline.model_export import write_qrels
from pyserini_ance.pipeline.plan import measured_plan
from pyserini_ance.pipeline.preparation import check_tools, read_collection, stored_collection, tokenize
from pyserini_ance.recipe.models import Recipe

STAGE = make_stage(RANDOM, steps=6, batch_queries=2)
BOTH = {"split": ["dev", "test"], "hits": 20, "measures": ["RR@10", "R@20"]}
ANN = make_stage({"kind": "ann", "top_k": 5}, steps=6, batch_queries=2, refresh={"every_steps": 3})


def merged(old, new: dict) -> dict:
    old = old if isinstance(old, dict) else {}
    nested = {key: merged(old.get(key), value) for key, value in new.items() if isinstance(value, dict)}
    return {**old, **new, **nested}


def drawing(*negatives) -> dict:
    return {"terms": {"query": {"negatives": negatives}}}


# Changes of the stage, changes of the recipe, and what the error says.
CHECKS = [
    ({}, {"train_split": "training"}, "train_split names 'training', but .* no such split .*; splits: train"),
    ({}, {"train_split": {"splits": ["dev", "training"]}}, "train_split names 'training'"),
    (
        {},
        {"final_evaluation": {"split": ["dev", "tests"]}},
        r"final_evaluation.split names 'tests', .* split \(did you mean 'test'\?\); splits: train,",
    ),
    (
        {"evaluate": {"every_steps": 2, "split": ["dev", "valid"]}},
        {},
        "stages measure checkpoints on split 'valid', but `data` has no such split; splits: train, dev, "
        "test; cut 'valid' from the training queries: data.hold_out.queries=200 data.hold_out.split=valid; "
        "or .*: stages.a.evaluate=null$",
    ),
    (
        {**drawing("ann"), "refresh": {"every_steps": 1, "query_chunks": 6}},
        {"train_split": {"splits": ["train", "dev"]}},
        "stages.a.refresh.query_chunks is 6, but 'dev' has only 5 training queries",
    ),
    ({"evaluate": {"every_steps": 2, "measure": "nDGC@10"}}, {}, "unknown measure 'nDGC@10'"),
    ({}, {"final_evaluation": {"measures": ["RR@x"]}}, "measure 'RR@x' is not of the form"),
    (drawing({"kind": "random", "num_negatives": 29}), {}, "query train-0 has only 28"),
    (
        {**drawing({"kind": "ann", "filters": ["answers"]}), "refresh": {"every_steps": 1}},
        {},
        "the queries of split 'train' have no answers",
    ),
    (
        {},
        {"final_evaluation": {"measures": {"test": ["R@30"]}}},
        "measure R@30 looks at 30 documents, but final_evaluation.hits is 20; set final_evaluation.hits=30",
    ),
    (
        {},
        {"final_evaluation": {"rerank": {"test": {"hits": 5}}}, "bm25": {}},
        "measure nDCG@10 looks at 10 documents, but final_evaluation.rerank.test.hits is 5",
    ),
    (
        {},
        {"data": {"relevance_threshold": 2}},
        r"relevance_threshold is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)",
    ),
    (
        {"evaluate": {"every_steps": 2, "measure": "R@200"}},
        {"data": {"relevance_threshold": 2}, "final_evaluation": {"measures": ["RR(rel=2)@10"]}},
        r"but measure R@200 counts grade 1 as relevant; write R\(rel=2\)@200",
    ),
    (
        {},
        {"encoder": {"tokenization": {"document": {"template": "{txt}"}}}},
        r"template is '{txt}', but a document .* has no field txt \(did you mean 'text'\?\); fields: ",
    ),
    ({}, {"data": {"splits": {"dl20": {"topics": "a", "qrels": "b"}}}}, ""),  # the recipe does not name it
    ({"evaluate": {"every_steps": 2, "measure": "R@200"}}, {}, ""),  # dev is ranked for itself, so deep
]


@pytest.mark.parametrize(("stage", "more", "message"), CHECKS)
def test_what_a_recipe_asks_for_is_checked_with_its_data(small_recipe, stage, more, message):
    raw = small_recipe({"a": STAGE}).model_dump(mode="json")

    def read() -> int:
        changed = merged(raw, {**more, "stages": {"a": stage}})
        return len(read_collection(Recipe.model_validate(changed)).documents)

    if not message:
        assert read() == 30
        return
    with pytest.raises(ValueError, match=message):
        read()


@pytest.mark.parametrize(
    ("negatives", "test", "key"),
    [
        (
            [{"kind": "mix", "sources": ["ann", {"kind": "ranking", "file": "no.trec"}]}],
            {},
            r"stages\.<stage>\.terms\.<term>\.neg.*\.file",
        ),
        (["ann"], {"rerank": {"test": {"file": "no.trec"}}}, r"final_evaluation\.rerank\.test\.file"),
    ],
    ids=["negatives", "to rerank"],
)
def test_a_missing_ranking_is_reported_before_the_data_is_read(
    small_recipe, monkeypatch, negatives, test, key
):
    stage = {**STAGE, **drawing(*negatives), "refresh": {"every_steps": 1}}
    recipe = small_recipe({"a": stage}, final_evaluation=test)
    monkeypatch.setattr(type(recipe.data), "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(FileNotFoundError, match=rf"no file no\.trec, nor no\.trec\.gz; set `{key}`"):
        stored_collection(recipe)


@pytest.mark.parametrize(
    ("test", "more", "message"),
    [
        (
            {"measures": ["Success(rel=2)@5", "RR@10"]},
            {},
            r"split 'test' has no judgments: .* only Success@5, .* can measure that, not Success\(rel=2\)@5",
        ),
        ({"query_measures": ["RR@10"]}, {}, "query_measures need judgments, but split 'test' has none"),
        ({}, {"train_split": "test"}, "split 'test', on which the recipe trains .* has no judgments"),
        ({}, {"stages": {"a": {"evaluate": {"split": "test", "every_steps": 1}}}}, "trains or evaluates"),
    ],
)
def test_questions_with_answers_alone_are_tested_on_by_the_answers(asked_recipe, test, more, message):
    recipe = asked_recipe({"a": STAGE}, {"hits": 10, "measures": ["Success@5"]})
    assert read_collection(recipe).split("test").queries.ids == ["0", "1", "2", "3"]
    changes = merged({"final_evaluation": test}, more)
    with pytest.raises(ValueError, match=message):
        read_collection(Recipe.model_validate(merged(recipe.model_dump(mode="json"), changes)))


def test_the_documents_template_is_checked_when_the_first_is_read(small_recipe, tmp_path):
    recipe, corpus = small_recipe({"a": STAGE}, cache=str(tmp_path / "cache")), tmp_path / "corpus.jsonl"
    corpus.write_text(recipe.data.corpus.read_text() + "no JSON, which is never come to\n")
    changes = {
        "data": {"corpus": str(corpus)},
        "encoder": {"tokenization": {"document": {"template": "{url} {text}"}}},
    }
    with pytest.raises(ValueError, match="no field url; fields: title, text"):
        stored_collection(Recipe.model_validate(merged(recipe.model_dump(mode="json"), changes)))
    assert list((tmp_path / "cache").rglob("*.*")) == []


def test_texts_are_tokenized_once_for_all_runs(small_recipe, tmp_path):
    recipe = small_recipe({"a": STAGE}, cache=str(tmp_path), final_evaluation=BOTH)
    collection = read_collection(recipe)
    first = tokenize(recipe, collection)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = tokenize(recipe, collection)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    assert (first.documents.ids == again.documents.ids).all() and set(again.queries) == {
        "train",
        "dev",
        "test",
    }
    assert (len(again.documents), len(again.queries["train"]), again.split.name) == (30, 15, "train")


def test_the_joined_split_can_be_measured_too(small_recipe, tmp_path):
    test = {
        "split": ["test", "train+dev"],
        "measures": {"test": ["RR@10"], "train+dev": ["R@20"]},
        "hits": 20,
    }
    stage = {**STAGE, "evaluate": {"every_steps": 2, "split": "train+dev"}}
    collection = stored_collection(
        small_recipe(
            {"a": stage}, train_split={"splits": ["train", "dev"]}, final_evaluation=test, cache=str(tmp_path)
        )
    )
    assert {name: len(split.queries) for name, split in collection.splits.items()} == {
        "train": 15,
        "dev": 5,
        "test": 5,
        "train+dev": 20,
    }


def test_a_ranking_to_put_in_another_order_is_checked_before_training(small_recipe, tmp_path):
    run = tmp_path / "run.trec"
    recipe = small_recipe({"a": STAGE}, final_evaluation={"rerank": {"test": {"file": str(run)}}})
    wrong = {
        "test-0 Q0 no-such 1 1.0 t\n": "run.trec, line 1: document 'no-such' for query 'test-0', which",
        "dev-0 Q0 red-apple 1 1.0 t\n": "none of the 5 ",
    }
    for text, message in wrong.items():
        run.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_collection(recipe)
    run.write_text("test-0 Q0 red-apple 1 1.0 t\n")
    assert len(read_collection(recipe).documents) == 30


def test_qrels_are_written_with_string_ids(small_recipe, tmp_path):
    write_qrels(read_collection(small_recipe({"a": STAGE})), "train", tmp_path / "qrels")
    assert (tmp_path / "qrels").read_text().splitlines()[:3] == [
        "train-0 0 red-apple 1",
        "train-0 0 red-tiger 1",
        "train-1 0 red-stone 1",
    ]


def test_a_measured_plan_has_counts_and_times(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recipe = small_recipe({"a": STAGE, "b": {**ANN, "evaluate": {"every_steps": 4}}})
    text = measured_plan(recipe, steps=2)
    assert "documents: 30 of " in text and "queries: train 15, dev 5, test 5" in text
    planned = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| b ")
    ]
    assert planned[0] == [
        "b",
        "previous",
        "6",
        "12",
        "0.8",
        "sync",
        "2",
        "3",
        "120",
        "adamw 0.001, linear to 0 at 6",
    ]
    assert (
        "measured over 2 steps and the first mining of each stage" in text
        and "expected total: about " in text
    )
    assert list(tmp_path.iterdir()) == []


def test_faiss_is_needed_where_pyserini_is_or_the_recipe_searches_with_it(small_recipe, monkeypatch):
    absent, find_spec = {"faiss"}, importlib.util.find_spec
    found = lambda name, package=None: None if name in absent else find_spec(name, package)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", found)
    recipe = small_recipe({"a": STAGE})
    with pytest.raises(RuntimeError, match="faiss is not installed"):
        check_tools(recipe)
    absent.add("pyserini")
    check_tools(recipe)
    encoding = recipe.encoding.model_copy(update={"search": "faiss"})
    with pytest.raises(RuntimeError, match="faiss is not installed"):
        check_tools(recipe.model_copy(update={"encoding": encoding}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(small_recipe):
    with pytest.raises(ValueError, match="device is cuda, but torch finds no GPU"):
        check_device(small_recipe({"a": STAGE}, device="cuda"))
