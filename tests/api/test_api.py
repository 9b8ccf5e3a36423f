"""The Python API on a small collection, next to the code that it calls; test_mining.py has `mine`."""

import json
import pickle
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small_set import make_small_beir
from helpers.stage_fixture import StopAt
from ir_measures import RR, Qrel, ScoredDoc, calc_aggregate, nDCG
from pandas import DataFrame
from transformers import AutoModel, AutoTokenizer

import pyserini_ance as pa
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.run_log import METRICS
from pyserini_ance.runs.rundir import RunDir


def test_every_name_of_the_package_is_one_of_the_api():
    assert {*pa.__all__} <= {*dir(pa)}
    assert all(getattr(pa, name).__doc__ for name in pa.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = pa.trian


def test_train_leaves_a_run_that_is_opened_again(run, recipe):
    assert run.recipe == recipe
    assert [row["row"] for row in run.table] == ["untrained", "ance"]
    assert {"RR@10", "R@20"} <= run.table[0].keys()
    assert "| ance " in run.as_text() and "search with it:" in run.as_text()
    assert (run.model / "model.safetensors").is_file() and (run.index / "docid").is_file()
    assert [record["step"] for record in run.metrics("step")] == [0, 1, 2, 3]
    assert len(run.metrics()) > len(run.metrics("step"))
    again, before = pa.Run(str(run.directory)), (run.directory / "state.json").read_bytes()
    assert (again.table, again.as_text(), again.directory) == (run.table, run.as_text(), run.directory)
    assert pa.resume(run.directory).table == run.table
    assert (run.directory / "state.json").read_bytes() == before


def test_kinds_of_records_are_those_that_are_written(run):
    code = "".join(file.read_text() for file in Path(pa.__file__).parent.rglob("*.py"))
    written = {*re.findall(r"\.metric\(\s*\"(\w+)\"", code)}
    assert {*METRICS} == written and all(f"`{kind}`" in pa.Run.metrics.__doc__ for kind in METRICS)
    assert [record["event"] for record in run.metrics("generation")] == ["generation"] * 2


def test_a_run_is_opened_without_its_own_classes(run, tmp_path):
    copy = shutil.copytree(run.directory, tmp_path / "copy")
    file = copy / "recipe.yaml"
    file.write_text(file.read_text().replace("kind: nll", "kind: not_here:Longest"))
    opened = pa.Run(copy)
    assert opened.table == run.table
    lines = opened.as_text().splitlines()
    [said] = [line for line in lines if "'not_here:Longest'" in line]
    assert "No module named 'not_here'; type the command in the folder of the module, or add" in said
    assert lines[0] == run.as_text().splitlines()[0] and "search with it:" in lines
    assert RunDir(copy).read_final_evaluation() == run.recipe.final_evaluation
    with pytest.raises(ValueError, match="kind 'not_here:Longest' cannot be imported"):
        _ = opened.recipe


@pytest.mark.long
def test_a_stopped_run_is_resumed(recipe, run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pa.train(recipe, tmp_path / "stopped", callbacks=StopAt(3))
    stopped = pa.Run(tmp_path / "stopped")
    with pytest.raises(FileNotFoundError, match=r"no results table yet: .* resume\("):
        _ = stopped.table
    with pytest.raises(FileNotFoundError, match="the run has not finished"):
        pa.load_encoder(stopped)
    resumed = pa.resume(stopped)
    weights = "model/model.safetensors"
    assert (resumed.directory / weights).read_bytes() == (run.directory / weights).read_bytes()


def test_callbacks_are_called_in_order(recorder, run):
    assert recorder.calls == [
        ("refresh", "ance", 0, 0),
        ("dev", "ance", 0, "RR@10"),
        ("step", "ance", 0, ["query"]),
        ("step", "ance", 1, ["query"]),
        ("refresh", "ance", 2, 2),
        ("step", "ance", 2, ["query"]),
        ("step", "ance", 3, ["query"]),
        ("dev", "ance", 4, "RR@10"),
    ]


@pytest.mark.long
def test_a_process_trains_one_run_at_a_time(recipe, run, collection, tmp_path):
    """A second training is refused in a callback and in another thread; all else may go on there."""
    trained, other, refused, threads = tmp_path / "run", tmp_path / "other", [], ThreadPoolExecutor()
    attempts = [partial(pa.train, recipe, other), partial(pa.train, recipe, trained, overwrite=True)]
    attempts.append(partial(pa.resume, trained))

    class Disturb(pa.TrainerCallback):
        def on_step_end(self, stage, step, losses, metrics):
            if step == 1:
                refused.extend(error(attempt) for attempt in attempts)
                refused.extend(threads.submit(error, attempt).result() for attempt in attempts)
                assert pa.resume(run).table == run.table
                pa.mine(pa.load_encoder(run), collection, num_negatives=2, cache=recipe.cache)

    with threads:
        done = pa.train(recipe, trained, callbacks=[Disturb()])
    named = [other, trained, trained] * 2
    for one, folder in zip(refused, named, strict=True):
        assert str(one).startswith(f"{folder} is not trained: this process trains a run already")
    assert not other.exists()
    weights = "model/model.safetensors"
    assert (done.directory / weights).read_bytes() == (run.directory / weights).read_bytes()


def error(attempt) -> RuntimeError:
    with pytest.raises(RuntimeError) as raised:
        attempt()
    return raised.value


def test_a_run_and_a_collection_go_to_another_process(run, collection, mined):
    """The texts stay in their files: what is sent is as small as the judgments."""
    sent = pickle.dumps((run, collection))
    there, mapped = pickle.loads(sent)
    assert (there.directory, there.table) == (run.directory.absolute(), run.table)
    assert mapped.digest == collection.digest and [*mapped.documents.ids] == [*collection.documents.ids]
    assert mapped.documents.rows["pink-tiger"] == collection.documents.rows["pink-tiger"]
    assert b"pink-tiger" not in sent
    assert pickle.loads(pickle.dumps(mined)).to_texts() == mined.to_texts()


@pytest.mark.parametrize("side", ["query", "document"])
def test_encode_equals_the_low_level_encoder(run, side):
    texts = ["red apple", "", "the tiger is pink", {"text": "gray", "title": "unused"}]
    low = load_encoder(run.model)
    records = [text if isinstance(text, dict) else {"text": text} for text in texts]
    tokens = TokenStore.of_lists(low.tokenizer.ids(side, records), low.tokenizer.specials[side])
    expected = np.empty((4, 32), np.float32)
    for rows, vectors in low.encode_on_device(tokens, np.arange(4), side, "fp32", 8192):
        expected[rows] = vectors
    for source in (run, run.directory, str(run.model)):
        vectors = pa.load_encoder(source, device="cpu").encode(texts, side=side)
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, expected)


def test_queries_are_the_default_side(run):
    encoder, long = pa.load_encoder(run.model), " ".join(["tiger"] * 40)
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode([long], side="query"))
    assert np.abs(encoder.encode([long]) - encoder.encode([long], side="document")).max() > 1e-4


