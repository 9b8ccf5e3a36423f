"""Recipes of `_methods/ance-prf`: queries are read with the documents that a first pass ranks best."""

import json
import shlex
import subprocess

import numpy as np
import pytest
import yaml
from helpers.run_outcome import outcome
from helpers.stages import changed

from pyserini_ance.data.trec import read_run
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import SideTokenization, TextTokenizer
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.pyserini_bridge.encoder_classes import QueryEncoder
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

TEMPLATE = "<s>{text}</s>{first_1}</s>{first_2}</s>{first_3}</s>"
STAGE = {"steps": 4, "batch_queries": 4, "optimizer": {"learning_rate": 1e-2}, "evaluate": None}
FIELDS = ["first_1", "first_2", "first_3"]
REFUSED = {"first_pass=null": "set both or neither", "stages.prf.trainable=both": "set it to query_tower"}
REFUSED["encoder.tokenization.query.template='{text}'"] = "set both or neither"
REFUSED["encoder.tokenization.document.passages=2"] = "no texts of passages"


@pytest.fixture(scope="module")
def recipe(small_recipe, tiny_roberta, tmp_path_factory):
    """Of ANCE's form, which stock Pyserini reads; some queries are longer than 512 tokens with feedback."""
    folder = tmp_path_factory.mktemp("recipe")
    small = yaml.safe_load(dump(small_recipe({"a": {**STAGE, "terms": {"q": {"in_batch_negatives": True}}}})))
    kept = {key: small[key] for key in ("data", "bm25", "threads", "device", "encoding")}
    corpus = [json.loads(line) for line in open(kept["data"]["corpus"])]
    for record in corpus[::3]:
        record["contents"] = f" {record['contents']} \n{'more of THE same, ' * 20}"
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in corpus))
    kept["data"]["corpus"] = str(folder / "corpus.jsonl")
    tokenization = {"query": {"length_tokens": 512, "template": TEMPLATE}}
    tokenization["document"] = {"length_tokens": 32, "template": "{text}"}
    encoder = {"model": str(tiny_roberta), "projection": 768, "layer_norm": True}
    encoder["tokenization"] = tokenization
    made = {"extends": "_methods/ance-prf", **kept, "encoder": encoder, "stage_defaults": STAGE}
    made |= {"cache": str(folder / "cache"), "final_evaluation": {"precision": "fp32", "measures": ["RR@10"]}}
    path = folder / "ance-prf.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


@pytest.fixture
def loaded(recipe):
    return load(recipe)


def ranked_by_hand(recipe, collection, split) -> list[list[str]]:
    """The ids of each query's first three documents, by scores of single texts."""
    plain = {"query": {"length_tokens": 64}, "document": {"length_tokens": 32, "template": "{text}"}}
    config = EncoderConfig(**{**recipe.encoder.model_dump(), "tokenization": plain})
    encoder = initial_encoder(config, recipe.seed)
    documents = [{"text": text.strip()} for text in collection.documents.columns["text"]]
    vectors = np.stack([encoder.encode([one], "document")[0] for one in documents])
    texts = collection.split(split).queries.columns["text"]
    best = [np.argsort(-(vectors @ encoder.encode([text])[0]))[:3] for text in texts]
    return [[collection.documents.ids[row] for row in rows] for rows in best]


def test_each_split_has_the_contents_of_the_first_documents_as_fields(loaded):
    collection = read_collection(loaded)
    contents = dict(zip(collection.documents.ids, collection.documents.columns["text"], strict=True))
    for name, split in collection.splits.items():
        queries = split.queries.take(range(len(split.queries)))
        found = [[query[field] for field in FIELDS] for query in queries]
        expected = ranked_by_hand(loaded, collection, name)
        assert found == [[contents[id].strip() for id in ids] for ids in expected]


def test_tokens_are_those_of_pyserinis_feedback(loaded, tiny_roberta):
    """Its text and tokens, as in pyserini/search/faiss/_prf.py and encode/_ance.py."""
    from transformers import RobertaTokenizer

    collection, limit = read_collection(loaded), loaded.encoder.tokenization.query.length_tokens
    tokens = tokenize(loaded, collection).queries["train"]
    stock = RobertaTokenizer.from_pretrained(tiny_roberta)
    lengths = []
    for row, query in enumerate(collection.split("train").queries.take(range(15))):
        texts = [query["text"], *(query[field] for field in FIELDS)]
        text = f"{stock.cls_token}{stock.sep_token.join(texts)}{stock.sep_token}"
        cut = {"max_length": 512, "truncation": True}
        expected = stock([text], padding="longest", add_special_tokens=False, **cut)["input_ids"][0]
        ids, mask = tokens.batch(np.array([row]), limit)
        assert mask.all() and ids[0].tolist() == expected
        lengths.append(len(expected))
    assert max(lengths) == limit > min(lengths)


def test_judgments_do_not_change_the_first_pass(loaded, tmp_path):
    lines = loaded.data.splits["train"].qrels.read_text().splitlines()
    documents = [line.split()[2] for line in lines]
    moved = [line.replace(old, new) for line, old, new in zip(lines, documents, documents[::-1], strict=True)]
    (tmp_path / "moved.qrels").write_text("\n".join(moved))
    other = changed(loaded, f"data.splits.train.qrels={tmp_path / 'moved.qrels'}")
    first, second = (read_collection(one).split("train") for one in (loaded, other))
    assert first.qrels.digest != second.qrels.digest and first.queries.digest == second.queries.digest


