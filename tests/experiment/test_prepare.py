import pytest
import torch

from pyserini_ance.experiment.experiment import accelerator_of
from pyserini_ance.experiment.plan import plan
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.experiment.results import write_qrels
from pyserini_ance.recipe.models import Recipe

STAGE = {"steps": 6, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
ANN = {**STAGE, "terms": {"query": {"negatives": [{"kind": "ann", "depth": 5}]}}, "refresh": {"every_steps": 3}}


@pytest.mark.parametrize(
    ("stage", "more", "error", "message"),
    [
        (STAGE, {"train_split": "training"}, ValueError, "no split 'training'; splits: train, dev, test"),
        ({**STAGE, "evaluate": {"every_steps": 2, "split": "valid"}}, {}, ValueError, "no split 'valid'"),
        ({**STAGE, "evaluate": {"every_steps": 2, "measure": "nDGC@10"}}, {}, ValueError, "unknown measure 'nDGC@10'"),
        (STAGE, {"test": {"measures": ["RR@x"]}}, ValueError, "measure 'RR@x' is not of the form"),
        ({**STAGE, "terms": {"query": {"negatives": [{"kind": "random", "per_query": 29}]}}}, {}, ValueError, "query train-0 has only 28"),
        ({**STAGE, "terms": {"query": {"negatives": [{"kind": "run", "file": "no.trec"}]}}}, {}, FileNotFoundError, r"no file no\.trec"),
    ],
)
def test_what_a_recipe_asks_for_is_checked_with_its_data(small_recipe, stage, more, error, message):
    with pytest.raises(error, match=message):
        read_collection(small_recipe({"a": stage}, **more))


def test_texts_are_tokenised_once_for_all_runs(small_recipe, tmp_path):
    recipe = small_recipe({"a": STAGE}, cache=str(tmp_path))
    collection = read_collection(recipe)
    first = tokenise(recipe, collection)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = tokenise(recipe, collection)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    assert (first.documents.ids == again.documents.ids).all() and set(again.queries) == {"train", "dev", "test"}
    assert (len(again.documents), len(again.queries["train"]), again.split.name) == (30, 15, "train")


def test_qrels_are_written_with_string_ids(small_recipe, tmp_path):
    write_qrels(read_collection(small_recipe({"a": STAGE})), "train", tmp_path / "qrels")
    assert (tmp_path / "qrels").read_text().splitlines()[:3] == [
        "train-0 0 red-apple 1",
        "train-0 0 red-tiger 1",
        "train-1 0 red-stone 1",
    ]


def test_the_plan_says_what_will_happen_and_a_dry_run_what_it_takes(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recipe = small_recipe({"a": STAGE, "b": {**ANN, "evaluate": {"every_steps": 4}}})
    text = plan(recipe, dry_steps=2)
    assert "documents: 30 of " in text and "queries: train 15, dev 5, test 5" in text
    planned = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| b ")]
    assert planned[0] == ["b", "previous", "6", "12", "0.8", "2", "2", "120"]
    assert "measured over 2 steps and the first mining of each stage" in text and "time to come: about " in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_replaced_in_silence(small_recipe):
    with pytest.raises(ValueError, match="device: cuda, but torch finds no GPU"):
        accelerator_of(small_recipe({"a": STAGE}, device="cuda"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"test": {"measures": ["R@1000"]}}, "measure R@1000 looks at 1000 documents, but test.hits is 20; set test.hits=1000"),
        ({"data": {"relevance_threshold": 2}}, r"relevance_threshold is 2, but measure .* counts grade 1 as relevant; write .*\(rel=2\)"),
        ({"encoder": {"tokenization": {"document": {"template": "{txt}"}}}}, "template is '{txt}', but a document .* has no field txt; fields: "),
    ],
)
def test_what_would_give_a_wrong_number_is_refused(small_recipe, more, message):
    recipe = small_recipe({"a": STAGE})
    raw = recipe.model_dump(mode="json")
    for key, values in more.items():
        raw[key] = merged(raw[key], values)
    changed = Recipe.model_validate(raw)
    with pytest.raises(ValueError, match=message):
        tokenise(changed, read_collection(changed))


def merged(old: dict, new: dict) -> dict:
    return {**old, **{key: merged(old[key], value) if isinstance(value, dict) else value for key, value in new.items()}}