def test_a_plain_hugging_face_folder_is_mean_pooled(tiny_bert):
    encoder = pa.load_encoder(tiny_bert)
    assert (encoder.length_tokens("query"), encoder.length_tokens("document")) == (64, 126)
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).eval()
    hidden = model(**tokenizer(["red apple"], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(encoder.encode(["red apple"])[0], hidden.mean(0).detach(), atol=1e-5)


def test_settings_of_a_plain_hugging_face_folder(tiny_bert):
    encoder = pa.load_encoder(tiny_bert, pooling="cls", normalize=True, length_tokens={"query": 9})
    assert (encoder.length_tokens("query"), encoder.length_tokens("document")) == (9, 126)
    assert (encoder.config.pooling, encoder.config.normalize) == ("cls", True)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(["red apple"])), 1, atol=1e-6)
    assert pa.load_encoder(tiny_bert, length_tokens=12).length_tokens("document") == 12
    lengths = {"document": {"length_tokens": 99}}
    assert pa.load_encoder({"model": str(tiny_bert), "tokenization": lengths}).length_tokens("document") == 99


@pytest.mark.parametrize("lengths", [0, -1, 9.5, {"doc": 5}, {"query": 0}, {"document": None}])
def test_lengths_are_whole_numbers_by_side(tiny_bert, lengths):
    with pytest.raises(ValueError, match="length_tokens"):
        pa.load_encoder(tiny_bert, length_tokens=lengths)


