"""The Python API on a small collection with a random model, next to the code that it calls."""

import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch
from helpers.small_set import make_small_beir
from ir_measures import RR, Qrel, ScoredDoc, calc_aggregate, nDCG
from pandas import DataFrame
from sentence_transformers import SentenceTransformer

import pyserini_ance as pa
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.filters.duplicates import Duplicates
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.run_log import METRICS
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.vectors import encoding, vector_store

STAGE = {
    "steps": 4,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 8}], "loss": {"kind": "nll", "scale": 0.1}}},
    "refresh": {"every_steps": 2},
    "evaluate": {"every_steps": 4, "measure": "RR@10"},
}
FP32 = {"precision": "fp32"}


class Recorder(pa.TrainerCallback):
    """Notes every call."""

    def __init__(self):
        self.calls: list[tuple] = []

    def on_step_end(self, stage, step, losses, metrics):
        self.calls.append(("step", stage, step, sorted(losses)))

    def on_refresh(self, stage, step, generation):
        self.calls.append(("refresh", stage, step, generation.step))

    def on_dev_measure(self, stage, step, measure, value):
        self.calls.append(("dev", stage, step, measure))


@pytest.fixture(scope="module")
def recipe(small_recipe) -> pa.Recipe:
    return small_recipe({"ance": STAGE})


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def run(recipe, recorder, tmp_path_factory) -> pa.Run:
    return pa.train(recipe, tmp_path_factory.mktemp("runs") / "small", callbacks=[recorder])


@pytest.fixture(scope="module")
def collection(recipe) -> pa.Collection:
    return pa.load_collection(recipe.data.model_dump(mode="json"), cache=recipe.cache)


@pytest.fixture(scope="module")
def mined(run, recipe, collection) -> pa.MinedNegatives:
    """Negatives by the untrained encoder, as the refresh before the first step mines them."""
    encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
    source = {"kind": "ann", "top_k": 8}
    return pa.mine(encoder, collection, source, num_negatives=3, encoding=FP32, cache=recipe.cache)


def test_importing_the_package_imports_nothing_heavy():
    program = """
import sys, pyserini_ance
heavy = {"torch", "transformers", "faiss", "pyserini", "jnius", "pyserini_ance.api"}
print(sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_train_stays_the_function_when_the_command_is_imported():
    program = """
