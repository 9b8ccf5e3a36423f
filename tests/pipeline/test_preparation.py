from contextlib import nullcontext

import pytest
import torch
from helpers.stages import RANDOM, changed, make_stage

from pyserini_ance.data.trec import read_qrels
from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation import metrics
from pyserini_ance.pipeline.data_checks import check_template_fields
from pyserini_ance.pipeline.experiment import Experiment, check_device
from pyserini_ance.pipeline.preparation import read_collection, stored_collection
from pyserini_ance.runs.rundir import RunDir

STAGE = make_stage(RANDOM, steps=6, batch_queries=2)
NEGATIVES, REFRESH = "stages.a.terms.query.negatives", "stages.a.refresh={every_steps: 1"
DEV = "stages.a.evaluate={every_steps: 1}"
JOINT = "train_split={splits: [train, dev]}"

CHECKS = [  # overrides, and what the error says
    (["train_split=training"], "train_split names 'training', but .* no such split .*; splits: train"),
    (["final_evaluation.split=[dev, tests]"], r"split names 'tests', .* \(did you mean 'test'\?\); splits:"),
    (
        ["stages.a.evaluate={every_steps: 2, split: [dev, valid]}"],
        "evaluate.split names 'valid', .*; splits: train, dev, test; measure no .*: stages.a.evaluate=null$",
    ),
    ([f"{NEGATIVES}=[ann]", REFRESH + ", query_chunks: 6}", JOINT], "is 6, but 'dev' has only 5 training"),
    ([f"{NEGATIVES}=[{{kind: random, num_negatives: 29}}]"], "query train-0 has only 28"),
    ([f"{NEGATIVES}=[{{kind: ann, filters: [answers]}}]", REFRESH + "}"], "of split 'train' have no answers"),
    (["final_evaluation.measures={test: [R@30]}"], "R@30 looks at 30 .*; set final_evaluation.hits=30"),
    (["data.splits.dev=null", DEV], "data.hold_out=200; or .*: stages.a.evaluate=null$"),
    (["data.relevance_threshold=2"], r"is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)"),
    (["data.splits.dl20={topics: a, qrels: b}"], ""),  # the recipe does not name it
    (["stages.a.evaluate={every_steps: 2, measure: R@200}"], ""),  # dev is ranked for itself, so deep
]


@pytest.mark.parametrize(("overrides", "message"), CHECKS)
def test_what_a_recipe_asks_for_is_checked_with_its_data(small_recipe, overrides, message):
    recipe = changed(small_recipe({"a": STAGE}), *overrides)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        assert len(read_collection(recipe).documents) == 30


@pytest.mark.parametrize(
    "override",
    [
        "final_evaluation.measures=[RR@10, ERR@10]",
        "stages.a.evaluate={split: test, measure: ERR@10, every_steps: 1}",
    ],
)
def test_grades_are_checked_with_the_measures(small_recipe, monkeypatch, override):
    monkeypatch.setattr(metrics, "GDEVAL_MAX_GRADE", 0)
    with pytest.raises(ValueError, match="ERR@10 takes grades up to 0, but split 'test' has grade 1"):
        read_collection(changed(small_recipe({"a": STAGE}), override))


def test_a_missing_ranking_is_reported_before_the_data_is_read(small_recipe, monkeypatch):
    mix = f"{NEGATIVES}=[{{kind: mix, sources: [ann, {{kind: ranking, file: no.trec}}]}}]"
    recipe = changed(small_recipe({"a": STAGE}), mix, REFRESH + "}")
    monkeypatch.setattr(type(recipe.data), "read", lambda *_: pytest.fail("it was read"))
    key = r"`stages\.<stage>\.terms\.<term>\.neg.*\.file`"
    with pytest.raises(FileNotFoundError, match=rf"no file no\.trec, nor no\.trec\.gz; set {key}"):
        stored_collection(recipe)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "final_evaluation.measures=[Success(rel=2)@5, RR@10]",
            r"split 'test' has no judgments: .* only Success@5, .* can measure that, not Success\(rel=2\)@5",
        ),
        ("train_split=test", "split 'test', on which the recipe trains .* has no judgments"),
        ("stages.a.evaluate={split: test, every_steps: 1}", "trains or evaluates"),
    ],
)
def test_questions_with_answers_alone_are_tested_on_by_the_answers(asked_recipe, override, message):
    recipe = asked_recipe({"a": STAGE}, {"hits": 10, "measures": ["Success@5"]})
    assert read_collection(recipe).split("test").queries.ids == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match=message):
        read_collection(changed(recipe, override))


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


HELD_OUT = make_stage(RANDOM, steps=2, evaluate={"every_steps": 1})


@pytest.fixture
def held_out(small_recipe, tmp_path):
    """A recipe whose data has no dev split; 4 of 15 training queries become one."""
    recipe = small_recipe({"a": HELD_OUT}, cache=str(tmp_path / "cache"))
    return changed(recipe, "data.splits.dev=null", "data.hold_out=4")


def test_a_run_records_the_split_and_resumes_with_it(held_out, tmp_path):
    run = RunDir(tmp_path / "run")
    rows = [row["RR@10"] for row in Experiment(held_out, run.folder, World()).run().table]
    recorded = read_qrels(run.qrels("dev"))
    assert len(recorded) == 4 and not set(recorded) & set(read_qrels(run.qrels("test")))
    assert run.read_recipe().data.hold_out == held_out.data.hold_out
    assert set(recorded) == set(read_collection(run.read_recipe()).split("dev").queries.ids)
    again = Experiment(run.read_recipe(), run.folder, World()).run(resume=True)
    assert [row["RR@10"] for row in again.table] == rows
    with pytest.raises(ValueError, match="differ"):
        Experiment(changed(held_out, "data.hold_out=5"), run.folder, World()).run(resume=True)


@pytest.mark.parametrize("order", [1, -1], ids=["the same file", "the same lines in another order"])
def test_the_test_split_as_dev_is_refused(small_recipe, tmp_path, order):
    recipe = small_recipe({"a": HELD_OUT})
    test = recipe.data.splits["test"]
    copies = {"topics": tmp_path / "copy.tsv", "qrels": tmp_path / "copy.qrels"}
    for key, path in copies.items():
        lines = getattr(test, key).read_text().splitlines(keepends=True)
        path.write_text("".join(lines[::order]))
    same = changed(recipe, *(f"data.splits.dev.{key}={path}" for key, path in copies.items()))
    with pytest.raises(ValueError, match="'dev' and 'test' have the same queries and judgments: the best"):
        read_collection(same)
    assert read_collection(changed(same, "stages.a.evaluate=null"))
    assert read_collection(changed(same, "final_evaluation.split=dev"))  # the recipe says so itself