def test_load_collection_from_a_file(recipe, collection, tmp_path):
    (tmp_path / "collection.yaml").write_text(json.dumps(recipe.data.model_dump(mode="json")))
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    for name in ("collection.yaml", "recipe.yaml"):
        assert pa.load_collection(tmp_path / name, cache=recipe.cache).digest == collection.digest
    assert (len(collection.documents), [*collection.splits]) == (30, ["train", "dev", "test"])


def test_a_collection_in_memory_is_mined_and_evaluated_as_one_of_files(mine, untrained, collection, mined):
    """Its titles are empty, and its queries those of one split."""
    documents = dict(zip(collection.documents.ids, collection.documents.columns["text"], strict=True))
    split = collection.split("train")
    queries = dict(zip(split.queries.ids, split.queries.columns["text"], strict=True))
    made = pa.make_collection(documents, {"train": queries}, {"train": collection.judgments("train")})
    again = mine(num_negatives=3, collection=made)
    np.testing.assert_array_equal(again.rows, mined.rows)
    assert again.to_texts() == mined.to_texts()
    _, rows = pa.search(untrained.encode([*queries.values()]), untrained.encode([*documents.values()]), k=30)
    ids = [[made.documents.ids[row] for row in ranked] for ranked in rows.tolist()]
    ranks = [{id: -rank for rank, id in enumerate(ranked)} for ranked in ids]
    ranking = dict(zip(queries, ranks, strict=True))
    assert pa.evaluate(ranking, made.judgments("train"), "R@30") == {"R@30": 1.0}


def test_a_split_that_is_none_is_not_read(tmp_path):
    settings = {"kind": "beir", "folder": str(make_small_beir(tmp_path / "beir"))}
    collection = pa.load_collection({**settings, "splits": {"dev": None}}, cache=tmp_path)
    assert [*collection.splits] == ["train", "test"]


def test_each_is_shown_in_one_line_with_counts(collection):
    train = collection.split("train")
    assert repr(collection) == "Collection(30 documents, train: 15 queries, dev: 5 queries, test: 5 queries)"
    assert repr(train) == "Split('train': 15 queries, 16 judgments)"
    assert repr(train.qrels) == "Qrels(15 queries, 16 judgments)"
    assert repr(collection.documents) == "Texts(30 rows: title, text)"


def test_fewer_documents_than_k_give_as_many_columns():
    scores, rows = pa.search(np.ones((2, 3)), np.eye(3), k=np.int64(5))
    assert scores.tolist() == [[1, 1, 1]] * 2 and rows.tolist() == [[0, 1, 2]] * 2