import pyserini_ance.train
from pyserini_ance.train import main
import pyserini_ance, pyserini_ance.api
print(pyserini_ance.train is pyserini_ance.api.train, main.__module__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True pyserini_ance.commands.train\n"


def test_every_name_of_the_package_is_one_of_the_api():
    assert {*pa.__all__} <= {*dir(pa)}
    assert all(getattr(pa, name).__doc__ for name in pa.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = pa.trian


def test_load_recipe_applies_overrides():
    recipe = pa.load_recipe("demo/ance", "seed=7", "stages.ance.steps=5")
    assert (recipe.name, recipe.seed, recipe.stages["ance"].steps) == ("demo/ance", 7, 5)


def test_train_leaves_a_run(run, recipe):
    assert run.recipe == recipe
    assert [row["row"] for row in run.table] == ["untrained", "ance"]
    assert {"RR@10", "R@20"} <= run.table[0].keys()
    assert "| ance " in run.as_text() and "search with it:" in run.as_text()
    assert (run.model / "model.safetensors").is_file() and (run.index / "docid").is_file()
    assert [record["step"] for record in run.metrics("step")] == [0, 1, 2, 3]
    assert len(run.metrics()) > len(run.metrics("step"))


def test_kinds_of_records_are_those_that_are_written(run):
    package = Path(pa.__file__).parent
    written = {
        kind
        for file in package.rglob("*.py")
        for kind in re.findall(r"\.metric\(\s*\"(\w+)\"", file.read_text())
    }
    assert {*METRICS} == written and all(f"`{kind}`" in pa.Run.metrics.__doc__ for kind in METRICS)
    assert [record["event"] for record in run.metrics("generation")] == ["generation"] * 2
    with pytest.raises(
        ValueError, match=r"event 'steps' is no kind of record \(did you mean 'step'\?\); kinds: "
    ):
        run.metrics("steps")


def test_a_finished_run_is_opened_again(run):
    again = pa.Run(str(run.directory))
    assert (again.table, again.as_text(), again.directory) == (run.table, run.as_text(), run.directory)
    before = (run.directory / "state.json").read_bytes()
    assert pa.resume(run.directory).table == run.table
    assert (run.directory / "state.json").read_bytes() == before


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


def test_a_stopped_run_is_resumed(recipe, run, tmp_path):
    class Stop(pa.TrainerCallback):
        def on_step_end(self, stage, step, losses, metrics):
            if step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pa.train(recipe, tmp_path / "stopped", callbacks=[Stop()])
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


def test_a_process_trains_one_run_at_a_time(recipe, run, collection, tmp_path):
    """A second training is refused in a callback and in another thread; all else may go on there."""
    trained, other, refused, threads = tmp_path / "run", tmp_path / "other", [], ThreadPoolExecutor()
    attempts = [
        lambda: pa.train(recipe, other),
        lambda: pa.train(recipe, trained, overwrite=True, prerequisites=False),
        lambda: pa.resume(trained),
    ]

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
    assert [str(one).partition(" in one ")[0] for one in refused] == [
        f"{folder} is not trained: this process trains {trained} already, and two trainings"
        for folder in named
    ]
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


def test_another_folder_is_not_a_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not a run directory \(recipe.yaml is missing\)"):
        pa.Run(tmp_path)


@pytest.mark.parametrize("side", ["query", "document"])
def test_encode_equals_the_low_level_encoder(run, side):
    texts = ["red apple", "", "the tiger is pink", {"text": "gray", "title": "unused"}]
    low = load_encoder(run.model)
    records = [text if isinstance(text, dict) else {"text": text} for text in texts]
    tokens = TokenStore.of_lists(low.tokenizer.ids(side, records), low.tokenizer.specials)
    expected = np.empty((4, 32), np.float32)
    for rows, vectors in low.encode_rows(tokens, np.arange(4), side, "fp32", 8192):
        expected[rows] = vectors
    for source in (run, run.directory, str(run.model)):
        vectors = pa.load_encoder(source, device="cpu").encode(texts, side=side)
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, expected)


def test_queries_are_the_default_side(run):
    encoder = pa.load_encoder(run.model)
    long = " ".join(["tiger"] * 40)
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode([long], side="query"))
    assert np.abs(encoder.encode([long]) - encoder.encode([long], side="document")).max() > 1e-4


def test_a_text_without_the_fields_of_the_template_is_refused(run):
    with pytest.raises(ValueError, match=r"reads a document as '\{text\}', but texts\[0\] has only title"):
        pa.load_encoder(run.model).encode([{"title": "a"}], side="document")


def test_a_single_string_and_an_unknown_side_are_refused(run):
    encoder = pa.load_encoder(run)
    with pytest.raises(ValueError, match="expected a list"):
        encoder.encode("matrix inversion")
    with pytest.raises(ValueError, match="side is 'passage'; expected 'query' or 'document'"):
        encoder.encode(["matrix inversion"], side="passage")


def test_a_folder_that_is_missing_is_named_with_the_working_directory():
    named = re.escape(f"'runs/missing/model': no such folder; the working directory is {Path.cwd()}")
    with pytest.raises(FileNotFoundError, match=named):
        pa.load_encoder("runs/missing/model")


def test_a_callback_of_another_class_is_refused_before_training(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"callbacks is <.*Recorder .*expected a list: callbacks=\[\.\.\.\]"):
        pa.train(recipe, tmp_path / "run", callbacks=Recorder())
    with pytest.raises(ValueError, match="is not a TrainerCallback"):
        pa.train(recipe, tmp_path / "run", callbacks=[object()])
    assert not (tmp_path / "run").exists()


def test_ways_to_start_that_exclude_each_other_are_refused(recipe, tmp_path):
    for other in ({"overwrite": True}, {"replay": "decisions.jsonl"}):
        with pytest.raises(ValueError, match=f"{next(iter(other))} and resume exclude each other"):
            pa.train(recipe, tmp_path / "run", resume=True, **other)


