"""The proof of an export: equal vectors pass in each library, and each damaged file is told."""

import json
import os

import numpy as np
import pytest
from helpers.families import FAMILIES, LENGTHS, make_family
from helpers.small_set import ONE_STEP
from helpers.stages import ANN, RANDOM, changed, make_stage
from safetensors.torch import load_file, save_file

from pyserini_ance.data.trec import read_run
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.pipeline import experiment, model_export
from pyserini_ance.pipeline.model_export import BOUND, TEXTS, Proof, some_records
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.pipeline.results import Run
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.storage.files import read_json, read_json_object, write_json

DOCUMENT = {"length_tokens": 32, "template": "passage: {title} {text}"}
TOKENIZATION = {"query": {"length_tokens": 16, "template": "query: {text}"}, "document": DOCUMENT}
RECORDS = {
    "query": [{"text": "which apple"}, {"text": "the river of many words " * 4}],
    "document": [{"title": "Stone", "text": "a red apple"}, {"title": "", "text": "the text " * 30}],
}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    settings = {"pooling": "mean", "projection": 8, "normalize": True, "tokenization": TOKENIZATION}
    return initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1)


@pytest.fixture
def folders(encoder, tmp_path):
    """The checkpoint and the exported folder."""
    for name in ("checkpoint", "exported"):
        (tmp_path / name).mkdir()
        save_encoder(encoder, tmp_path / name)
    return tmp_path / "checkpoint", tmp_path / "exported"


@pytest.fixture
def proof(folders):
    return Proof(folders[0], RECORDS)


def test_an_export_as_it_was_written_passes(proof, folders):
    difference = proof.by_sentence_transformers(folders[1])
    assert 0 <= difference.share < BOUND
    difference.check(folders[1])
    assert proof.by_transformers(folders[1]) is None  # it has no Dense


def test_vectors_of_another_size_are_told_apart_by_it(proof):
    difference = proof.difference("query", lambda side, records: np.zeros((len(records), 4), np.float32))
    assert not difference.is_small and "ValueError: vectors of 4 numbers, not 8" in str(difference)


def test_texts_that_sentence_transformers_lowers_otherwise_are_left_out(tiny_bert, tmp_path):
    config = EncoderConfig(model=str(tiny_bert), tokenization={**TOKENIZATION, "lowercase": True})
    save_encoder(initial_encoder(config, 1), tmp_path)
    proof = Proof(tmp_path, {**RECORDS, "query": [{"text": "ΟΔΟΣ"}]})
    assert proof.by_sentence_transformers(tmp_path).is_small and proof.by_transformers(tmp_path).is_small


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_plain_transformers_computes_the_vectors_of_a_pooled_transformer(tiny_bert, tmp_path, pooling):
    documents = {"length_tokens": 32, "template": "{title} [SEP] {text}"}
    settings = {"pooling": pooling, "normalize": "query", "tokenization": {"document": documents}}
    save_encoder(initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1), tmp_path)
    proof = Proof(tmp_path, RECORDS)
    assert proof.by_transformers(tmp_path).is_small and proof.by_sentence_transformers(tmp_path) is None
    with_weights(tmp_path / "model.safetensors")
    assert not proof.by_transformers(tmp_path).is_small


def test_cut_vectors_are_compared_as_they_are_used(encoder, tmp_path):
    save_encoder(initial_encoder(encoder.config.model_copy(update={"truncate_dim": 4}), 1), tmp_path)
    assert Proof(tmp_path, RECORDS).by_sentence_transformers(tmp_path).is_small


def with_values(name, **values):
    return lambda folder: write_json(folder / name, {**read_json_object(folder / name), **values})


def with_weights(file, more=0.1):
    save_file({name: value + more for name, value in load_file(file).items()}, file, {"format": "pt"})


def without(name):
    def change(folder):
        modules = json.loads((folder / "modules.json").read_text())
        kept = [module for module in modules if not module["type"].endswith(name)]
        (folder / "modules.json").write_text(json.dumps(kept))

    return change


OWN = "config_sentence_transformers.json"
DAMAGE = {
    "pooling": with_values("1_Pooling/config.json", pooling_mode="cls"),
    "prompt": with_values(OWN, prompts={"query": "", "document": ""}),
    "query length": with_values("sentence_bert_config.json", query_length=8),
    "a matrix": lambda f: with_weights(f / "2_Dense/model.safetensors"),
    "padding side": with_values("tokenizer_config.json", padding_side="left"),
    "the Transformer": lambda f: with_weights(f / "model.safetensors"),
    "not a number": lambda f: with_weights(f / "2_Dense/model.safetensors", np.nan),
    "a module": without("Normalize"),
    "the size": without("Dense"),
    "the numbers kept": with_values(OWN, truncate_dim=4),
    "all": lambda f: (f / "modules.json").write_text("{"),
}


