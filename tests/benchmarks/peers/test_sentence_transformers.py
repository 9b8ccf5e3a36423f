"""Rows of sentence-transformers: our vectors before training, and run directories that compare."""

import json

import numpy as np
import pytest

import pyserini_ance as pa
from pyserini_ance.commands import compare
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.recipe.load import dump
from pyserini_ance.storage.files import read_json

pytestmark = pytest.mark.long

STAGE = {"steps": 45, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}}  # twelve epochs
STAGE["lr_schedule"] = {"warmup_steps": 3}
STAGE["terms"] = {"query": {"in_batch_negatives": True, "loss": {"kind": "nll", "scale": 20}}}


@pytest.fixture
def recipe(small_recipe):
    """A recipe whose lengths cut texts of both sides, at different lengths."""
    made = small_recipe({"rand-batch": STAGE}, name="small/rand-batch")
    lengths = {"query": 12, "document": 18}
    lengths = {side: {"length_tokens": n, "template": f"{side}: {{text}}"} for side, n in lengths.items()}
    encoder = {**made.encoder.model_dump(), "normalize": True, "tokenization": lengths}
    test = {"measures": ["nDCG@10", "RR@10"], "precision": "fp32"}
    return pa.Recipe.model_validate({**made.model_dump(), "encoder": encoder, "final_evaluation": test})


@pytest.fixture
def mining(monkeypatch):
    """A range in which a random encoder, which scores all texts nearly alike, finds negatives."""
    from benchmarks.peers import sentence_transformers_training as training

    monkeypatch.setattr(training, "MINING", {**training.MINING, "relative_margin": 0.001, "range_min": 2})


@pytest.mark.parametrize("layers", [None, [0]])
def test_the_untrained_encoder_scores_the_same(recipe, tmp_path, layers):
    from benchmarks.peers.sentence_transformers_training import as_sentence_transformer

    encoder = pa.load_encoder({**recipe.encoder.model_dump(), "layers": layers})
    save_encoder(encoder, tmp_path)
    model = as_sentence_transformer(encoder, tmp_path)
    collection = pa.load_collection(recipe.data.model_dump(), cache=recipe.cache)
    documents, test = collection.documents, collection.split("test")
    sides = {"document": documents, "query": test.queries}
    encode = {"document": model.encode_document, "query": model.encode_query}
    for side, texts in sides.items():
        ours = encoder.encode([texts[i] for i in range(len(texts))], side)
        given = [encoder.tokenizer.settings.text(side, texts[i]) for i in range(len(texts))]
        np.testing.assert_allclose(encode[side](given), ours, atol=1e-5)


