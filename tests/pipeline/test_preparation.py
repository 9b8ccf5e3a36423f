import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyserini_ance.data.collection_cache import read_into_cache
from pyserini_ance.data.strings import Strings
from pyserini_ance.pipeline.experiment import check_device
from pyserini_ance.pipeline.model_export import write_qrels
from pyserini_ance.pipeline.plan import measured_plan
from pyserini_ance.pipeline.preparation import (
    check_tools,
    find_collection,
    read_collection,
    stored_collection,
    tokenize,
)
from pyserini_ance.pyserini_bridge.export import write_topics
from pyserini_ance.pyserini_bridge.vector_files import write_index
from pyserini_ance.recipe.models import Bm25, Recipe
from pyserini_ance.refresher.dev_evaluation import as_qrels, as_run

STAGE = {
    "steps": 6,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "random"}]}},
}
BOTH = {"split": ["dev", "test"], "hits": 20, "measures": ["RR@10", "R@20"]}
ANN = {
    **STAGE,
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}},
    "refresh": {"every_steps": 3},
}


@pytest.mark.parametrize(
    ("stage", "more", "error", "message"),
    [
        (
            STAGE,
            {"train_split": "training"},
            ValueError,
            "train_split names 'training', but `data` has no such split .*; splits: train, dev, test; set",
        ),
        (
            STAGE,
            {"train_split": {"splits": ["dev", "training"]}},
            ValueError,
            "train_split names 'training', but `data` has no such split",
        ),
        (
            STAGE,
            {"final_evaluation": {"split": ["dev", "tests"]}},
            ValueError,
            r"final_evaluation.split names 'tests', .* split \(did you mean 'test'\?\); splits: train,",
        ),
        (
            {**STAGE, "evaluate": {"every_steps": 2, "split": "valid"}},
            {},
            ValueError,
            "stages.a.evaluate measures checkpoints on split 'valid', but `data` has no such split; splits: "
            "train, dev, test; cut 'valid' from the training queries: data.hold_out.queries=200 "
            "data.hold_out.split=valid; or .*: stages.a.evaluate=null$",
        ),
        (
            {**STAGE, "evaluate": {"every_steps": 2, "split": ["dev", "valid"]}},
            {},
            ValueError,
            "on split 'valid'",
        ),
        (
            {
                **STAGE,
                "terms": {"query": {"negatives": ["ann"]}},
                "refresh": {"every_steps": 1, "query_chunks": 6},
            },
            {"train_split": {"splits": ["train", "dev"]}},
            ValueError,
            "stages.a.refresh.query_chunks is 6, but 'dev' has only 5 training queries",
        ),
        (
            {**STAGE, "evaluate": {"every_steps": 2, "measure": "nDGC@10"}},
            {},
            ValueError,
            "unknown measure 'nDGC@10'",
        ),
        (
            STAGE,
            {"final_evaluation": {"measures": ["RR@x"]}},
            ValueError,
            "measure 'RR@x' is not of the form",
        ),
        (
            {**STAGE, "terms": {"query": {"negatives": [{"kind": "random", "num_negatives": 29}]}}},
            {},
            ValueError,
            "query train-0 has only 28",
        ),
        (
            {
                **STAGE,
                "terms": {"query": {"negatives": [{"kind": "ann", "filters": ["answers"]}]}},
                "refresh": {"every_steps": 1},
            },
            {},
            ValueError,
            "the queries of split 'train' have no answers",
        ),
        (
            {
                **STAGE,
                "terms": {"query": {"negatives": ["ann"]}},
                "refresh": {"every_steps": 1, "query_chunks": 16},
            },
            {},
            ValueError,
            "stages.a.refresh.query_chunks is 16, but 'train' has only 15 training queries",
        ),
    ],
)
def test_what_a_recipe_asks_for_is_checked_with_its_data(small_recipe, stage, more, error, message):
    with pytest.raises(error, match=message):
        read_collection(small_recipe({"a": stage}, **more))


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
    recipe = small_recipe(
        {"a": {**STAGE, "terms": {"query": {"negatives": negatives}}, "refresh": {"every_steps": 1}}},
        final_evaluation=test,
    )
    monkeypatch.setattr(type(recipe.data), "read", lambda *_: pytest.fail("it was read"))
    for read in (read_collection, stored_collection):
        with pytest.raises(FileNotFoundError, match=rf"no file no\.trec, nor no\.trec\.gz; set `{key}`"):
            read(recipe)


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


