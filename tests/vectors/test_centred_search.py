"""Search by bf16 with a proof, against numpy and against the search in fp32."""

from functools import partial

import numpy as np
import pytest
import torch
from helpers.device_counts import META, DeviceCounts

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import centred_search, search
from pyserini_ance.vectors.centred_search import CentredSearch, SampledSearch
from pyserini_ance.vectors.search import searcher

Kind = type[CentredSearch | SampledSearch]
LIMITS = {
    "FEWEST_QUERIES": 8,
    "FEWEST_NUMBERS": 8 * 48,
    "FEWEST_DIMENSIONS": 4,
    "FEWEST_DOCUMENTS": 100,
    "FEWEST_PER_RESULT": 1.2,
}
KINDS = pytest.mark.parametrize("kind", [CentredSearch, SampledSearch])


def drawn(queries: int, documents: int, mean: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of 48 numbers with a common part that is `mean` times as long as the rest."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=48)
    vectors = rng.normal(size=(queries + documents, 48)) + mean * common
    made = torch.from_numpy(vectors.astype(np.float32))
    return made[:queries], made[queries:]


def by_bf16(
    documents: torch.Tensor, queries: torch.Tensor, k: int, kind: Kind = CentredSearch
) -> tuple[torch.Tensor, torch.Tensor]:
    fp32 = searcher(documents, "torch", "cpu", World())
    return search._search_many(kind, documents, World(), 64, fp32, queries, k)


def proven(
    documents: torch.Tensor, queries: torch.Tensor, k: int, kind: Kind = CentredSearch
) -> torch.Tensor:
    """Which queries (Q,) need no search in fp32."""
    centred = kind(documents, [queries], k)
    list(centred.prepare())
    for first in range(0, len(documents), 1000):
        for _ in centred.update(first, min(first + 1000, len(documents))):
            pass
    return centred.result()[1]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(search, "QUERIES_PER_BLOCK", 7)
    for name, few in LIMITS.items():
        monkeypatch.setattr(centred_search, name, few)


@KINDS
@pytest.mark.parametrize("mean", [0, 10, 100])
def test_ranks_as_numpy_does_and_a_common_part_does_not_spoil_the_proof(mean, kind):
    queries, documents = drawn(30, 8000, mean)
    exact = queries.double() @ documents.double().T
    scores, rows = by_bf16(documents, queries, 20, kind)
    assert (scores.dtype, rows.dtype) == (torch.float32, torch.int32)
    expected = exact.sort(dim=1, descending=True, stable=True)
    assert torch.equal(rows.long(), expected.indices[:, :20])
    torch.testing.assert_close(scores.double(), expected.values[:, :20], rtol=1e-5, atol=0)
    assert proven(documents, queries, 20, kind).sum() >= 25


@KINDS
@pytest.mark.parametrize("k", [1, 20, 300, 500])
@pytest.mark.parametrize("candidates", [1, 60])
def test_ties_rank_as_in_the_search_by_fp32(monkeypatch, k, candidates, kind):
    """Whole numbers, exact in fp32; ties that leave the candidates have no proof."""
    monkeypatch.setattr(centred_search, "candidates_of", lambda k: k + candidates)
    rng = np.random.default_rng(k)
    queries, documents = (
        torch.from_numpy(rng.integers(-3, 4, (count, 4)).astype(np.float32) + 1000) for count in (20, 400)
    )
    found = by_bf16(documents, queries, k, kind)
    for one, other in zip(found, searcher(documents, "torch", "cpu", World())(queries, k), strict=True):
        assert torch.equal(one, other)


def test_documents_that_bf16_cannot_tell_apart_are_searched_in_fp32(monkeypatch):
    queries, documents = drawn(30, 20, 0)
    documents = documents.repeat_interleave(50, 0)
    documents += torch.randn(documents.shape, generator=torch.Generator().manual_seed(0)) * 1e-4
    monkeypatch.setattr(centred_search, "candidates_of", lambda k: k + 2)
    assert proven(documents, queries, 20).sum() < 10
    exact = queries.double() @ documents.double().T
    found = exact.gather(1, by_bf16(documents, queries, 20)[1].long())
    torch.testing.assert_close(found, exact.topk(20).values, rtol=0, atol=4e-6)  # where fp32 ends


@KINDS
def test_vectors_without_values_have_no_proof(kind):
    queries, documents = drawn(3, 20_000, 0)
    queries[1, 5] = np.nan
    assert proven(documents, queries, 20, kind).tolist() == [True, False, True]
    documents[7, 5] = np.nan
    assert not proven(documents, queries, 20, kind).any()


@pytest.mark.parametrize("k", [1, 10, 200])
@pytest.mark.parametrize("distance", [1, 8, 16])
def test_a_sample_shows_nearly_always_what_a_candidate_scores(k, distance):
    """Where good documents are, even at equal distances, a search in fp32 is left for few queries or none."""
    queries, documents = drawn(100, 70_000, 0)
    documents[::distance] += 0.3 * queries.mean(0)
    searched = SampledSearch(documents, [queries], k)
    list(searched.prepare())
    above = (documents.double() - searched.mean) @ queries.double().T > searched._thresholds[0]
    assert proven(documents, queries, k, SampledSearch).sum() >= 99
    assert above.sum(0).float().mean() < 10 * k + 400


def rows_found(documents: torch.Tensor, queries: torch.Tensor, caplog) -> str:
    """What the log says of a search whose rows are those of the exact scores."""
    caplog.clear()
    expected = (queries.double() @ documents.double().T).topk(20).indices
    with caplog.at_level("INFO"):
        assert torch.equal(by_bf16(documents, queries, 20, SampledSearch)[1].long(), expected)
    return caplog.text


def test_where_bf16_would_leave_too_many_candidates_fp32_searches_at_once(caplog):
    """A long document makes all errors as large as its own: unless the sample misses it, it is seen early."""
    queries, documents = drawn(30, 20_000, 0)
    sampled = int(centred_search._one_of_each(centred_search.LEAST_STRIDE, 2496)[100])
    documents[sampled] *= -50
    assert "bf16 would leave too many candidates" in rows_found(documents, queries, caplog)
    documents[sampled] /= -50
    documents[sampled + 1] *= -50
    assert "in bf16, rescored in fp32; 30 queries in fp32 alone" in rows_found(documents, queries, caplog)


def test_a_query_with_more_candidates_than_the_sample_promised_is_searched_in_fp32(monkeypatch, caplog):
    queries, documents = drawn(30, 20_000, 0)
    assert "; 0 queries in fp32 alone" in rows_found(documents, queries, caplog)
    monkeypatch.setattr(centred_search, "MOST_CANDIDATES", 0.1)
    assert "; 30 queries in fp32 alone" in rows_found(documents, queries, caplog)


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
    by_bf16(documents, queries, 5)
    assert "search of 300 documents for 8 queries on cpu: in bf16, rescored in fp32; 0 queries" in caplog.text


@pytest.mark.parametrize(
    "has_bf16, backend, memory_gib, by_faiss",
    [
        (True, "auto", None, False),
        (True, "auto", 1, True),
        (True, "faiss", None, True),
        (False, "auto", None, True),
    ],
)
def test_on_a_cpu_bf16_is_for_its_instructions(monkeypatch, has_bf16, backend, memory_gib, by_faiss):
    monkeypatch.setattr(search, "cpu_has_fast_bf16", lambda: has_bf16)
    documents = drawn(0, 300, 0)[1].numpy()
    find = searcher(documents, backend, "cpu", World(), memory_gib=memory_gib)
    assert find.func == (search._search_by_faiss if by_faiss else search._search_many)


def test_few_queries_or_documents_are_not_worth_rounding_the_documents():
    pays = SampledSearch.pays
    assert pays(8, 100, 48, 20) and pays(96, 100, 4, 20) and not pays(200, 100, 3, 20)
    assert not pays(7, 100, 48, 20) and not pays(8, 99, 48, 20) and not pays(8, 100, 48, 99)


def test_vectors_that_are_not_contiguous_are_searched_by_faiss_alone(monkeypatch):
    monkeypatch.setattr(search, "cpu_has_fast_bf16", lambda: True)
    queries, documents = drawn(30, 300, 0)
    find = searcher(documents.numpy()[:, ::2], "auto", "cpu", World())
    assert find.func == search._search_by_faiss
    assert torch.equal(
        find(queries[:, ::2], 5)[1].long(), (queries[:, ::2] @ documents[:, ::2].T).topk(5).indices
    )