def test_evaluate_equals_ir_measures(tmp_path):
    ranking = {"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"b": 1.0, "c": 0.5}}
    qrels = {"q1": {"b": 2, "c": 1}, "q2": {"c": 1}}
    expected = calc_aggregate(
        [nDCG @ 10, RR @ 10],
        [Qrel(q, d, grade) for q, of_query in qrels.items() for d, grade in of_query.items()],
        [ScoredDoc(q, d, score) for q, of_query in ranking.items() for d, score in of_query.items()],
    )
    measured = pa.evaluate(ranking, qrels, ["nDCG@10", "RR@10"])
    assert measured == pytest.approx({str(measure): value for measure, value in expected.items()})
    lines = [f"{q} Q0 {d} 1 {score} tag" for q, of_query in ranking.items() for d, score in of_query.items()]
    (tmp_path / "run.trec").write_text("\n".join(lines) + "\n")
    lines = [f"{q} 0 {d} {grade}" for q, of_query in qrels.items() for d, grade in of_query.items()]
    (tmp_path / "qrels.txt").write_text("\n".join(lines) + "\n")
    assert pa.evaluate(tmp_path / "run.trec", tmp_path / "qrels.txt", ["nDCG@10", "RR@10"]) == measured


def test_measures_of_ir_measures_are_taken_as_their_names():
    ranking, qrels = {"q": {"a": 1.0, "b": 1.0}}, {"q": {"a": 1}}
    assert pa.evaluate(ranking, qrels, RR @ 10) == pa.evaluate(ranking, qrels, "RR@10") == {"RR@10": 0.5}
    assert list(pa.evaluate(ranking, qrels, [RR(rel=2) @ 10, "P@1"])) == ["RR(rel=2)@10", "P@1"]
    # As the docstring says: ir-measures itself ranks a before b.
    assert calc_aggregate([RR @ 10], qrels, ranking) == {RR @ 10: 1.0}


def test_evaluate_equals_the_results_table(run):
    files = [run.directory / name for name in ("run.test.trec", "qrels.test.txt")]
    measured = pa.evaluate(*files, ["RR@10", "R@20"])
    assert measured == pytest.approx({name: run.table[-1][name] for name in ("RR@10", "R@20")}, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("pa.Run(folder)", r"not a run directory \(recipe.yaml is missing\)"),
        ("run.metrics('steps')", r"event 'steps' is no kind of record \(did you mean 'step'\?\); kinds: "),
        ("pa.train(recipe, made, resume=True, overwrite=True)", "overwrite and resume exclude each other"),
        ("pa.train(recipe, made, resume=True, replay='x')", "replay and resume exclude each other"),
        ("pa.load_encoder(run).encode([{'title': 'a'}], side='document')", r"but texts\[0\] has only title"),
        ("pa.load_encoder(run).encode('matrix inversion')", "expected a list"),
        ("pa.load_encoder(run).encode(['a'], side='passage')", "side is 'passage'; expected 'query'"),
        ("pa.load_encoder('runs/missing/model')", "'runs/missing/model': no such folder"),
        ("pa.load_encoder(run.model, pooling='cls', normalize=True)", "pooling, normalize cannot be set"),
        ("pa.load_encoder(torch.nn.Identity())", "^model is of class Identity; .* pass the folder$"),
        ("pa.load_collection('.')", r"^\. is a folder; expected .* such as {kind: beir, folder: \.}"),
        ("pa.load_collection('scifact')", r"^no file scifact \(from /.*\)"),
        ("pa.load_collection(DataFrame())", "^settings is of class DataFrame"),
        ("pa.load_collection({'kind': 'beir', 'folder': DataFrame(range(999))})", r"\n +folder: .{,300}$"),
        ("pa.load_collection({'kind': 'beir', 'fodler': 'x'})", r"collection is not valid:\n +fodler"),
        ("pa.load_collection({'kind': 'bier'})", "unknown kind 'bier' of data"),
        (
            "pa.load_collection({**beir, 'splits': {'dev': None, 'tset': None}}, cache=folder)",
            "collection: data.splits.tset: .*did you mean 'test'",
        ),
        ("pa.load_recipe({'data': {}})", "^the recipe is of class dict; expected the name of a shipped"),
        ("pa.evaluate(DataFrame(), {'q': {'a': 1}})", "^run: .* valid dictionary, got Empty DataFrame"),
        ("pa.evaluate('run.trec', {'q': {'a': 1}})", "run.trec"),
        ("pa.evaluate({'q': {'a': 1.0}}, 'qrels.txt')", "qrels.txt"),
    ],
)
def test_wrong_calls_are_named(run, recipe, tmp_path, call, message):
    beir = {"kind": "beir", "folder": str(make_small_beir(tmp_path / "beir"))}
    names = dict(run=run, recipe=recipe, folder=tmp_path, made=tmp_path / "run", beir=beir)
    with pytest.raises((ValueError, OSError), match=message):
        eval(call, {"pa": pa, "torch": torch, "DataFrame": DataFrame, **names})
    assert not (tmp_path / "run").exists()