def test_a_field_has_the_first_words_and_another_start_ranks_other_documents(loaded):
    train = read_collection(loaded).split("train").queries
    few = read_collection(changed(loaded, "first_pass.words=4")).split("train").queries
    assert few.columns["first_2"] == [" ".join(text.split()[:4]) for text in train.columns["first_2"]]
    other = read_collection(changed(loaded, "encoder.layers=[0]")).split("train").queries
    assert list(other.columns["first_1"]) != list(train.columns["first_1"])


@pytest.mark.parametrize("override, message", REFUSED.items())
def test_a_contradiction_is_refused(loaded, override, message):
    with pytest.raises(ValueError, match=message):
        changed(loaded, "stages.prf.terms.query.negatives=[{kind: random}]", override)


@pytest.mark.parametrize("encoder_class", ["ance", "pyserini_ance"])
def test_pyserini_finds_the_runs_scores(undisturbed, encoder_class, tmp_path):
    """By the printed command, and with our class, which reads other encoders than ANCE's too."""
    run, exported = RunDir(undisturbed), read_json(undisturbed / "measures.json")["export"]
    assert "--encoder-class ance --prf-method ance-prf --prf-depth 3" in exported["command"]
    command = shlex.split(exported["command"].replace("-class ance", f"-class {encoder_class}"))
    if encoder_class != "ance" and "pyserini.search.faiss" in command:  # with a full JDK
        place = command.index("pyserini.search.faiss")
        command[place : place + 1] = ["pyserini_ance", "search", "faiss"]
    command[command.index("--output") + 1] = str(tmp_path / "run.txt")
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    ours, theirs = read_run(run.final_run("test")), read_run(tmp_path / "run.txt")
    assert ours.keys() == theirs.keys()
    for query, scores in theirs.items():
        assert list(scores) == list(ours[query])
        assert scores == pytest.approx(ours[query], rel=2e-6)


def test_training_changes_the_queries_alone_and_plain_queries_are_refused(undisturbed):
    run = RunDir(undisturbed)
    ours, untrained = read_run(run.final_run("test")), read_run(run.ranking("untrained", "test"))
    assert any(ours[query] != pytest.approx(untrained[query], rel=1e-3) for query in ours)
    model, start = load_encoder(run.model), load_encoder(run.checkpoint("initial", 0) / "encoder")
    texts = [{"text": "red apple"}]
    np.testing.assert_array_equal(model.encode(texts, "document"), start.encode(texts, "document"))
    with pytest.raises(ValueError, match="has only text"):
        model.encode(["a query without a first pass"])
    with pytest.raises(ValueError, match="with 3 first documents; pass --prf-depth 3"):
        QueryEncoder(str(run.model)).prf_encode("a query\0one document\0")


def test_a_killed_run_resumes_to_bitwise_the_same(train, undisturbed, tmp_path):
    folder = tmp_path / "run"
    train(folder, code=-9, fault="kill_in_checkpoint", stage="prf", step=4)
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)


def test_a_refresher_beside_training_reads_the_first_pass_and_a_replay_repeats_it(server, recipe, tmp_path):
    """Tables that arrive two steps late, of queries with feedback."""
    made = yaml.safe_load(recipe.read_text())
    refresh = {"every_steps": 2, "mode": "async", "adopt": 2}
    terms = {"query": {"negatives": [{"kind": "ann", "top_k": 10}]}}
    made["stages"] = {"prf": {"trainable": "query_tower", "terms": terms, "refresh": refresh, "steps": 8}}
    path = tmp_path / "async.yaml"
    path.write_text(yaml.safe_dump(made))
    for name, flags in (("run", ()), ("again", ("--replay", str(tmp_path / "run" / "decisions.jsonl")))):
        done = server.run("train", [str(path), "--output", str(tmp_path / name), *flags])
        assert "differ from the recorded run's" not in done["stderr"]
    one, other = outcome(tmp_path / "run"), outcome(tmp_path / "again")
    adopted = [(r["step"], r["checkpoint_step"]) for r in one["decisions"] if r["event"] == "adopt"]
    assert adopted == [(0, 0), (4, 2), (6, 4)]
    assert one["rows"] == other["rows"] and one["decisions"] == other["decisions"]


def test_weights_from_another_run_rank_the_first_pass(loaded, undisturbed):
    """Those of both its towers; what training would refuse is refused before."""
    start = f"stages.prf.init_from={{folder: {undisturbed}, allow_changes: [tokenization]}}"
    with pytest.raises(ValueError, match="has two towers"):
        read_collection(changed(loaded, start))
    found = read_collection(changed(loaded, start, "encoder.tied=false")).split("test")
    model, documents = load_encoder(undisturbed / "model"), read_collection(loaded).documents
    tokenization = model.config.tokenization.model_copy(update={"query": SideTokenization()})
    tokenizer = TextTokenizer(model.tokenizer.tokenizers["query"], tokenization)
    plain = Encoder(model.config.model_copy(update={"tokenization": tokenization}), model.towers, tokenizer)
    texts = [{"text": text.strip()} for text in documents.columns["text"]]
    scores = plain.encode(list(found.queries.columns["text"])) @ plain.encode(texts, "document").T
    expected = [documents.columns["text"][row].strip() for row in scores.argmax(1)]
    assert list(found.queries.columns["first_1"]) == expected