def test_files_of_splits_that_a_recipe_does_not_name_need_not_be_there(small_recipe):
    absent = {"topics": "absent.tsv", "qrels": "absent.txt"}

    def recipe(**more) -> Recipe:
        raw = small_recipe({"a": STAGE}, **more).model_dump(mode="json")
        return Recipe.model_validate({**raw, "data": merged(raw["data"], {"splits": {"dl20": absent}})})

    assert list(read_collection(recipe()).splits) == ["train", "test"]
    with pytest.raises(FileNotFoundError, match="data.splits.dl20.topics"):
        read_collection(recipe(final_evaluation={"split": ["test", "dl20"]}))


def test_the_documents_template_is_checked_when_the_first_is_read(small_recipe, monkeypatch, tmp_path):
    recipe = small_recipe({"a": STAGE}, cache=str(tmp_path / "cache"))
    raw = recipe.model_dump(mode="json")
    (tmp_path / "corpus.jsonl").write_text(
        recipe.data.corpus.read_text(encoding="utf-8") + "no JSON, which is never come to\n", encoding="utf-8"
    )
    changes = {
        "data": {"corpus": str(tmp_path / "corpus.jsonl")},
        "encoder": {"tokenization": {"document": {"template": "{url} {text}"}}},
    }
    wrong = Recipe.model_validate(
        {**raw, **{key: merged(raw[key], change) for key, change in changes.items()}}
    )
    with pytest.raises(
        ValueError,
        match="template is '{url} {text}', but a document of this collection has no field url; "
        "fields: title, text",
    ):
        stored_collection(wrong)
    assert list((tmp_path / "cache").rglob("*.*")) == []


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


@pytest.mark.parametrize(
    ("test", "more", "message"),
    [
        (
            {"measures": ["Success@5", "RR@10"]},
            {},
            r"split 'test' has no judgments: .* only Success@5, .* can measure that, not RR@10",
        ),
        ({"measures": ["Success(rel=2)@5"]}, {}, r"can measure that, not Success\(rel=2\)@5"),
        (
            {"measures": ["Success@5"], "query_measures": ["RR@10"]},
            {},
            "query_measures need judgments, but split 'test' has none",
        ),
        (
            {"measures": ["Success@5"]},
            {"train_split": "test"},
            "split 'test', on which the recipe trains .* has no judgments",
        ),
        (
            {"measures": ["Success@5"]},
            {"stages": {"a": {**STAGE, "evaluate": {"split": "test", "every_steps": 1}}}},
            "trains or evaluates",
        ),
    ],
)
def test_questions_with_answers_alone_are_tested_on_by_the_answers(asked_recipe, test, more, message):
    recipe = asked_recipe({"a": STAGE}, {"hits": 10, **test})
    assert read_collection(asked_recipe({"a": STAGE}, {"hits": 10, "measures": ["Success@5"]})).split(
        "test"
    ).queries.ids == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match=message):
        read_collection(Recipe.model_validate({**recipe.model_dump(mode="json"), **more}))


def test_qrels_are_written_with_string_ids(small_recipe, tmp_path):
    write_qrels(read_collection(small_recipe({"a": STAGE})), "train", tmp_path / "qrels")
    assert (tmp_path / "qrels").read_text().splitlines()[:3] == [
        "train-0 0 red-apple 1",
        "train-0 0 red-tiger 1",
        "train-1 0 red-stone 1",
    ]


@pytest.fixture
def mapped(small_recipe, tmp_path):
    """A recipe, its collection as it is read, and the same one mapped."""
    recipe = small_recipe({"a": STAGE}, cache=str(tmp_path / "cache"), bm25=Bm25(), final_evaluation=BOTH)
    read = read_collection(recipe)
    return recipe, read, read_into_cache(recipe.cache, lambda path: read)


def test_a_mapped_collection_is_the_one_that_was_read(mapped):
    recipe, read, found = mapped
    assert isinstance(found.documents.ids, Strings) and found.digest == read.digest
    assert (
        find_collection(recipe, read.digest).digest == read.digest
        and find_collection(recipe, "0" * 64) is None
    )


def test_what_the_digest_does_not_cover_is_that_of_this_reading(mapped):
    recipe, read, _ = mapped
    other = replace(
        read, splits=dict(reversed(read.splits.items())), skipped={"dev queries without positives": 4}
    )
    again = read_into_cache(recipe.cache, lambda path: other)
    assert (list(again.splits), again.skipped) == (["test", "dev", "train"], other.skipped)
    assert find_collection(recipe, read.digest).skipped == {}