def test_a_plain_hugging_face_folder_is_mean_pooled(tiny_bert):
    from transformers import AutoModel, AutoTokenizer

    encoder = pa.load_encoder(tiny_bert)
    assert (encoder.length_tokens("query"), encoder.length_tokens("document")) == (64, 126)
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).eval()
    hidden = model(**tokenizer(["red apple"], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(encoder.encode(["red apple"])[0], hidden.mean(0).detach(), atol=1e-5)


def test_settings_of_a_plain_hugging_face_folder(tiny_bert):
    encoder = pa.load_encoder(tiny_bert, pooling="cls", normalize=True, length_tokens={"query": 9})
    assert (encoder.length_tokens("query"), encoder.length_tokens("document")) == (9, 126)
    assert (encoder.family.pooling, encoder.family.normalize) == ("cls", True)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(["red apple"])), 1, atol=1e-6)
    assert pa.load_encoder(tiny_bert, length_tokens=12).length_tokens("document") == 12
    settings = {
        "kind": "transformer",
        "model": str(tiny_bert),
        "tokenization": {"document": {"length_tokens": 99}},
    }
    assert pa.load_encoder(settings).length_tokens("document") == 99


@pytest.mark.parametrize("lengths", [0, -1, 9.5, {"doc": 5}, {"query": 0}, {"document": None}])
def test_lengths_are_whole_numbers_by_side(tiny_bert, lengths):
    with pytest.raises(ValueError, match="length_tokens"):
        pa.load_encoder(tiny_bert, length_tokens=lengths)


def test_settings_that_a_saved_encoder_has_are_refused(run):
    with pytest.raises(ValueError, match="pooling, normalize cannot be set"):
        pa.load_encoder(run.model, pooling="cls", normalize=True)


def test_a_missing_encoder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        pa.load_encoder(tmp_path / "modell")


def test_load_collection_from_a_file(recipe, collection, tmp_path):
    (tmp_path / "collection.yaml").write_text(json.dumps(recipe.data.model_dump(mode="json")))
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    for name in ("collection.yaml", "recipe.yaml"):
        assert pa.load_collection(tmp_path / name, cache=recipe.cache).digest == collection.digest
    assert (len(collection.documents), [*collection.splits]) == (30, ["train", "dev", "test"])


def test_a_collection_in_memory_is_mined_and_evaluated_as_one_of_files(run, recipe, collection, mined):
    """Its titles are empty, and its queries those of one split."""
    documents = dict(zip(collection.documents.ids, collection.documents.columns["text"], strict=True))
    split = collection.split("train")
    queries = dict(zip(split.queries.ids, split.queries.columns["text"], strict=True))
    made = pa.make_collection(documents, {"train": queries}, {"train": collection.judgments("train")})
    encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
    source = {"kind": "ann", "top_k": 8}
    again = pa.mine(encoder, made, source, num_negatives=3, encoding=FP32, cache=recipe.cache)
    np.testing.assert_array_equal(again.rows, mined.rows)
    assert again.to_texts() == mined.to_texts()
    _, rows = pa.search(encoder.encode([*queries.values()]), encoder.encode([*documents.values()]), k=30)
    ranking = {
        query: {made.documents.ids[row]: -rank for rank, row in enumerate(ranked)}
        for query, ranked in zip(queries, rows.tolist(), strict=True)
    }
    assert pa.evaluate(ranking, made.judgments("train"), "R@30") == {"R@30": 1.0}


def test_a_split_that_is_none_is_not_read(tmp_path):
    settings = {"kind": "beir", "folder": str(make_small_beir(tmp_path / "beir"))}
    collection = pa.load_collection({**settings, "splits": {"dev": None}}, cache=tmp_path)
    assert [*collection.splits] == ["train", "test"]
    with pytest.raises(ValueError, match="collection: data.splits.tset: .*did you mean 'test'"):
        pa.load_collection({**settings, "splits": {"dev": None, "tset": None}}, cache=tmp_path)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (".", IsADirectoryError, r"^\. is a folder; expected .* such as {kind: beir, folder: \.}, or a YAML"),
        (
            "scifact",
            FileNotFoundError,
            r"^no file scifact \(from /.*\); expected the settings of a collection",
        ),
        (
            DataFrame(),
            ValueError,
            "^settings is of class DataFrame; .*data in memory goes to make_collection$",
        ),
        (
            {"kind": "beir", "folder": DataFrame({"text": range(1000)})},
            ValueError,
            r"^collection is not valid:\n +folder: .{,300}$",
        ),
    ],
)
def test_data_in_place_of_settings_are_named(settings, error, message, tmp_path):
    with pytest.raises(error, match=message):
        pa.load_collection(settings, cache=tmp_path)


