"""Search by bf16 with a proof, against numpy and against the search in fp32."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from helpers.device_counts import META, DeviceCounts

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import bf16_scan, search
from pyserini_ance.vectors.bf16_scan import CpuScan, DeviceScan
from pyserini_ance.vectors.search import searcher

KINDS = {"device": DeviceScan, "cpu": CpuScan}
FEWEST = dict(QUERIES=8, NUMBERS=8 * 48, DIMENSIONS=4, DOCUMENTS=100, PER_RESULT=1.2)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Let small searches pay, in several blocks."""
    for name, few in FEWEST.items():
        monkeypatch.setattr(bf16_scan, f"FEWEST_{name}", few)
    for name, few in {"QUERIES_PER_BLOCK": 7, "SCORES_IN_CACHE": 7 * 640}.items():
        monkeypatch.setattr(search, name, few)


def drawn(queries: int, documents: int, mean: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of 48 numbers with a common part that is `mean` times as long as the rest."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=48)
    vectors = rng.normal(size=(queries + documents, 48)) + mean * common
    made = torch.from_numpy(vectors.astype(np.float32))
    return made[:queries], made[queries:]


def by_bf16(documents: torch.Tensor, kind: str = "device") -> Callable:
    """A search in bf16, and in fp32 where there is no proof, as `searcher` makes it."""
    fp32 = searcher(documents, "torch", "cpu", World())
    return partial(search._search_by_bf16, KINDS[kind], documents, World(), 64, fp32)


def proven(documents: torch.Tensor, queries: torch.Tensor, k: int, kind: str = "device") -> torch.Tensor:
    """Which queries (Q,) need no search in fp32."""
    scan = KINDS[kind](documents, [queries], k)
    for first in range(0, len(documents), 1000):
        scan.update(first, min(first + 1000, len(documents)))
    return scan.result()[1]


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
    monkeypatch.setattr(bf16_scan, "candidates_of", lambda k: k + candidates)
    made = np.random.default_rng(k).integers(-3, 4, (420, 4)).astype(np.float32) + 1000
    queries, documents = torch.from_numpy(made).split([20, 400])
    found = by_bf16(documents, kind)(queries, k)
    for one, other in zip(found, searcher(documents, "torch", "cpu", World())(queries, k), strict=True):
        assert torch.equal(one, other)


def test_documents_that_bf16_cannot_tell_apart_are_searched_in_fp32(monkeypatch):
    queries, documents = drawn(30, 20, 0)
    documents = documents.repeat_interleave(50, 0)
    documents += torch.randn(documents.shape, generator=torch.Generator().manual_seed(0)) * 1e-4
    monkeypatch.setattr(bf16_scan, "candidates_of", lambda k: k + 2)
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
    find = partial(search._search_by_bf16, DeviceScan, documents, World(), 640, fp32)
    with DeviceCounts() as counts, pytest.raises((RuntimeError, NotImplementedError)):  # nonzero has no shape
        find(queries, 20)
    assert counts.waits == {"nonzero": 1}, counts.places


def test_bf16_is_for_many_queries_by_auto_in_documents_that_a_gpu_holds(caplog, monkeypatch):
    monkeypatch.setattr(search, "resolve_precision", lambda *_: "bf16")
    queries, documents = drawn(8, 300, 0)
    ways = [(documents, "auto"), (documents.numpy(), "auto"), (documents, "torch")]
    by_auto = [searcher(vectors, way, "cuda", World()) for vectors, way in ways]
    by_torch = searcher(documents, "torch", "cpu", World())
    by_blocks = [search._search_blocks] * 2
    assert [find.func for find in by_auto] == [search._search_by_bf16, *by_blocks]
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceScan, "__init__", None)
        few = search._search_by_bf16(DeviceScan, documents, World(), 64, by_torch, queries[:7], 5)
    assert torch.equal(few[1], by_torch(queries[:7], 5)[1]) and not caplog.text
    by_bf16(documents)(queries, 5)
    assert "search of 300 documents for 8 queries on cpu: in bf16, rescored in fp32; 0 queries" in caplog.text


@pytest.mark.parametrize("k", [1, 10, 200])
@pytest.mark.parametrize("distance", [1, 8, 16])
def test_a_sample_shows_nearly_always_what_a_candidate_scores(k, distance):
    """Where good documents are, even at equal distances, a search in fp32 is left for few queries or none."""
    queries, documents = drawn(100, 70_000, 0)
    documents[::distance] += 0.3 * queries.mean(0)
    scan = CpuScan(documents, [queries], k)
    above = (documents.double() - scan.mean) @ queries.double().T > scan._thresholds[0]
    assert proven(documents, queries, k, "cpu").sum() >= 99
    assert above.sum(0).float().mean() < 10 * k + 400


def queries_in_fp32(documents: torch.Tensor, queries: torch.Tensor, caplog) -> str:
    """What the log says of a search whose rows are those of the exact scores."""
    caplog.clear()
    expected = (queries.double() @ documents.double().T).topk(20).indices
    with caplog.at_level("INFO"):
        assert torch.equal(by_bf16(documents, "cpu")(queries, 20)[1].long(), expected)
    return caplog.text.partition("rescored in fp32; ")[2].strip()


def test_queries_with_too_many_candidates_are_searched_in_fp32(monkeypatch, caplog):
    """A long document makes all errors as large as its own, whether the sample has it or not."""
    queries, documents = drawn(30, 20_000, 0)
    assert queries_in_fp32(documents, queries, caplog) == "0 queries in fp32 alone"
    for row in range(800, 808):  # one of them is in the sample
        other = documents.clone()
        other[row] *= -50
        assert queries_in_fp32(other, queries, caplog) == "30 queries in fp32 alone"
    monkeypatch.setattr(bf16_scan, "MOST_CANDIDATES", 0.1)
    assert queries_in_fp32(documents, queries, caplog) == "30 queries in fp32 alone"


def test_on_a_cpu_bf16_is_for_its_instructions(processor):
    vectors = drawn(0, 300, 0)[1].numpy()
    has_bf16 = processor in ("amx", "zen4", "zen5")
    for documents, backend, is_scan in [
        (vectors, "auto", has_bf16),
        (vectors, "faiss", False),
        (vectors[:, ::2], "auto", False),  # not contiguous
    ]:
        find = searcher(documents, backend, "cpu", World())
        assert find.func == (search._search_by_bf16 if is_scan else search._search_by_faiss)


def test_searches_rank_alike_on_every_processor(processor):
    queries, documents = drawn(30, 20_000, 10)
    expected = (queries.double() @ documents.double().T).topk(20).indices
    assert torch.equal(searcher(documents.numpy(), "auto", "cpu", World())(queries, 20)[1].long(), expected)


def test_few_queries_or_documents_are_not_worth_rounding_the_documents():
    def pays(queries: int, documents: int, dimension: int, k: int) -> bool:
        return CpuScan.pays(queries, torch.empty(documents, dimension), k)

    assert pays(8, 100, 48, 20) and pays(96, 100, 4, 20) and not pays(200, 100, 3, 20)
    assert not pays(7, 100, 48, 20) and not pays(8, 99, 48, 20) and not pays(8, 100, 48, 99)
