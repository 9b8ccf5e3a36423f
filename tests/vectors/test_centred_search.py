"""Search by bf16 with a proof, against numpy and against the search in fp32."""

from functools import partial

import numpy as np
import pytest
import torch
from helpers.bf16_search import KINDS, by_bf16, drawn, lower_limits, proven
from helpers.device_counts import META, DeviceCounts

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import centred_search, search
from pyserini_ance.vectors.centred_search import CentredSearch
from pyserini_ance.vectors.search import searcher

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    lower_limits(monkeypatch)


@every_kind
@pytest.mark.parametrize("mean", [0, 10, 100])
def test_ranks_as_numpy_does_and_a_common_part_does_not_spoil_the_proof(mean, kind):
    queries, documents = drawn(30, 8000, mean)
    exact = queries.double() @ documents.double().T
    scores, rows = by_bf16(documents, kind)(queries, 20)
    assert (scores.dtype, rows.dtype) == (torch.float32, torch.int32)
    expected = exact.sort(dim=1, descending=True, stable=True)
    assert torch.equal(rows.long(), expected.indices[:, :20])
    torch.testing.assert_close(scores.double(), expected.values[:, :20], rtol=1e-5, atol=0)
    assert proven(documents, queries, 20, kind).sum() >= 25


@every_kind
@pytest.mark.parametrize("k", [1, 20, 300, 500])
@pytest.mark.parametrize("candidates", [1, 60])
def test_ties_rank_as_in_the_search_by_fp32(monkeypatch, k, candidates, kind):
    """Whole numbers, exact in fp32; ties that leave the candidates have no proof."""
    monkeypatch.setattr(centred_search, "candidates_of", lambda k: k + candidates)
    rng = np.random.default_rng(k)
    queries, documents = (
        torch.from_numpy(rng.integers(-3, 4, (count, 4)).astype(np.float32) + 1000) for count in (20, 400)
    )
    found = by_bf16(documents, kind)(queries, k)
    for one, other in zip(found, searcher(documents, "torch", "cpu", World())(queries, k), strict=True):
        assert torch.equal(one, other)


def test_documents_that_bf16_cannot_tell_apart_are_searched_in_fp32(monkeypatch):
    queries, documents = drawn(30, 20, 0)
    documents = documents.repeat_interleave(50, 0)
    documents += torch.randn(documents.shape, generator=torch.Generator().manual_seed(0)) * 1e-4
    monkeypatch.setattr(centred_search, "candidates_of", lambda k: k + 2)
    assert proven(documents, queries, 20).sum() < 10
    exact = queries.double() @ documents.double().T
    found = exact.gather(1, by_bf16(documents)(queries, 20)[1].long())
    torch.testing.assert_close(found, exact.topk(20).values, rtol=0, atol=4e-6)  # where fp32 ends


@every_kind
def test_vectors_without_values_have_no_proof(kind):
    queries, documents = drawn(3, 20_000, 0)
    queries[1, 5] = np.nan
    assert proven(documents, queries, 20, kind).tolist() == [True, False, True]
    documents[7, 5] = np.nan
    assert not proven(documents, queries, 20, kind).any()


def test_all_documents_need_no_proof():
    queries, documents = drawn(3, 100, 0)
    assert proven(documents, queries, 60).all()


def test_a_search_waits_once(caplog):
    """For the queries without a proof, when everything is done."""
    queries, documents = torch.empty(20, 8, device=META), torch.empty(3000, 8, device=META)
    fp32 = lambda *_: (torch.ones(1), torch.ones(1))  # noqa: E731
    find = partial(search._search_many, CentredSearch, documents, World(), 640, fp32)
    with DeviceCounts() as counts, pytest.raises((RuntimeError, NotImplementedError)):  # nonzero has no shape
        find(queries, 20)
    assert counts.waits == {"nonzero": 1}, counts.places


def test_bf16_is_for_many_queries_by_auto_in_documents_that_a_gpu_holds(caplog, monkeypatch):
    monkeypatch.setattr(search, "resolve_precision", lambda *_: "bf16")
    queries, documents = drawn(8, 300, 0)
    by_auto, by_torch = (
        [
            searcher(documents, "auto", "cuda", World()),
            searcher(documents.numpy(), "auto", "cuda", World()),
            searcher(documents, "torch", "cuda", World()),
        ],
        searcher(documents, "torch", "cpu", World()),
    )
    assert [find.func for find in by_auto] == [
        search._search_many,
        search._search_blocks,
        search._search_blocks,
    ]
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CentredSearch, "__init__", None)
        few = search._search_many(CentredSearch, documents, World(), 64, by_torch, queries[:7], 5)
    assert torch.equal(few[1], by_torch(queries[:7], 5)[1]) and not caplog.text
    by_bf16(documents)(queries, 5)
    assert "search of 300 documents for 8 queries on cpu: in bf16, rescored in fp32; 0 queries" in caplog.text
