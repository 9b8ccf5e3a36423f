from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.filter_fixture import table_of
from helpers.saved_model import save_model, view
from helpers.small_set import ONE_STEP
from helpers.stages import changed

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders import hardware
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.pipeline.preparation import tokenize

DOCUMENT = "encoder.tokenization.document"
ENCODING = {"precision": "fp32", "tokens_per_batch": 64}
CHOICES = [(around, empty) for around in ("per_passage", "per_document") for empty in (False, True)]


@pytest.fixture
def recipe(small_recipe, tmp_path):
    return save_model(small_recipe({"a": ONE_STEP}, encoding=ENCODING), tmp_path)


@pytest.fixture
def snapshot(recipe, tmp_path):
    return view(World(), recipe, tmp_path)


def search(snapshot: Snapshot, k: int) -> tuple[np.ndarray, np.ndarray]:
    return snapshot.search("query", np.arange(15), "document", k)


def test_rankings_are_those_of_the_checkpoint(snapshot):
    encoder, collection = load_encoder(snapshot.model), snapshot.collection
    documents = encoder.encode(collection.documents.take(range(30)), "document")
    queries = encoder.encode(snapshot.split.queries.take(range(15)), "query")
    scores, rows = search(snapshot, 7)
    assert np.allclose(snapshot.document_vectors[:], documents, atol=1e-5)
    assert np.allclose(snapshot.query_vectors, queries, atol=1e-5)
    expected = queries @ documents.T
    assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :7], atol=1e-4)
    assert np.allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-4)


def test_other_batches_are_encoded_elsewhere(snapshot, recipe, tmp_path):
    first, other = snapshot, view(World(), changed(recipe, "encoding.tokens_per_batch=32"), tmp_path)
    np.testing.assert_allclose(first.document_vectors[:], other.document_vectors[:], atol=1e-5)
    assert len(list(snapshot.vectors_folder.iterdir())) == 2


@pytest.fixture(scope="module", params=CHOICES, ids=str)
def in_passages(small_recipe, tmp_path_factory, request) -> tuple[Snapshot, np.ndarray, np.ndarray]:
    """Documents in up to three passages of 10 tokens; each passage's document, its scores (15, passages)."""
    around, empty = request.param
    plain, folder = small_recipe({"a": ONE_STEP}), tmp_path_factory.mktemp("in_passages")
    settings = f"length_tokens: 10, passages: 3, special_tokens: {around}, pad_passages: {str(empty).lower()}"
    recipe = changed(small_recipe({"a": ONE_STEP}, encoding=ENCODING), f"{DOCUMENT}={{{settings}}}")
    save_model(recipe, folder)
    snapshot = view(World(), recipe, folder)
    tokens, pieces = tokenize(plain, snapshot.collection).documents, []
    (before,), (after,), pad = tokens.specials
    for first, last in pairwise(tokens.offsets):
        ids = tokens.ids[first:last].tolist()
        if around == "per_passage":
            passages = [[before, *ids[start : start + 8], after] for start in range(0, min(24, len(ids)), 8)]
        else:
            whole = [before, *ids[:28], after]
            passages = [whole[start : start + 10] for start in range(0, len(whole), 10)]
        pieces.append(passages + [[pad]] * (3 - len(passages)) * empty)
    assert {len(document) for document in pieces} == ({2, 3} if not empty else {3})
    backbone = load_encoder(snapshot.model).towers.documents.transformer.eval()
    with torch.inference_mode():
        hidden = [backbone(input_ids=torch.tensor([piece]))[0][0] for each in pieces for piece in each]
    vectors = torch.stack([states.mean(0) for states in hidden]).numpy()
    of = np.repeat(np.arange(30), [len(document) for document in pieces])
    return snapshot, of, snapshot.query_vectors @ vectors.T


def test_a_document_scores_as_its_best_passage_in_both_directions(in_passages):
    snapshot, of, each = in_passages
    expected = np.stack([each[:, of == document].max(1) for document in range(30)], axis=1)
    anchors = snapshot.anchor_set("document").anchors
    by_query, by_document = ("query", np.arange(15), "document"), ("document", anchors, "query")
    for arguments, scores_of in ((by_query, expected), (by_document, expected.T[anchors])):
        for k in (4, 30, 1000):
            scores, rows = snapshot.search(*arguments, k)
            assert rows.shape == (len(scores_of), min(k, scores_of.shape[1]))
            assert all(len(set(row)) == len(row) for row in rows.tolist())
            assert np.allclose(scores, -np.sort(-scores_of, axis=1)[:, :k], atol=1e-4)
            assert np.allclose(np.take_along_axis(scores_of, rows, 1), scores, atol=1e-4)
        known = snapshot.split.known_positives(arguments[0])
        positives = [max(scores_of[place, known.of(row)]) for place, row in enumerate(arguments[1])]
        assert np.allclose(snapshot.positive_scores(snapshot.anchor_set(arguments[0])), positives, atol=1e-4)
    some, passages = snapshot.encode_documents(np.array([4, 29, 0]))
    best = snapshot.rank(snapshot.query_vectors, some, 3, passages)[0].max(1)
    assert np.allclose(best, expected[:, [4, 29, 0]].max(1), atol=1e-4)


def test_a_depth_in_passages_gives_the_documents_of_the_nearest_passages(in_passages):
    """As in microsoft/ANCE: the positives' passages count, and what is left of the documents is mined."""
    snapshot, of, each = in_passages
    anchor_set = snapshot.anchor_set("query")
    for top_k in (5, 12, 9, 1000):  # 9: from the ranking of 12 passages, which is kept
        table = table_of(Ann(top_k=top_k, top_k_unit="passage"), snapshot, anchor_set)
        for query in range(15):
            known = snapshot.split.qrels.relevant(query).tolist()
            found = table.candidates[query][table.candidates[query] != PADDING].tolist()
            best = np.array([each[query, of == document].max() for document in range(30)])
            scores = table.scores[query][: len(found)]
            assert np.allclose(scores, best[found], atol=1e-4) and (np.diff(scores) <= 0).all()
            # Which of equal scores come first, rounding decides.
            lowest = -np.sort(-each[query])[:top_k][-1]
            surely, perhaps = (set(np.flatnonzero(best > lowest + by)) for by in (1e-4, -1e-4))
            assert surely.difference(known) <= set(found) <= perhaps.difference(known)
            assert len(set(found)) == len(found)
        assert table.counts.min() < top_k


def test_documents_are_not_encoded_again_when_only_the_query_tower_differs(snapshot):
    first, asked = np.array(snapshot.document_vectors[:]), []
    settings = (snapshot.data, snapshot.encoding, snapshot.scratch, "cpu", World())
    again = Snapshot(snapshot.model, "another hash", *settings, document_weights="hash")
    again.encoder.encode_on_device = lambda tokens, rows, *_: asked.extend(rows) or ()
    assert np.array_equal(again.document_vectors[:], first) and asked == []


def precision_of(world, recipe, folder) -> str:
    hardware.processor = lambda: hardware.PROCESSORS["amx" if world.is_main else "plain"]
    return view(world, recipe, folder, precision="auto").precision


def test_processes_agree_on_the_precision(run_processes, recipe, tmp_path):
    assert run_processes(2, precision_of, recipe, tmp_path) == ["bf16", "bf16"]
