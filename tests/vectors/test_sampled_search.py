"""What `SampledSearch` does otherwise than `CentredSearch`; test_sampled_search.py has what both do."""

import pytest
import torch
from helpers.bf16_search import by_bf16, drawn, lower_limits, proven

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import sampled_search, search
from pyserini_ance.vectors.sampled_search import CentredDocuments, SampledSearch, held_bytes, may_hold
from pyserini_ance.vectors.search import searcher


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    lower_limits(monkeypatch)


@pytest.mark.parametrize("k", [1, 10, 200])
@pytest.mark.parametrize("distance", [1, 8, 16])
def test_a_sample_shows_nearly_always_what_a_candidate_scores(k, distance):
    """Where good documents are, even at equal distances, a search in fp32 is left for few queries or none."""
    queries, documents = drawn(100, 70_000, 0)
    documents[::distance] += 0.3 * queries.mean(0)
    searched = SampledSearch(CentredDocuments(documents), [queries], k)
    list(searched.prepare())
    above = (documents.double() - searched.documents.mean) @ queries.double().T > searched._thresholds[0]
    assert proven(documents, queries, k, "sampled").sum() >= 99
    assert above.sum(0).float().mean() < 10 * k + 400


def rows_found(documents: torch.Tensor, queries: torch.Tensor, caplog) -> str:
    """What the log says of a search whose rows are those of the exact scores."""
    caplog.clear()
    expected = (queries.double() @ documents.double().T).topk(20).indices
    with caplog.at_level("INFO"):
        assert torch.equal(by_bf16(documents, "sampled")(queries, 20)[1].long(), expected)
    return caplog.text


def test_where_bf16_would_leave_too_many_candidates_fp32_searches_at_once(caplog):
    """A long document makes all errors as large as its own: unless the sample misses it, it is seen early."""
    queries, documents = drawn(30, 20_000, 0)
    sampled = int(sampled_search._one_of_each(sampled_search.LEAST_STRIDE, 2496)[100])
    documents[sampled] *= -50
    assert "bf16 would leave too many candidates" in rows_found(documents, queries, caplog)
    documents[sampled] /= -50
    documents[sampled + 1] *= -50
    assert "in bf16, rescored in fp32; 30 queries in fp32 alone" in rows_found(documents, queries, caplog)


def test_a_query_with_more_candidates_than_the_sample_promised_is_searched_in_fp32(monkeypatch, caplog):
    queries, documents = drawn(30, 20_000, 0)
    assert "; 0 queries in fp32 alone" in rows_found(documents, queries, caplog)
    monkeypatch.setattr(sampled_search, "MOST_CANDIDATES", 0.1)
    assert "; 30 queries in fp32 alone" in rows_found(documents, queries, caplog)


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
    def pays(queries: int, documents: int, dimension: int, k: int, is_held: bool = False) -> bool:
        vectors = torch.empty(documents, dimension)
        return SampledSearch.pays(queries, CentredDocuments(vectors, is_held), k)

    assert pays(8, 100, 48, 20) and pays(96, 100, 4, 20) and not pays(200, 100, 3, 20)
    assert not pays(7, 100, 48, 20) and not pays(8, 99, 48, 20) and not pays(8, 100, 48, 99)
    assert pays(3, 100, 48, 20, is_held=True) and not pays(2, 100, 48, 20, is_held=True)


def test_held_documents_are_rounded_once_for_all_searches(monkeypatch):
    queries, documents = drawn(30, 20_000, 10)
    rounded, once = [], CentredDocuments._round

    def counting(self, parts, count):
        rounded.append(count)
        return once(self, parts, count)

    monkeypatch.setattr(CentredDocuments, "_round", counting)
    find, expected = by_bf16(documents, "held"), (queries.double() @ documents.double().T)
    for asked in (slice(0, 3), slice(3, 30), slice(0, 3)):
        assert torch.equal(find(queries[asked], 20)[1].long(), expected[asked].topk(20).indices)
    assert rounded == [20_000]
    by_bf16(documents, "sampled")(queries, 20)
    assert len(rounded) == 2 + len(range(0, 20_000, 64))  # the sample, and each block


@pytest.mark.parametrize("share, is_held", [(0.25, True), (1e-9, False)])
def test_searches_that_are_repeated_hold_the_documents_if_the_machine_has_the_memory(
    monkeypatch, share, is_held
):
    monkeypatch.setattr(search, "cpu_has_fast_bf16", lambda: True)
    monkeypatch.setattr(sampled_search, "HELD_SHARE", share)
    documents = drawn(0, 300, 0)[1].numpy()
    assert may_hold(*documents.shape) is is_held
    once, repeated = (
        searcher(documents, "auto", "cpu", World(), is_repeated=each).args[1] for each in (False, True)
    )
    assert (once.is_held, repeated.is_held) == (False, is_held)


def test_held_documents_take_what_is_counted():
    held = CentredDocuments(drawn(0, 20_000, 0)[1], is_held=True)
    held.sample(sampled_search.LEAST_STRIDE)
    taken = [held._all.vectors, *(sample.vectors for sample in held._samples.values())]
    counted, measured = held_bytes(20_000, 48), sum(each.nbytes for each in taken)
    assert 0.99 * counted < measured <= counted


def test_vectors_that_are_not_contiguous_are_searched_by_faiss_alone(monkeypatch):
    monkeypatch.setattr(search, "cpu_has_fast_bf16", lambda: True)
    queries, documents = drawn(30, 300, 0)
    find = searcher(documents.numpy()[:, ::2], "auto", "cpu", World())
    assert find.func == search._search_by_faiss
    assert torch.equal(
        find(queries[:, ::2], 5)[1].long(), (queries[:, ::2] @ documents[:, ::2].T).topk(5).indices
    )