def test_each_is_shown_in_one_line_with_counts(collection, mined):
    train = collection.split("train")
    assert repr(collection) == "Collection(30 documents, train: 15 queries, dev: 5 queries, test: 5 queries)"
    assert (repr(train), repr(train.qrels)) == (
        "Split('train': 15 queries, 16 judgments)",
        "Qrels(15 queries, 16 judgments)",
    )
    assert repr(collection.documents) == "StoredTexts(30 rows: title, text)"
    assert repr(mined) == "MinedNegatives('train' from 'ann': 15 queries, 45 negatives)"


def test_settings_of_a_collection_are_checked(recipe, tmp_path):
    with pytest.raises(
        ValueError, match=r"collection is not valid:\n +fodler: unknown key 'fodler' \(did you mean"
    ):
        pa.load_collection({"kind": "beir", "fodler": "x"}, cache=tmp_path)
    with pytest.raises(ValueError, match="unknown kind 'bier' of data"):
        pa.load_collection({"kind": "bier"}, cache=tmp_path)


def test_the_import_lets_threads_spin_less():
    program = "import os, pyserini_ance; print(os.environ['GOMP_SPINCOUNT'])"
    for given, expected in ((None, "1000"), ("5", "5")):
        unset = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        environment = unset | ({"GOMP_SPINCOUNT": given} if given else {})
        told = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert told.stdout.strip() == expected


def test_mined_tables_equal_those_of_a_refresh(mined, run):
    files = RunDir(run.directory)
    [expected] = open_generation(files.generation("ance", 0), {}).tables.values()
    np.testing.assert_array_equal(mined.table.anchors, expected.anchors)
    np.testing.assert_array_equal(mined.table.candidates, expected.candidates)
    np.testing.assert_array_equal(mined.table.scores, expected.scores)
    assert mined.dropped == expected.dropped


def test_the_chosen_negatives_are_candidates(mined, collection):
    assert mined.rows.shape == (len(mined), 3) == (15, 3)
    for chosen, candidates in zip(mined.rows.tolist(), mined.table.candidates.tolist(), strict=True):
        assert len({*chosen} & {*candidates}) == 3


def test_queries_without_min_candidates_are_left_out(run, recipe, collection):
    """Of 30 documents, the first query has two positives, the others have one."""
    encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
    source = {"kind": "ann", "top_k": 30, "min_candidates": 29}
    found = pa.mine(encoder, collection, source, num_negatives=3, encoding=FP32, cache=recipe.cache)
    assert found.table.anchors.tolist() == list(range(1, 15)) and found.rows.shape == (14, 3)
    for chosen, candidates in zip(found.rows.tolist(), found.table.candidates.tolist(), strict=True):
        assert {*chosen} < {*candidates}


def test_the_same_arguments_mine_the_same_negatives(mined, run, recipe, collection):
    encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
    source = {"kind": "ann", "top_k": 8}

    def mine(**more) -> np.ndarray:
        return pa.mine(encoder, collection, source, encoding=FP32, cache=recipe.cache, **more).rows

    np.testing.assert_array_equal(mine(num_negatives=3), mined.rows)
    assert (mine(num_negatives=3, seed=1) != mined.rows).any()
    np.testing.assert_array_equal(mine(num_negatives=None), mined.table.candidates)
    top = pa.mine(
        encoder,
        collection,
        {**source, "sampling_strategy": "top"},
        num_negatives=2,
        encoding=FP32,
        cache=recipe.cache,
    )
    np.testing.assert_array_equal(top.rows, mined.table.candidates[:, :2])
    assert not (recipe.cache / "mining").exists() or not [*(recipe.cache / "mining").iterdir()]