@pytest.mark.parametrize("damaged", DAMAGE)
def test_a_damaged_file_is_told(proof, folders, damaged):
    DAMAGE[damaged](folders[1])
    with pytest.raises(SettingError, match=f"export is wrong: sentence-transformers, from {folders[1]}: "):
        proof.by_sentence_transformers(folders[1]).check(folders[1])


def test_records_are_of_the_whole_collection_with_the_longest_query(small_recipe, monkeypatch):
    recipe = small_recipe({"a": ONE_STEP})
    data = tokenize(recipe, read_collection(recipe))
    records, texts = some_records(data, ["test"]), data.collection.documents.columns["text"]
    assert (len(records["query"]), len(records["document"])) == (5, min(TEXTS, len(texts)))
    assert records["document"][-1]["text"] == texts[len(texts) - 1].strip()
    monkeypatch.setattr(model_export, "TEXTS", 1)
    longest = int(np.argmax(data.queries["test"].lengths(100)))
    found = [one["text"] for one in some_records(data, ["test"])["query"]]
    asked = data.collection.split("test").queries.columns["text"]
    assert found == [asked[row] for row in sorted({0, longest})]


def test_adapters_are_proven_merged_and_alone(small_recipe, tmp_path, monkeypatch):
    stage = make_stage(RANDOM, lora={"r": 2}, optimizer={"learning_rate": 0.05})
    recipe, run = small_recipe({"a": stage}), tmp_path / "run"
    experiment.train(recipe, run)
    differences = read_json(run / "measures.json")["export"]["differences"]
    [alone] = [difference for name, difference in differences.items() if "adapter/" in name]
    assert 0 <= alone["share"] < BOUND and differences["sentence-transformers"]["share"] < BOUND
    data = tokenize(recipe, read_collection(recipe))
    proof = Proof(run / "checkpoints" / "a-00000004" / "encoder", some_records(data, ["test"]))
    weights = load_file(run / "adapter" / "adapter_model.safetensors")
    name = max(weights, key=lambda name: float(weights[name].abs().max()) if "lora_B" in name else 0)
    save_file({**weights, name: 2 * weights[name]}, run / "adapter" / "adapter_model.safetensors")
    assert not proof.by_sentence_transformers(run / "adapter").is_small
    towers = small_recipe({"b": make_stage(RANDOM, lora={"r": 2}, trainable="query_tower"), "a": stage})
    assert not (experiment.train(towers, tmp_path / "towers").directory / "adapter").exists()
    monkeypatch.setattr("peft.tuners.lora.Linear.merge", lambda layer: None)
    with pytest.raises(SettingError, match="the export is wrong: sentence-transformers"):
        experiment.train(recipe, tmp_path / "unmerged")
    assert not (tmp_path / "unmerged" / "measures.json").exists()  # or `adapt` would go on with it


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_the_same_vectors_in_every_library(tmp_path, name):
    (source := tmp_path / name).mkdir()
    pooling = FAMILIES[name][2]
    tokenization = {**LENGTHS, "document": {"length_tokens": 48, "template": "{text}"}}
    settings = {"pooling": pooling, "normalize": True, "tokenization": tokenization}
    encoder = initial_encoder(EncoderConfig(model=str(make_family(source, name)), **settings), 1)
    (folder := tmp_path / os.fsdecode(b"mod\xe9l")).mkdir()  # libraries in Rust open no such name
    save_encoder(encoder, folder)
    exported = Proof(folder, RECORDS).of_export(folder)
    assert not {n: d for n, d in exported["differences"].items() if d is None or d["share"] > 1e-5}
    stock = "qwen3" if pooling == "lasttoken" else "auto"
    assert [stock in exported[side] for side in ("queries", "documents")] == [True, True]


SETTINGS = (
    "stages.only.terms.query.dimensions={16: 1, 4: 0.5}",
    "encoding.search=4",
    "encoder.truncate_dim=16",
    "encoder.normalize=true",
    "final_evaluation.rows=[]",
    'final_evaluation.indexes=["Truncate4,L2norm,SQ8"]',
)


def test_a_run_trains_mines_measures_and_exports_small_vectors(small_recipe, tmp_path):
    from sentence_transformers import SentenceTransformer

    recipe = changed(small_recipe({"only": make_stage(ANN, refresh={"every_steps": 2})}), *SETTINGS)
    experiment.train(recipe, tmp_path / "run")
    run, collection = Run(tmp_path / "run"), read_collection(recipe)
    assert [row["bytes a document"] for row in run.table] == [4 * 16, 4]
    assert all(np.isfinite(step["loss"]) for step in run.metrics("step"))

    model, queries = SentenceTransformer(str(run.model), device="cpu"), collection.split("test").queries
    asked = model.encode_query(list(queries.columns["text"]))
    scores = model.similarity(asked, model.encode_document(list(collection.documents.columns["text"])))
    rows = {id: row for row, id in enumerate(collection.documents.ids)}
    for query, own in zip(queries.ids, scores.tolist(), strict=True):
        hits = read_run(run.directory / "run.test.trec")[query]
        assert list(hits.values()) == pytest.approx([own[rows[hit]] for hit in hits], abs=1e-5)
