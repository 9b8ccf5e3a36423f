from contextlib import nullcontext

import pytest
import torch
from helpers.stages import RANDOM, make_stage

from pyserini_ance.evaluation import metrics
from pyserini_ance.pipeline.data_checks import check_template_fields
from pyserini_ance.pipeline.experiment import check_device
from pyserini_ance.pipeline.preparation import read_collection, stored_collection
from pyserini_ance.recipe.models import Recipe

STAGE = make_stage(RANDOM, steps=6, batch_queries=2)


def merged(old, new: dict) -> dict:
    old = old if isinstance(old, dict) else {}
    nested = {key: merged(old.get(key), value) for key, value in new.items() if isinstance(value, dict)}
    return {**old, **new, **nested}


def drawing(*negatives) -> dict:
    return {"terms": {"query": {"negatives": negatives}}}


# Changes of the stage, changes of the recipe, and what the error says.
CHECKS = [
    ({}, {"train_split": "training"}, "train_split names 'training', but .* no such split .*; splits: train"),
    (
        {},
        {"final_evaluation": {"split": ["dev", "tests"]}},
        r"final_evaluation.split names 'tests', .* split \(did you mean 'test'\?\); splits: train,",
    ),
    (
        {"evaluate": {"every_steps": 2, "split": ["dev", "valid"]}},
        {},
        "evaluate.split names 'valid', but `data` has no such split; splits: train, dev, "
        "test; measure no checkpoints, .*: stages.a.evaluate=null$",
    ),
    (
        {**drawing("ann"), "refresh": {"every_steps": 1, "query_chunks": 6}},
        {"train_split": {"splits": ["train", "dev"]}},
        "stages.a.refresh.query_chunks is 6, but 'dev' has only 5 training queries",
    ),
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
        {"data": {"relevance_threshold": 2}},
        r"relevance_threshold is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)",
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
    "more",
    [
        {"final_evaluation": {"measures": ["RR@10", "ERR@10"]}},
        {"stages": {"a": {"evaluate": {"split": "test", "measure": "ERR@10", "every_steps": 1}}}},
    ],
)
def test_grades_are_checked_with_the_measures(small_recipe, monkeypatch, more):
    monkeypatch.setattr(metrics, "GDEVAL_MAX_GRADE", 0)
    recipe = Recipe.model_validate(merged(small_recipe({"a": STAGE}).model_dump(mode="json"), more))
    with pytest.raises(ValueError, match="ERR@10 takes grades up to 0, but split 'test' has grade 1"):
        read_collection(recipe)


def test_a_missing_ranking_is_reported_before_the_data_is_read(small_recipe, monkeypatch):
    mix = {"kind": "mix", "sources": ["ann", {"kind": "ranking", "file": "no.trec"}]}
    recipe = small_recipe({"a": {**STAGE, **drawing(mix), "refresh": {"every_steps": 1}}})
    monkeypatch.setattr(type(recipe.data), "read", lambda *_: pytest.fail("it was read"))
    key = r"`stages\.<stage>\.terms\.<term>\.neg.*\.file`"
    with pytest.raises(FileNotFoundError, match=rf"no file no\.trec, nor no\.trec\.gz; set {key}"):
        stored_collection(recipe)


@pytest.mark.parametrize(
    ("test", "more", "message"),
    [
        (
            {"measures": ["Success(rel=2)@5", "RR@10"]},
            {},
            r"split 'test' has no judgments: .* only Success@5, .* can measure that, not Success\(rel=2\)@5",
        ),
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


def test_a_ranking_to_put_in_another_order_is_checked_before_training(small_recipe, tmp_path):
    run = tmp_path / "run.trec"
    recipe = small_recipe({"a": STAGE}, final_evaluation={"rerank": {"test": str(run)}})
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(small_recipe):
    with pytest.raises(ValueError, match="device is cuda, but torch finds no GPU"):
        check_device(small_recipe({"a": STAGE}, device="cuda"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{title} {text}", ""),  # a title may be missing beside another field
        ("passage: {text}", ""),
        ("{title}", "key is '{title}', but a document .* has no field title; fields: text, url"),
        ("{txt} {text}", r"has no field txt \(did you mean 'text'\?\); fields: text, url"),
        ("text", "key is 'text', which names no field; write fields in braces, such as '{text}'; fields: "),
    ],
)
def test_a_template_that_would_leave_texts_blank_is_refused(template, message):
    expected = pytest.raises(ValueError, match=message) if message else nullcontext()
    with expected:
        check_template_fields("key", template, "document", iter(["text", "url"]))