def test_threads_mine_with_one_cold_cache(mined, run, recipe, tmp_path, monkeypatch):
    """Neither has the store of the same vectors when both begin to make it."""
    barrier, make, source = Barrier(2, timeout=60), vector_store.whole_folder, {"kind": "ann", "top_k": 8}

    def make_together(folder):
        barrier.wait()
        return make(folder)

    def mine(_) -> np.ndarray:
        collection = pa.load_collection(recipe.data.model_dump(mode="json"), cache=tmp_path)
        encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
        return pa.mine(encoder, collection, source, num_negatives=3, encoding=FP32, cache=tmp_path).rows

    monkeypatch.setattr(vector_store, "whole_folder", make_together)
    with ThreadPoolExecutor(2) as threads:
        for rows in threads.map(mine, range(2)):
            np.testing.assert_array_equal(rows, mined.rows)
    assert [*(tmp_path / "mining").iterdir()] == []


def test_filters_report_what_they_removed(run, recipe, collection):
    filters = ["duplicates", {"kind": "relative_margin", "margin": 0.05}]
    source = {"kind": "ann", "top_k": 8, "on_shortage": "fill_random"}
    mined = pa.mine(pa.load_encoder(run), collection, source, filters, num_negatives=8, cache=recipe.cache)
    assert mined.dropped.keys() == {"known positives", "duplicates", "relative_margin"}
    assert mined.dropped["known positives"] == 16
    assert (mined.rows != PADDING).all()
    described = mined.describe()
    assert "| relative_margin" in described and "| ann " in described
    assert "\n- candidates per query: " in described and "\n- candidates removed: " in described


def test_a_filter_that_promotes_adds_positives_to_the_files(run, recipe, collection, tmp_path):
    """pink-tiger is relevant to each query, as the teacher has it; the negatives of none."""
    ids = collection.split("train").queries.ids
    scores = tmp_path / "scores.trec"
    scores.write_text("".join(f"{id} Q0 pink-{t} 1 {s} t\n" for id in ids for t, s in THINGS.items()))
    teacher = {"kind": "ranking", "file": str(scores)}
    encoder, source = pa.load_encoder(run), {"kind": "ann", "top_k": 28}

    def mine(then: str) -> pa.MinedNegatives:
        asked = {"kind": "teacher", "teacher": teacher, "max_score": 2.5, "then": then}
        return pa.mine(encoder, collection, source, [asked], num_negatives=None, cache=recipe.cache)

    row = collection.documents.ids.index("pink-tiger")
    promoted, dropped = mine("promote"), mine("drop")
    assert promoted.table.promoted.tolist() == [[query, row] for query in range(15)]
    assert "| promoted        |                 15 |" in promoted.describe()
    assert dropped.dropped == {"known positives": 16, "teacher": 15} and dropped.table.promoted is None
    np.testing.assert_array_equal(promoted.rows, dropped.rows)
    assert len(promoted.to_texts()) == len(dropped.to_texts()) + 15 == 31
    promoted.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    for line in map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines()):
        assert line["positive_passages"][-1]["docid"] == "pink-tiger"


THINGS = {"tiger": 3, "apple": 2}


def test_what_one_source_of_a_mix_promotes_is_no_negative(run, recipe, collection, tmp_path):
    """Neither as a candidate of the other source nor as a random one."""
    ids = collection.split("train").queries.ids
    scores = tmp_path / "scores.trec"
    scores.write_text("".join(f"{id} Q0 pink-{t} 1 {s} t\n" for id in ids for t, s in THINGS.items()))
    asked = {"kind": "teacher", "teacher": {"kind": "ranking", "file": str(scores)}, "max_score": 2.5}
    promoting = {"kind": "ann", "top_k": 28, "filters": [{**asked, "then": "promote"}]}
    row = collection.documents.ids.index("pink-tiger")
    for sources in ([{"kind": "ann", "top_k": 28}, promoting], [promoting]):
        mix = {"kind": "mix", "sources": sources, "on_shortage": "fill_random", "duplicates": "drop"}
        for number in (None, 27):
            settings = {"num_negatives": number, "cache": recipe.cache}
            mined = pa.mine(pa.load_encoder(run), collection, mix, **settings)
            assert row not in mined.rows and mined.table.promoted[:, 1].tolist() == [row] * 15
            assert all(row in mined.split.qrels.relevant(query) for query in range(15))


