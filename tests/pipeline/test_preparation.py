import sys
from contextlib import nullcontext

import pytest
from helpers.asked_set import make_asked_recipe
from helpers.stages import RANDOM, changed, make_stage

from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.data.trec import read_qrels
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.tokenization import DocumentTokenization
from pyserini_ance.evaluation import metrics
from pyserini_ance.pipeline.data_checks import check_template, data_warnings
from pyserini_ance.pipeline.experiment import Experiment
from pyserini_ance.pipeline.preparation import check_tools, read_collection, stored_collection
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.rundir import RunDir

STAGE = make_stage(RANDOM, steps=6, batch_queries=2)
NEGATIVES, REFRESH = "stages.a.terms.query.negatives", "stages.a.refresh={every_steps: 1"
DEV = "stages.a.evaluate={every_steps: 1}"
JOINT = "train_split=[train, dev]"

CHECKS = [  # overrides, and what the error says
    (["train_split=training"], "train_split names 'training', but .* no such split .*; splits: train"),
    (["final_evaluation.split=[dev, tests]"], r"split names 'tests', .* \(did you mean 'test'\?\); splits:"),
    (["stages.a.evaluate={every_steps: 2, split: [dev, x]}"], "evaluate.split names 'x'.*evaluate=null$"),
    ([f"{NEGATIVES}=[ann]", REFRESH + ", query_chunks: 6}", JOINT], "is 6, but 'dev' has only 5 training"),
    ([f"{NEGATIVES}=[{{kind: random, num_negatives: 29}}]"], "query train-0 has only 28"),
    ([f"{NEGATIVES}=[{{kind: ann, filters: [answers]}}]", REFRESH + "}"], "of split 'train' have no answers"),
    (["data.splits.dev=null", DEV], "data.hold_out=200; or .*: stages.a.evaluate=null$"),
    (["data.relevance_threshold=2"], r"is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)"),
    (["data.splits.dl20={topics: a, qrels: b}"], ""),  # the recipe does not name it
    (["stages.a.evaluate={every_steps: 2, measure: R@200}"], ""),  # dev is ranked for itself, so deep
]
HELD_OUT = make_stage(RANDOM, steps=2, evaluate={"every_steps": 1})
TRAIN = {"t1": "Who was it?", "7": "Where", "t2": "copied", "t3": "copied"}
ONE_QUERY = "stages.rand.batch_queries=1"
RECIPE = ["final_evaluation.split=[test]", "stage_defaults.evaluate=null"]
MEASURE = r"split 'test' has no judgments, but has the measure Success\(rel=2\)@5; .* by Success@5, "
UNJUDGED = {"final_evaluation.measures=[Success(rel=2)@5, RR@10]": MEASURE}
UNJUDGED["train_split=test"] = "split 'test' has no judgments, but is trained or evaluated on"
UNJUDGED["stages.a.evaluate={split: test, every_steps: 1}"] = "but is trained or evaluated on"
TEMPLATES = {"{title} {text}": "", "passage: {text}": ""}  # a title may be missing beside another field
TEMPLATES["{title}"] = "key is '{title}', but a .* has no field title; fields: text, url"
TEMPLATES["{txt} {text}"] = r"has no field txt \(did you mean 'text'\?\); fields: text, url"
# Test queries, and how many copies of others there are: by text, by id, none in files that count questions.
COPIES = [(TRAIN, 4), ({"a": "who  WAS it?", "b": "when"}, 1), ({"t1": "corrected", "b": "when"}, 1)]
COPIES += [({"7": "another seventh question"}, 0), ({"a": "copied", "b": "COPIED"}, 2)]
COPIED = [(RECIPE, "training"), (["train_split=own", "stage_defaults.evaluate.split=train"], "dev")]
COPIED += [(["final_evaluation.split=[train]", "stage_defaults.evaluate.split=test"], "training")]
ERR_WHILE_TRAINING = "stages.a.evaluate={split: test, measure: ERR@10, every_steps: 1}"
DEVS = [("{}", "dev.tsv", 1), ("{}", "dev.tsv.gz", 1), ("{}", "else.tsv", 0), ("{dev: null}", "dev.tsv", 0)]


@pytest.mark.parametrize(("overrides", "message"), CHECKS)
def test_what_a_recipe_asks_for_is_checked_with_its_data(small_recipe, overrides, message):
    recipe = changed(small_recipe({"a": STAGE}), *overrides)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        assert len(read_collection(recipe).documents) == 30


@pytest.mark.parametrize("override", ["final_evaluation.measures=[ERR@10]", ERR_WHILE_TRAINING])
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


