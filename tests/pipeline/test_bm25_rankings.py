"""BM25's rankings are made once, by a stand-in; tests/pyserini_bridge/test_bm25.py asks Pyserini."""

from pathlib import Path

import numpy as np
import pytest
from helpers.stages import RANDOM, make_stage

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.pipeline.bm25_rankings import (
    Bm25Request,
    bm25_for_evaluation,
    bm25_for_training,
    bm25_index,
    cached_rankings,
    read_candidates,
    write_rankings,
)
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.pyserini_bridge import bm25

RUN = {"a": make_stage({"kind": "bm25"}, steps=1)}
TRAIN, TEST = Bm25Request("train", 5), Bm25Request("test", 3)


@pytest.fixture
def asked(monkeypatch):
    """What Pyserini was asked for: documents, and (queries, hits, RM3) of each ranking."""
    calls = []

    def retrieve(documents, wanted, *rest):
        calls.append((list(documents), [(one.queries, one.hits, one.rm3) for one in wanted]))
        for one in wanted:
            one.output.parent.mkdir(parents=True, exist_ok=True)
            one.output.write_text(f"{len(one.queries)} queries, {one.hits} hits")

    monkeypatch.setattr(bm25, "retrieve", retrieve)
    return calls


@pytest.fixture
def recipe(small_recipe, tmp_path):
    return small_recipe(RUN, cache=str(tmp_path / "cache"), bm25={})


def ranked(recipe, *given) -> list[Path]:
    return cached_rankings(recipe.bm25, recipe.cache, *given)


def test_what_a_recipe_wants(small_recipe):
    test = {"split": ["test", "dev"], "measures": {"test": ["RR@10"], "dev": ["R@120"]}}
    settings = {"bm25": {"hits": 107}, "final_evaluation": {**test, "rows": ["bm25", "bm25+rm3"]}}
    recipe = small_recipe(RUN, **settings)
    assert bm25_for_training(recipe) == Bm25Request("train", 107)
    wanted = [one for requests in bm25_for_evaluation(recipe).values() for one in requests]
    assert wanted == [Bm25Request(split, 120, rm3) for rm3 in (False, True) for split in ("test", "dev")]
    ltre = make_stage({"kind": "live"}, trainable="query_tower")
    ltre["terms"]["query"]["loss"] = {"kind": "ranknet"}
    # What is found is compared with it.
    assert bm25_for_training(small_recipe({"a": ltre}, **settings)) == Bm25Request("train", 107)
    alone = small_recipe({"a": make_stage(RANDOM)}, bm25=None)
    assert (bm25_for_training(alone), bm25_for_evaluation(alone)) == (None, {})


def test_another_run_finds_them_and_has_files_of_its_own(recipe, asked, tmp_path):
    collection = read_collection(recipe)
    outputs = {tmp_path / "one" / "train.trec": TRAIN, tmp_path / "one" / "test.trec": TEST}
    write_rankings(recipe, collection, outputs)
    again = {tmp_path / "two" / "train.trec": TRAIN, tmp_path / "two" / "test.trec": Bm25Request("test", 4)}
    store_collection(collection, recipe.cache)
    write_rankings(recipe, open_collection(recipe.cache, collection.digest), again)
    assert [[hits for _, hits, _ in wanted] for _, wanted in asked] == [[5, 3], [4]]
    assert asked[0][0] == asked[1][0]  # a mapped collection is the same
    one, two = (folder / "train.trec" for folder in (tmp_path / "one", tmp_path / "two"))
    assert one.read_text() == two.read_text() == "15 queries, 5 hits"
    two.write_text("mine")
    assert [place.read_text() for place in ranked(recipe, collection, [TRAIN])] == ["15 queries, 5 hits"]
    write_rankings(recipe, collection, {two: TRAIN})
    assert two.read_text() == "mine"
    assert bm25_index(recipe.bm25, recipe.cache, collection).name == collection.documents.digest


@pytest.mark.parametrize("change", [{"k1": 0.8}, {"b": 0.5}, {"index": "beir"}, {"index": "lucene"}])
def test_other_settings_are_other_rankings(recipe, asked, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lucene").mkdir()
    collection = read_collection(recipe)
    other = recipe.model_copy(update={"bm25": recipe.bm25.model_copy(update=change)})
    places = [ranked(which, collection, [TRAIN])[0] for which in (recipe, other, recipe)]
    assert len(asked) == 2 and len(set(places)) == 2
    if change.get("index") == "lucene":  # an index that has changed
        Path("lucene/segments_1").write_text("one")
        assert ranked(other, collection, [TRAIN])[0] not in places
        return
    requests = [Bm25Request("train", 6), Bm25Request("test", 5)]
    assert ranked(recipe, collection, requests)[0] not in places and len(asked) == 3


def test_the_first_documents_of_each_query_by_a_ranking(tmp_path):
    documents = Texts(["a", "b", "c"], {"text": ["one", "two", "three"]})
    queries = Texts(["1", "2", "3"], {"text": ["x", "y", "z"]})
    split = Split("dl19", queries, Qrels.of([0, 1, 2], [0, 1, 2], [1, 1, 1], 3))
    run, collection = tmp_path / "run", Collection(documents, {})
    run.write_text("1 Q0 c 1 2.0 t\n1 Q0 a 2 1.0 t\n1 Q0 b 3 0.5 t\n3 Q0 a 1 1.0 t\n")
    (tmp_path / "file").write_text("2 b 1\n")
    found = read_candidates(run, split, collection)
    assert found[:, :3].tolist() == [[2, 0, 1], [PADDING] * 3, [0, PADDING, PADDING]]
    assert found.shape == (3, 100) and found.dtype == np.int32
    assert read_candidates(tmp_path / "file", split, collection)[1, 0] == 1
    (tmp_path / "file").write_text("2\tb\ty\ttwo\n")
    with pytest.raises(ValueError, match="file, line 1: candidates in no order; expected a ranking, o"):
        read_candidates(tmp_path / "file", split, collection)
