"""`mine` of the Python API, next to the refresh of a run, and the forms of what it mines."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from datasets import load_dataset

import pyserini_ance as pa
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.filters.texts import Duplicates
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.vectors import encoding, vector_store

ANN = {"kind": "ann", "top_k": 28}
THINGS = {"tiger": 3, "apple": 2}


def test_mined_tables_equal_those_of_a_refresh(mined, run, collection):
    [expected] = open_generation(RunDir(run.directory).generation("ance", 0), {}).tables.values()
    np.testing.assert_array_equal(mined.table.anchors, expected.anchors)
    np.testing.assert_array_equal(mined.table.candidates, expected.candidates)
    np.testing.assert_array_equal(mined.table.scores, expected.scores)
    assert mined.dropped == expected.dropped and mined.rows.shape == (len(mined), 3) == (15, 3)
    for chosen, candidates in zip(mined.rows.tolist(), mined.table.candidates.tolist(), strict=True):
        assert len({*chosen} & {*candidates}) == 3
    assert repr(mined) == "MinedNegatives('train' from 'ann': 15 queries, 45 negatives)"


def test_queries_without_min_candidates_are_left_out(mine):
    """Of 30 documents, the first query has two positives, the others have one."""
    found = mine({"kind": "ann", "top_k": 30, "min_candidates": 29}, num_negatives=3)
    assert found.table.anchors.tolist() == list(range(1, 15)) and found.rows.shape == (14, 3)


def test_the_same_arguments_mine_the_same_negatives(mine, mined, recipe):
    np.testing.assert_array_equal(mine(num_negatives=3).rows, mined.rows)
    assert (mine(num_negatives=3, seed=1).rows != mined.rows).any()
    np.testing.assert_array_equal(mine(num_negatives=None).rows, mined.table.candidates)
    top = mine({"kind": "ann", "top_k": 8, "sampling_strategy": "top"}, num_negatives=2)
    np.testing.assert_array_equal(top.rows, mined.table.candidates[:, :2])
    assert not (recipe.cache / "mining").exists() or not [*(recipe.cache / "mining").iterdir()]


def test_threads_mine_with_one_cold_cache(mine, mined, recipe, tmp_path, monkeypatch):
    """Neither has the store of the same vectors when both begin to make it."""
    barrier, make = Barrier(2, timeout=60), vector_store.whole_folder

    def make_together(folder):
        barrier.wait()
        return make(folder)

    def mine_alone(_) -> np.ndarray:
        collection = pa.load_collection(recipe.data.model_dump(mode="json"), cache=tmp_path)
        return mine(num_negatives=3, collection=collection, cache=tmp_path).rows

    monkeypatch.setattr(vector_store, "whole_folder", make_together)
    with ThreadPoolExecutor(2) as threads:
        for rows in threads.map(mine_alone, range(2)):
            np.testing.assert_array_equal(rows, mined.rows)
    assert [*(tmp_path / "mining").iterdir()] == []


def test_a_call_that_ends_leaves_the_vectors_that_another_reads(mine, mined, recipe, monkeypatch):
    """As two processes that mine with one encoder and cache: one has written the vectors, read none."""
    read, scratch, left = encoding.read_vectors, recipe.cache / "mining", []

    def mine_and_read(*arguments):
        monkeypatch.setattr(encoding, "read_vectors", read)
        np.testing.assert_array_equal(mine(num_negatives=3).rows, mined.rows)
        left.extend(path.name for path in scratch.iterdir() if path.is_dir())
        return read(*arguments)

    monkeypatch.setattr(encoding, "read_vectors", mine_and_read)
    np.testing.assert_array_equal(mine(num_negatives=3).rows, mined.rows)
    assert len(left) == 1 and list(scratch.iterdir()) == []


@pytest.fixture
def scores(collection, tmp_path):
    """A ranking of all training queries: pink-tiger, then pink-apple."""
    file, ids = tmp_path / "scores.trec", collection.split("train").queries.ids
    file.write_text("".join(f"{id} Q0 pink-{t} 1 {s} t\n" for id in ids for t, s in THINGS.items()))
    return file


def by_teacher(teacher, then: str) -> dict:
    return {"kind": "teacher", "teacher": teacher, "max_score": 2.5, "then": then}


def test_filters_report_what_they_removed(mine, caplog):
    filters = ["duplicates", {"kind": "relative_margin", "margin": 0.05}]
    mined = mine({"kind": "ann", "top_k": 8}, filters, num_negatives=8)
    assert mined.dropped.keys() == {"known positives", "duplicates", "relative_margin"}
    assert mined.dropped["known positives"] == 16 and (mined.rows != PADDING).all()
    assert caplog.text.count(f"{mined.num_short} of 15 queries") == caplog.text.count("random negatives") == 1
    described = mined.describe()
    assert "| relative_margin" in described and "| ann " in described
    assert "\n- candidates per query: " in described and "\n- candidates removed: " in described


def test_a_filter_that_promotes_adds_positives_to_the_files(mine, collection, scores, tmp_path):
    """pink-tiger is relevant to each query, as the teacher has it; the negatives of none."""
    teacher = {"kind": "ranking", "file": str(scores)}
    filters = (by_teacher(teacher, then) for then in ("promote", "drop"))
    promoted, dropped = (mine(ANN, [one], num_negatives=None) for one in filters)
    row = collection.documents.ids.index("pink-tiger")
    assert promoted.table.promoted.tolist() == [[query, row] for query in range(15)]
    assert "| promoted        |                 15 |" in promoted.describe()
    assert dropped.dropped == {"known positives": 16, "teacher": 15} and dropped.table.promoted is None
    np.testing.assert_array_equal(promoted.rows, dropped.rows)
    assert len(promoted.to_texts()) == len(dropped.to_texts()) + 15 == 31
    promoted.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    for line in map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines()):
        assert line["positive_passages"][-1]["docid"] == "pink-tiger"


def test_what_one_source_of_a_mix_promotes_is_no_negative(mine, collection, scores):
    """Neither as a candidate of the other source nor as a random one."""
    asked = by_teacher({"kind": "ranking", "file": str(scores)}, "promote")
    row = collection.documents.ids.index("pink-tiger")
    for others in ([ANN], []):
        mix = {"kind": "mix", "sources": [*others, {**ANN, "filters": [asked]}], "duplicates": "drop"}
        for number in (None, 27):
            mined = mine(mix, num_negatives=number)
            assert row not in mined.rows and mined.table.promoted[:, 1].tolist() == [row] * 15
            assert all(row in mined.split.qrels.relevant(query) for query in range(15))


def test_a_filter_of_mine_may_ask_bm25(mine, scores, monkeypatch):
    """BM25 ranks as many documents as `bm25.hits` says, also for a source of kind bm25."""
    asked: list = []

    def ranked(bm25, cache, collection, requests):
        asked.extend(requests)
        return [scores]

    monkeypatch.setattr("pyserini_ance.pipeline.mining.cached_rankings", ranked)
    mined = mine(ANN, [by_teacher("bm25", "drop")], num_negatives=None, bm25={"hits": 7})
    assert asked == [("train", 7, False)] and mined.dropped["teacher"] == 15
    mine({"kind": "bm25", "top_k": 1}, [by_teacher("bm25", "drop")], num_negatives=None, bm25={"hits": 200})
    assert asked[1] == ("train", 200, False)


def test_random_negatives_need_no_vectors_and_a_ranking_in_a_file_is_a_source(mine, collection, scores):
    mined = mine("random", num_negatives=5)
    assert mined.rows.shape == (15, 5) and mined.seconds == {}
    mined = mine({"kind": "ranking", "file": str(scores)}, num_negatives=1)
    found = {collection.documents.ids[row] for row in mined.rows.ravel().tolist()}
    assert found <= {"pink-tiger", "pink-apple"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": {"kind": "ann", "topk": 8}}, r"source is not valid:\n +topk"),
        ({"source": "anne"}, "unknown kind 'anne' of negatives"),
        ({"source": "live"}, "source 'live' needs a training run"),
        ({"filters": ["duplicate"]}, "unknown kind 'duplicate' of filters"),
        ({"source": "random", "filters": ["duplicates"]}, "filters are given, but source 'random'"),
        ({"split": "trian"}, "no split 'trian'"),
        ({"num_negatives": 0}, "num_negatives: Input should be greater than 0, got 0"),
        ({"source": "random", "num_negatives": None}, "'random' has no candidates .* pass a number, such as"),
        ({"bm25": {"k1": -3}}, r"bm25 is not valid:\n +k1: Input should be .* 0, got -3$"),
        ({"encoding": {"tokens": 3}}, r"^encoding is not valid:\n +tokens: unknown key 'tokens'"),
        ({"source": {"kind": "ann", "num_negatives": 4}, "num_negatives": 8}, "num_negatives is 8, but 4 in"),
        ({"source": {"kind": "ann", "num_negatives": 4}, "num_negatives": None}, "is None, but 4 in the"),
        ({"source": ["ann", "bm25"]}, r"source is \['ann', 'bm25'\]; .*; mix several: {'kind': 'mix',"),
        ({"source": None}, "source is None; expected the name of a kind, or a dict with `kind`; such as"),
        ({"source": {"kind": "mix", "sources": ["ann"]}, "filters": ["answers"]}, "filters belong to the so"),
        ({"source": {"kind": "mix", "sources": ["ann", "momentum"]}}, "source 'momentum' needs a training"),
        ({"filters": 5}, "filters is 5; expected one, or a list"),
        ({"encoder": "runs/model"}, "^encoder is of class str; expected an Encoder; save the model and "),
        ({"collection": {"kind": "beir"}}, "^collection is of class dict; expected what load_collection or "),
    ],
)
def test_wrong_arguments_are_named(untrained, recipe, collection, arguments, message):
    given = {"encoder": untrained, "collection": collection, "source": "ann", **arguments}
    with pytest.raises(ValueError, match=message):
        pa.mine(cache=recipe.cache, **given)


def test_the_number_of_the_source_holds_unless_another_is_given(mine):
    assert mine({"kind": "ann", "top_k": 20, "num_negatives": 3}).rows.shape[1] == 3
    assert mine(Ann(top_k=20, num_negatives=3), num_negatives=3).rows.shape[1] == 3
    assert mine({"kind": "ann", "top_k": 20}).rows.shape[1] == mine(Ann(top_k=20)).rows.shape[1] == 8


@pytest.mark.parametrize("filters", ["duplicates", {"kind": "duplicates"}, Duplicates()])
def test_one_filter_needs_no_list(mine, filters):
    source = {"kind": "ann", "top_k": 8}
    one, listed = (mine(source, given, num_negatives=2) for given in (filters, [filters]))
    assert one.dropped == listed.dropped and "duplicates" in one.dropped
    np.testing.assert_array_equal(one.rows, listed.rows)


def test_texts_and_files_of_negatives(mine, mined, collection, tmp_path):
    texts = mined.to_texts()
    assert len(texts) == 16  # the first query has two positives
    assert texts[0]["query"] == "query of red apple" == texts[1]["query"]
    assert texts[0]["positive"] == "the apple is red "
    contents = collection.documents.columns["text"]
    assert texts[-1]["negatives"] == [contents[row] for row in mined.rows[-1].tolist()]
    dataset = mined.to_dataset()
    assert dataset.column_names == ["anchor", "positive", "negative_1", "negative_2", "negative_3"]
    assert [*dataset[0].values()] == [texts[0]["query"], texts[0]["positive"], *texts[0]["negatives"]]
    for name in ("negatives.jsonl", "packed.jsonl.gz"):
        mined.to_jsonl(tmp_path / name)
        loaded = load_dataset("json", data_files=str(tmp_path / name), cache_dir=tmp_path / "cache")
        assert loaded["train"].to_list() == dataset.to_list()
    assert (tmp_path / "packed.jsonl.gz").read_bytes().startswith(b"\x1f\x8b")
    mined.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    [first, *_] = map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())
    assert [passage["docid"] for passage in first["positive_passages"]] == ["red-apple", "red-tiger"]
    again = mine({"kind": "ranking", "file": str(tmp_path / "train.jsonl")}, num_negatives=None)
    np.testing.assert_array_equal(again.table.candidates[:, :3], mined.rows)


def test_unequal_numbers_are_refused_for_sentence_transformers(mine, tmp_path):
    filters = [{"kind": "absolute_margin", "margin": 0.0}]
    source = {"kind": "ann", "top_k": 20, "oversample": 0}
    mined = mine(source, filters, num_negatives=None)
    assert len(set((mined.rows != PADDING).sum(1).tolist())) > 1
    with pytest.raises(ValueError, match="sentence-transformers needs equally many") as error:
        mined.to_jsonl(tmp_path / "negatives.jsonl")
    number = int(re.search("num_negatives=([0-9]+)", str(error.value))[1])
    again = mine({**source, "min_candidates": number}, filters, num_negatives=number)
    assert number > 0 and len(again.to_dataset()) > 0 and [*tmp_path.iterdir()] == []
    mined.to_jsonl(tmp_path / "train.jsonl", format="tevatron")
    with pytest.raises(ValueError, match="unknown format 'beir'; formats: sentence-transformers, tevatron"):
        mined.to_jsonl(tmp_path / "x", format="beir")