@pytest.mark.parametrize("override, message", UNJUDGED.items())
def test_questions_with_answers_alone_are_tested_on_by_the_answers(small_recipe, tmp_path, override, message):
    recipe = make_asked_recipe(small_recipe, tmp_path, {"a": STAGE}, {"measures": ["Success@5"]})
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


@pytest.mark.parametrize("template, message", TEMPLATES.items())
def test_a_template_that_would_leave_texts_blank_is_refused(template, message):
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        check_template("key", DocumentTokenization(template=template), "document", iter(["text", "url"]))


@pytest.mark.long
def test_a_run_records_the_split_and_resumes_with_it(small_recipe, tmp_path):
    """The data has no dev split; 4 of 15 training queries become one."""
    recipe = small_recipe({"a": HELD_OUT}, cache=str(tmp_path / "cache"))
    held_out = changed(recipe, "data.splits.dev=null", "data.hold_out=4")
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


@pytest.mark.parametrize("queries, count", COPIES)
@pytest.mark.parametrize("overrides, what", COPIED)
def test_test_and_dev_queries_that_are_training_or_dev_queries_are_counted(queries, count, overrides, what):
    splits = {"own": {"o": "other"}, "train": TRAIN, "test": queries}
    judged = {name: {id: {"d1": 1} for id in of_split} for name, of_split in splits.items()}
    collection = make_collection({"d1": "one", "d2": "two"}, splits, judged)
    lines = data_warnings(load("demo/rand", ONE_QUERY, *overrides), collection)
    starts = [f"{count} of {len(queries)} queries of split 'test' are {what} queries too"] * bool(count)
    if "final_evaluation.split=[train]" in overrides:  # under one name
        starts.insert(0, "4 of 4 queries of split 'train' are training queries too")
    assert [line.partition(" (")[0] for line in lines] == starts


@pytest.mark.parametrize(
    ("queries", "documents", "ignored", "count"),
    [
        ({"d1": "one", "q": "two"}, {"d1": "one", "d2": "two"}, False, 1),
        ({"d1": "ONE  text", "d2": "two"}, {"d1": {"title": "one", "text": "text"}, "d2": "two"}, False, 2),
        ({"d1": "one", "d2": "two"}, {"d1": {"title": "one", "text": "more"}, "d2": "else"}, False, 1),
        ({"1": "one", "2": "two"}, {"1": "other", "2": "another"}, False, 0),  # numbers
        ({"d1": "one", "q": "two"}, {"d1": "one", "d2": "two"}, True, 0),
    ],
)
def test_queries_that_are_documents_are_counted(queries, documents, ignored, count):
    judged, training = {id: dict.fromkeys(documents, 1) for id in queries}, {"t": "training"}
    splits = {"train": training, "test": queries}
    grades = {"train": {"t": dict.fromkeys(documents, 1)}, "test": judged}
    collection = make_collection(documents, splits, grades, ignore_identical_ids=ignored)
    lines = data_warnings(load("demo/rand", ONE_QUERY, *RECIPE), collection)
    assert [line.partition(" queries are documents")[0] for line in lines] == [str(count)] * bool(count)


@pytest.mark.parametrize("settings, file, is_said", DEVS)
def test_a_dev_split_of_the_data_that_hold_out_replaces_is_named(tmp_path, settings, file, is_said):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / file).touch()
    data = f"data={{kind: beir, folder: {tmp_path}, hold_out: 5, splits: {{train: t, dev: qrels/dev.tsv}}}}"
    recipe = load("demo/rand", ONE_QUERY, data, f"data.splits={settings}")
    ids = {"train": "q", "dev": "r", "test": "s"}
    qrels = {name: {id: {"d": 1}} for name, id in ids.items()}
    collection = make_collection({"d": "x"}, {name: {id: f"text of {id}"} for name, id in ids.items()}, qrels)
    lines = data_warnings(recipe, collection)
    assert len(lines) == is_said and all("data.hold_out makes split 'dev'" in line for line in lines)


EIGHT_BITS = "optimizer={kind: adamw_8bit, learning_rate: 1}"
PACKAGES = [("lora={r: 2}", "peft", "lora"), (EIGHT_BITS, "torchao", "optimizer.kind")]


@pytest.mark.parametrize("settings, package, key", PACKAGES)
def test_a_package_that_a_stage_needs_is_named(small_recipe, monkeypatch, settings, package, key):
    recipe = changed(small_recipe({"a": STAGE}), f"stages.a.{settings}")
    monkeypatch.setitem(sys.modules, package, None)
    cure = rf"stages.a.{key} needs {package}; install it: pip install 'pyserini_ance\[{package}\]'"
    with pytest.raises(RuntimeError, match=cure):
        check_tools(recipe)