def test_a_call_that_ends_leaves_the_vectors_that_another_reads(mined, run, recipe, collection, monkeypatch):
    """As two processes that mine with one encoder and cache: one has written the vectors, read none."""
    encoder = pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")
    read, scratch, left = encoding.read_vectors, recipe.cache / "mining", []

    def mine() -> np.ndarray:
        source = {"kind": "ann", "top_k": 8}
        return pa.mine(encoder, collection, source, num_negatives=3, encoding=FP32, cache=recipe.cache).rows

    def mine_and_read(*arguments):
        monkeypatch.setattr(encoding, "read_vectors", read)
        np.testing.assert_array_equal(mine(), mined.rows)
        left.extend(path.name for path in scratch.iterdir() if path.is_dir())
        return read(*arguments)

    monkeypatch.setattr(encoding, "read_vectors", mine_and_read)
    np.testing.assert_array_equal(mine(), mined.rows)
    assert len(left) == 1 and list(scratch.iterdir()) == []


def test_a_filter_of_mine_may_ask_bm25(run, recipe, collection, monkeypatch, tmp_path):
    """Without a source of kind bm25, BM25 ranks as many documents as `bm25.hits` says."""
    asked, ids = [], collection.split("train").queries.ids
    scores = tmp_path / "bm25.trec"
    scores.write_text("".join(f"{id} Q0 pink-{t} 1 {s} t\n" for id in ids for t, s in THINGS.items()))

    def ranked(bm25, cache, collection, requests):
        asked.extend(requests)
        return [scores]

    monkeypatch.setattr("pyserini_ance.pipeline.mining.cached_rankings", ranked)
    source, asks = {"kind": "ann", "top_k": 28}, {"kind": "teacher", "teacher": "bm25", "max_score": 2.5}
    settings = {"num_negatives": None, "cache": recipe.cache}
    mined = pa.mine(pa.load_encoder(run), collection, source, [asks], bm25={"hits": 7}, **settings)
    assert asked == [("train", 7, False)] and mined.dropped["teacher"] == 15


def test_random_negatives_need_no_vectors(run, recipe, collection):
    mined = pa.mine(pa.load_encoder(run), collection, "random", num_negatives=5, cache=recipe.cache)
    assert mined.rows.shape == (15, 5) and mined.seconds == {}
    with pytest.raises(ValueError, match="filters are given, but source 'random' takes none; remove them"):
        pa.mine(pa.load_encoder(run), collection, "random", ["duplicates"], cache=recipe.cache)


def test_a_ranking_in_a_file_is_a_source(run, recipe, collection, tmp_path):
    ids = collection.split("train").queries.ids
    (tmp_path / "ranking.trec").write_text("".join(f"{id} Q0 pink-tiger 1 2.5 tag\n" for id in ids))
    source = {"kind": "ranking", "file": str(tmp_path / "ranking.trec")}
    mined = pa.mine(pa.load_encoder(run), collection, source, num_negatives=1, cache=recipe.cache)
    assert {collection.documents.ids[row] for row in mined.rows.ravel().tolist()} == {"pink-tiger"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"source": {"kind": "ann", "topk": 8}},
            r"source is not valid:\n +topk: unknown key 'topk' \(did you mean",
        ),
        ({"source": "anne"}, "unknown kind 'anne' of negatives"),
        ({"source": "live"}, "source 'live' needs a training run"),
        ({"source": "momentum"}, "source 'momentum' needs a training run"),
        ({"filters": ["duplicate"]}, "unknown kind 'duplicate' of filters"),
        ({"split": "trian"}, "no split 'trian'"),
        ({"num_negatives": 0}, "num_negatives: Input should be greater than 0, got 0"),
        ({"num_negatives": -1}, "num_negatives: Input should be greater than 0, got -1"),
        ({"source": "random", "num_negatives": None}, "'random' has no candidates .* pass a number, such as"),
        ({"bm25": {"k1": -3}}, r"bm25 is not valid:\n +k1: Input should be .* 0, got -3$"),
        (
            {"encoding": {"tokens": 3}},
            r"^encoding is not valid:\n +tokens: unknown key 'tokens'; keys here: [a-z_, ]+, got 3$",
        ),
        ({"source": {"kind": "ann", "num_negatives": 4}, "num_negatives": 8}, "num_negatives is 8, but 4 in"),
        (
            {"source": {"kind": "ann", "num_negatives": 4}, "num_negatives": None},
            "num_negatives is None, but 4 in the settings of the source; set it in one place",
        ),
        (
            {"source": ["ann", "bm25"]},
            r"source is \['ann', 'bm25'\]; expected the name of a kind, .*; mix several: {'kind': 'mix',",
        ),
        ({"source": None}, "source is None; expected the name of a kind, or a dict with `kind`; such as"),
        ({"source": {"top_k": 8}}, "source is {'top_k': 8}; expected the name of a kind"),
        (
            {"source": {"kind": "mix", "sources": ["ann"]}, "filters": "duplicates"},
            "filters are given, but source 'mix' takes none; filters belong to the sources of the mix",
        ),
        ({"source": {"kind": "mix", "sources": ["ann", "momentum"]}}, "source 'momentum' needs a training"),
        ({"filters": 5}, "filters is 5; expected one, or a list"),
        ({"source": {"kind": "ann", "top_k": 2}}, "have fewer than num_negatives=8 candidates"),
    ],
)
def test_wrong_arguments_are_named(run, recipe, collection, arguments, message):
    with pytest.raises(ValueError, match=message):
        pa.mine(pa.load_encoder(run), collection, cache=recipe.cache, **{"source": "ann", **arguments})