def test_a_mapped_collection_is_tokenised_to_the_same_ids(mapped, tmp_path):
    recipe, read, found = mapped
    stores = [
        tokenize(recipe.model_copy(update={"cache": tmp_path / name}), c)
        for name, c in {"one": read, "two": found}.items()
    ]
    pairs = [(data.documents, *data.queries.values()) for data in stores]
    for one, two in zip(*pairs, strict=True):
        assert (
            np.array_equal(one.ids, two.ids)
            and np.array_equal(one.offsets, two.offsets)
            and one.specials == two.specials
        )


def test_a_mapped_collection_writes_the_same_files(mapped, tmp_path):
    _, read, found = mapped
    for name, collection in {"read": read, "mapped": found}.items():
        (tmp_path / name).mkdir()
        queries = collection.split("dev").queries
        write_qrels(collection, "train", tmp_path / name / "qrels")
        write_topics(list(zip(queries.ids, queries.columns["text"], strict=True)), tmp_path / name, "dev")
        write_index(np.eye(30, dtype=np.float32), collection.documents.ids, tmp_path / name / "index", {})
    written = [
        {str(p.relative_to(tmp_path / n)): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()}
        for n in ("read", "mapped")
    ]
    assert written[0] == written[1] and len(written[0]) == 5


def test_a_mapped_collection_is_evaluated_alike(mapped):
    _, read, found = mapped
    rows, documents = np.array([4, 0]), np.array([[29, 3], [0, 7]], np.int32)
    scores = np.array([[2.0, 1.0], [4.0, 3.0]])
    runs = [as_run(c, c.split("train"), rows, documents, scores) for c in (read, found)]
    qrels = [as_qrels(c, c.split("train"), rows) for c in (read, found)]
    assert runs[0] == runs[1] and qrels[0] == qrels[1] == {
        "train-4": {"green-stone": 1},
        "train-0": {"red-apple": 1, "red-tiger": 1},
    }


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"final_evaluation": {"measures": ["R@1000"]}},
            "measure R@1000 looks at 1000 documents, but final_evaluation.hits is 20; set "
            "final_evaluation.hits=1000",
        ),
        (
            {
                "final_evaluation": {
                    "split": ["dev", "test"],
                    "measures": {"dev": ["RR@10"], "test": ["R@30"]},
                }
            },
            "measure R@30 looks at 30 documents, .* is 20",
        ),
        (
            {"final_evaluation": {"rerank": {"test": {"hits": 5}}}, "bm25": {}},
            "measure nDCG@10 looks at 10 documents, but final_evaluation.rerank.test.hits is 5",
        ),
        (
            {"data": {"relevance_threshold": 2}},
            r"relevance_threshold is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)",
        ),
        (
            {"encoder": {"tokenization": {"document": {"template": "{txt}"}}}},
            r"template is '{txt}', but a document .* has no field txt \(did you mean 'text'\?\); fields: ",
        ),
    ],
)
def test_what_would_give_a_wrong_number_is_refused(small_recipe, more, message):
    recipe = small_recipe({"a": STAGE})
    raw = recipe.model_dump(mode="json")
    for key, values in more.items():
        raw[key] = merged(raw[key], values)
    changed = Recipe.model_validate(raw)
    with pytest.raises(ValueError, match=message):
        tokenize(changed, read_collection(changed))


def test_a_dev_measure_may_look_deeper_than_the_rankings_of_the_test(small_recipe):
    """Dev is ranked for itself, as deep as its measure looks; which grades count is asked of it too."""
    recipe = small_recipe(
        {"a": {**STAGE, "evaluate": {"every_steps": 2, "measure": "R@200"}}},
        final_evaluation={"hits": 20, "measures": ["RR@10"]},
    )
    assert len(read_collection(recipe).documents) == 30
    grades = {"data": {"relevance_threshold": 2}, "final_evaluation": {"measures": ["RR(rel=2)@10"]}}
    graded = Recipe.model_validate(merged(recipe.model_dump(mode="json"), grades))
    with pytest.raises(
        ValueError, match=r"but measure R@200 counts grade 1 as relevant; write R\(rel=2\)@200"
    ):
        read_collection(graded)


def merged(old, new: dict) -> dict:
    old = old if isinstance(old, dict) else {}
    return {
        **old,
        **{
            key: merged(old.get(key), value) if isinstance(value, dict) else value
            for key, value in new.items()
        },
    }