def test_all_methods_train_and_stand_in_one_table_with_our_run(recipe, tmp_path, capsys, mining):
    from benchmarks.peers import __main__ as command

    (tmp_path / "rand-batch.yaml").write_text(dump(recipe))
    pa.train(recipe, tmp_path / "ours")
    for method in command.METHODS:
        flags = ["seed=42", "--method", method, "--output", str(tmp_path / method)]
        command.main([str(tmp_path / "rand-batch.yaml"), *flags])
    capsys.readouterr()
    folders = [str(tmp_path / name) for name in ("ours", *command.METHODS)]
    compare.main([*folders, "--significance", "small/rand-batch"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    peers = [f"small/sentence-transformers-{method}" for method in command.METHODS]
    assert rows[2:] == ["untrained", "small/rand-batch", *peers]
    untrained, trained = read_json(tmp_path / "in-batch" / "measures.json")["rows"]
    assert trained["nDCG@10"] > untrained["nDCG@10"]
    trained = [read_json(tmp_path / name / "measures.json")["rows"][-1] for name in command.METHODS]
    assert [row["row"] for row in trained] == ["sentence-transformers"] * 3
    assert all("refresh seconds" in row for row in trained)
    encoders = [pa.load_encoder(tmp_path / name / "model") for name in command.METHODS]
    vectors = [encoder.encode(["query of red apple"]) for encoder in encoders]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(vectors[one], vectors[other], atol=1e-3)


@pytest.mark.parametrize(("values", "best"), [([0.1, 0.3, 0.2, 0.3], 2), (None, None)])
def test_the_best_checkpoint_is_chosen_as_in_our_run(recipe, tmp_path, monkeypatch, values, best):
    """By the same measure of the same start, at the same steps, of which the start is one."""
    from benchmarks.peers import sentence_transformers_training as training
    from pyserini_ance.refresher import refresher

    stage = {**STAGE, "steps": 5, "evaluate": {"every_steps": 2, "measure": "nDCG@10", "queries": 4}}
    file, dev = tmp_path / "rand-batch.yaml", {}
    made = pa.Recipe.model_validate({**recipe.model_dump(), "stages": {"rand-batch": stage}})
    file.write_text(dump(made))
    for name in ("ours", "peer"):
        if values:
            given = iter(values)
            for module in (refresher, training):
                monkeypatch.setattr(module, "evaluate_on_dev", lambda *_, given=given: {"dev": next(given)})
        if name == "ours":
            pa.train(made, tmp_path / name)
        else:
            training.train_rows(str(file), (), "in-batch", tmp_path / name)
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        dev[name] = {record["step"]: record["value"] for record in records if record["event"] == "dev"}
        ends = [json.loads(line) for line in (tmp_path / name / "decisions.jsonl").read_text().splitlines()]
        [end] = [record for record in ends if record["event"] == "stage_end"]
        chosen = max(dev[name], key=dev[name].__getitem__) if best is None else best
        assert int(end["result"].rpartition("-")[2]) == chosen
    assert [*dev["ours"]] == [*dev["peer"]] == [0, 2, 4, 5] and dev["ours"][0] == dev["peer"][0]


def test_measuring_on_dev_changes_no_weight(recipe, tmp_path):
    from benchmarks.peers import sentence_transformers_training as training

    ends = []
    for name, evaluate in (("with", {"every_steps": 1, "keep_best": False}), ("without", None)):
        stage = {**STAGE, "steps": 3, "evaluate": evaluate}
        made = pa.Recipe.model_validate({**recipe.model_dump(), "stages": {"rand-batch": stage}})
        (tmp_path / f"{name}.yaml").write_text(dump(made))
        training.train_rows(str(tmp_path / f"{name}.yaml"), (), "in-batch", tmp_path / name)
        ends.append(pa.load_encoder(tmp_path / name / "model").encode(["query of red apple"]))
    np.testing.assert_array_equal(*ends)


def test_mined_negatives_are_those_of_a_slow_reference(recipe, tmp_path, mining):
    """The first document after `range_min` that is below the margin and not judged relevant."""
    from datasets import Dataset

    from benchmarks.peers import sentence_transformers_training as training

    encoder = pa.load_encoder(recipe.encoder.model_dump())
    save_encoder(encoder, tmp_path)
    model = training.as_sentence_transformer(encoder, tmp_path)
    documents = [f"document: {a} {b}" for a in "qwerty" for b in ("apple", "stone", "very very", "of the")]
    scores = model.encode_document(documents) @ model.encode_query("query: red apple")
    ranked = np.argsort(-scores)
    positives = ranked[[0, 3, 9]]
    below = [row for row in ranked if row not in positives and scores[row] < 0.999 * scores[positives].min()]
    judged = [{"anchor": "query: red apple", "positive": documents[row]} for row in positives]
    one, whole = Dataset.from_list(judged[1:2]), Dataset.from_list(judged)
    kept = training.with_mined_negatives(one, whole, documents, model)
    assert list(kept) == [{**judged[1], "negative": documents[below[2]]}]
    with pytest.raises(ValueError, match="no training query has a candidate within"):
        given = Dataset.from_list(judged)
        training.with_mined_negatives(given, given, documents[:1], model)