def test_the_number_of_the_source_holds_unless_another_is_given(run, recipe, collection):
    def chosen(source, **more) -> int:
        return pa.mine(pa.load_encoder(run), collection, source, None, cache=recipe.cache, **more).rows.shape[
            1
        ]

    assert chosen({"kind": "ann", "top_k": 20, "num_negatives": 3}) == 3
    assert chosen(Ann(top_k=20, num_negatives=3), num_negatives=3) == 3
    assert chosen({"kind": "ann", "top_k": 20}) == chosen(Ann(top_k=20)) == 8
    assert inspect.signature(pa.mine).parameters["num_negatives"].default == 8


def test_arguments_of_another_class_are_named(run, collection):
    encoder, model = pa.load_encoder(run), SentenceTransformer(modules=[torch.nn.Identity()])
    for wrong in ("runs/model", model):
        message = (
            f"^encoder is of class {type(wrong).__name__}; expected an Encoder; save the model and pass "
        )
        with pytest.raises(ValueError, match=message):
            pa.mine(wrong, collection)
    with pytest.raises(ValueError, match="^collection is of class dict; expected what load_collection or "):
        pa.mine(encoder, {"kind": "beir"})
    with pytest.raises(ValueError, match=r"^model is of class SentenceTransformer; .* pass the folder$"):
        pa.load_encoder(model)


def test_texts_of_negatives(mined, collection):
    texts = mined.to_texts()
    assert len(texts) == 16  # the first query has two positives
    assert texts[0].keys() == {"query", "positive", "negatives"}
    assert texts[0]["query"] == "query of red apple" == texts[1]["query"]
    assert texts[0]["positive"] == "the apple is red "
    contents = collection.documents.columns["text"]
    assert texts[-1]["negatives"] == [contents[row] for row in mined.rows[-1].tolist()]


def test_dataset_has_the_columns_of_sentence_transformers(mined):
    dataset = mined.to_dataset()
    assert dataset.column_names == ["anchor", "positive", "negative_1", "negative_2", "negative_3"]
    first = mined.to_texts()[0]
    assert [*dataset[0].values()] == [first["query"], first["positive"], *first["negatives"]]


def test_jsonl_for_sentence_transformers_is_loaded_by_datasets(mined, tmp_path):
    from datasets import load_dataset

    for name in ("negatives.jsonl", "packed.jsonl.gz"):
        mined.to_jsonl(tmp_path / name)
        loaded = load_dataset("json", data_files=str(tmp_path / name), cache_dir=tmp_path / "cache")
        assert loaded["train"].to_list() == mined.to_dataset().to_list()
    assert (tmp_path / "packed.jsonl.gz").read_bytes().startswith(b"\x1f\x8b")


def test_jsonl_for_tevatron_is_read_again_as_a_ranking(mined, run, recipe, collection, tmp_path):
    mined.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    [first, *_] = map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())
    assert [passage["docid"] for passage in first["positive_passages"]] == ["red-apple", "red-tiger"]
    source = {"kind": "ranking", "file": str(tmp_path / "train.jsonl")}
    again = pa.mine(pa.load_encoder(run), collection, source, num_negatives=None, cache=recipe.cache)
    np.testing.assert_array_equal(again.table.candidates[:, :3], mined.rows)


def test_unequal_numbers_are_refused_for_sentence_transformers(run, recipe, collection, tmp_path):
    filters = [{"kind": "absolute_margin", "margin": 0.0}]
    source = {"kind": "ann", "top_k": 20, "oversample": 0}
    mined = pa.mine(pa.load_encoder(run), collection, source, filters, num_negatives=None, cache=recipe.cache)
    assert len(set((mined.rows != PADDING).sum(1).tolist())) > 1
    with pytest.raises(ValueError, match="sentence-transformers needs equally many") as error:
        mined.to_jsonl(tmp_path / "negatives.jsonl")
    number = int(re.search("num_negatives=([0-9]+)", str(error.value))[1])
    advised = {**source, "min_candidates": number}
    again = pa.mine(
        pa.load_encoder(run), collection, advised, filters, num_negatives=number, cache=recipe.cache
    )
    assert number > 0 and len(again.to_dataset()) > 0
    assert [*tmp_path.iterdir()] == []
    mined.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    with pytest.raises(ValueError, match="unknown format 'beir'; formats: sentence-transformers, tevatron"):
        mined.to_jsonl(tmp_path / "x", format="beir")


def test_search_equals_a_full_sort():
    rng = np.random.default_rng(0)
    queries, documents = (rng.standard_normal((n, 16), np.float32) for n in (7, 100))
    scores, rows = pa.search(queries, documents, k=10)
    expected = np.argsort(-(queries @ documents.T), axis=1)[:, :10]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ documents.T, expected, 1), rtol=1e-5)


def test_fewer_documents_than_k_give_as_many_columns():
    scores, rows = pa.search(np.ones((2, 3)), np.eye(3), k=np.int64(5))
    assert scores.tolist() == [[1, 1, 1]] * 2 and rows.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("filters", ["duplicates", {"kind": "duplicates"}, Duplicates()])
def test_one_filter_and_one_measure_need_no_list(run, recipe, collection, filters):
    source, more = {"kind": "ann", "top_k": 8}, {"num_negatives": 2, "cache": recipe.cache}
    one, listed = (pa.mine(pa.load_encoder(run), collection, source, f, **more) for f in (filters, [filters]))
    assert one.dropped == listed.dropped and "duplicates" in one.dropped
    np.testing.assert_array_equal(one.rows, listed.rows)
    assert pa.evaluate({"q": {"d": 1.0}}, {"q": {"d": 1}}, "RR@10") == {"RR@10": 1.0}


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


def test_files_that_are_missing_are_named():
    with pytest.raises(FileNotFoundError, match=r"^run: no file run\.trec; the working directory is /"):
        pa.evaluate("run.trec", {"q": {"a": 1}})
    with pytest.raises(FileNotFoundError, match=r"^qrels: no file qrels\.txt; the working"):
        pa.evaluate({"q": {"a": 1.0}}, "qrels.txt")
    with pytest.raises(ValueError, match=r"^run is of class list; expected a file, or a mapping by query"):
        pa.evaluate([], {"q": {"a": 1}})


def test_evaluate_equals_the_results_table(run):
    files = [run.directory / name for name in ("run.test.trec", "qrels.test.txt")]
    measured = pa.evaluate(*files, ["RR@10", "R@20"])
    assert measured == pytest.approx({name: run.table[-1][name] for name in ("RR@10", "R@20")}, abs=1e-4)


def test_component_classes_of_the_working_directory_are_found(tmp_path):
    """The console script puts the working directory on the path, as `python -m` does."""
    (tmp_path / "own_filters.py").write_text(
        """
from pyserini_ance.negatives.filters.base import Filter
class Nothing(Filter):
    def mask(self, candidates):
        return candidates.rows < -1
"""
    )
    program = """
import sys
from pathlib import Path
sys.path[:] = [entry for entry in sys.path if entry not in ("", sys.argv[1])]  # as a console script begins
from pyserini_ance import __main__
from pyserini_ance.recipe.components import component_class
__main__.main = lambda: print(component_class("filters", "own_filters:Nothing").__name__)
__main__.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "Nothing\n", done.stderr
