"""Compressed indexes against plain faiss."""

from types import SimpleNamespace

import faiss
import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.storage.files import sha256_file
from pyserini_ance.vectors import faiss_index
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.faiss_index import FactoryIndex, check_index, make_index, new_index, size_bytes
from pyserini_ance.vectors.search import search_arrays

ABOUT = {"weights": "w" * 64}
CODES = "OPQ2,IVF1,PQ2"  # of 8 bits, for 4 dimensions each
FACTORIES = ["OPQ2,IVF1,PQ4x4", "IVF1,PQ4x4", "Flat", "HNSW8"]
RNG = np.random.default_rng(0)
QUERIES, DOCUMENTS = (RNG.normal(size=(count, 8)).astype(np.float32) for count in (7, 300))


def made(folder, factory: str, seed: int = 3, world: World = World(), documents=DOCUMENTS):
    """The folder of an index of the documents."""
    make_index(folder / factory, ShardedVectors.split(documents, world), factory, seed, ABOUT, world)
    return folder / factory


def searched(folder, index: str, k: int = 10, world: World = World()) -> tuple[np.ndarray, np.ndarray]:
    factory, _, search = index.partition(";")
    return search_arrays(FactoryIndex(made(folder, factory, world=world), world, search), QUERIES, k)


def all_searched(world: World, folder, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [searched(folder, factory, k, world) for factory in FACTORIES]


def by_faiss_alone(factory: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(DOCUMENTS[np.random.default_rng(3).permutation(300)])
    index.add(DOCUMENTS)
    return index.search(QUERIES, k)


@pytest.mark.parametrize("k", [20, 1000])
def test_processes_together_find_what_faiss_finds(run_processes, tmp_path, k):
    expected = [by_faiss_alone(factory, min(k, 300)) for factory in FACTORIES]
    for results in run_processes(3, all_searched, tmp_path, k):
        for (scores, rows), (expected_scores, expected_rows) in zip(results, expected, strict=True):
            assert (scores.dtype, rows.dtype) == (np.float32, np.int32)
            np.testing.assert_array_equal(rows, expected_rows)
            np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)


def test_codes_of_8_bits_use_matrix_products_and_rank_as_plain_faiss_does(tmp_path):
    """Up to rounding, which training amplifies."""
    index = new_index(8, CODES)
    quantizers = faiss.downcast_VectorTransform(index.chain.at(0)).pq, faiss.downcast_index(index.index).pq
    assert [faiss.downcast_index(quantizer.assign_index).d for quantizer in quantizers] == [4, 4]
    assert faiss.cvar.distance_compute_blas_threshold == 800 * faiss.omp_get_max_threads()
    both = zip(searched(tmp_path, CODES, 20)[1], by_faiss_alone(CODES, 20)[1], strict=True)
    assert np.mean([len({*own} & {*expected}) / 20 for own, expected in both]) > 0.9


def test_an_index_depends_on_vectors_and_seed_and_is_made_once(tmp_path):
    seeds = {"one": 1, "same": 1, "other": 2}
    folders = {name: made(tmp_path / name, FACTORIES[0], seed) for name, seed in seeds.items()}
    made_with = {name: sha256_file(folder / "index") for name, folder in folders.items()}
    assert made_with["one"] == made_with["same"] != made_with["other"]
    before = (tmp_path / "one" / FACTORIES[0] / "index").stat().st_mtime_ns
    assert (made(tmp_path / "one", FACTORIES[0], 1) / "index").stat().st_mtime_ns == before


def test_search_settings_reach_the_index(tmp_path):
    """All 8 cells make the search exact, the default of one cell does not; one file serves both."""
    exact = np.argsort(-(QUERIES @ DOCUMENTS.T), axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(searched(tmp_path, "IVF8,Flat;nprobe=8")[1], exact)
    assert (searched(tmp_path, "IVF8,Flat")[1] != exact).any()
    assert [path.name for path in tmp_path.glob("IVF*")] == ["IVF8,Flat"]


def test_a_truncated_index_ranks_by_the_first_numbers(tmp_path):
    lengths = np.linalg.norm(DOCUMENTS[:, :3], axis=1)
    expected = {
        "Truncate3,Flat": QUERIES[:, :3] @ DOCUMENTS[:, :3].T,
        "Truncate3,L2norm,Flat": QUERIES[:, :3] @ DOCUMENTS[:, :3].T / lengths,
        "Truncate3,Flat,RFlat;k_factor_rf=30": QUERIES @ DOCUMENTS.T,  # all 300 are scored again
    }
    for index, scores in expected.items():
        rows = searched(tmp_path, index)[1]
        np.testing.assert_array_equal(rows, np.argsort(-scores, axis=1, kind="stable")[:, :10])
    again = searched(tmp_path, "Truncate3,Flat,RFlat;k_factor_rf=2")[1]
    scores = np.take_along_axis(QUERIES @ DOCUMENTS.T, again, 1)
    assert (np.diff(scores, axis=1) <= 0).all() and (again != rows).any()
    first = np.argsort(-expected["Truncate3,Flat"], axis=1)[:, :20]
    assert all(set(found) <= set(of_query) for found, of_query in zip(again, first, strict=True))


def test_the_size_of_an_index_is_that_of_its_codes_or_of_its_file(tmp_path):
    expected = {"Flat": 300 * 32, "Truncate3,L2norm,SQ8": 300 * 3, "Truncate3,SQ8,RFlat": 300 * (3 + 32)}
    assert {factory: size_bytes(made(tmp_path, factory)) for factory in expected} == expected
    assert size_bytes(folder := made(tmp_path, "HNSW8")) == (folder / "index").stat().st_size


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("Truncate9,Flat", ",Flat' cannot be made of these vectors of 8 dimensions: they have no 9 numbers"),
        ("Truncate0,Flat", "they have no 0 numbers"),
        ("Flat;nprobe=8", "index search setting 'nprobe=8'.*IVF64,Flat;nprobe"),
        ("IVF8,Flat;nprobes=8", "index search setting 'nprobes=8'.*IVF64,Flat;nprobe"),
        ("IVF8,Flat;nprobe", "index search setting 'nprobe'.*IVF64,Flat;nprobe"),
        ("PQ3", "index 'PQ3' cannot be made of these vectors.*such as OPQ96,IVF1,PQ96"),
        ("NoSuch", "index 'NoSuch' cannot be made of these vectors.*such as OPQ96,IVF1,PQ96"),
    ],
)
def test_an_index_that_does_not_fit_is_an_error(index, message):
    with pytest.raises(ValueError, match=message):
        check_index(8, index)


def test_too_few_documents_to_train_on_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"index 'IVF1,PQ2' cannot be made .* \(20 of 8 dimensions\)"):
        made(tmp_path, "IVF1,PQ2", documents=DOCUMENTS[:20])


@pytest.mark.parametrize("factory", ["OPQ2,IVF4,PQ2x4", "IVF4,Flat", "Flat", "HNSW8", "PQ2x4"])
def test_indexes_with_lists_are_trained_and_searched_on_a_gpu_with_room(tmp_path, monkeypatch, factory):
    """A GPU is played by the CPU."""
    calls = []

    def move(_, gpu, index, options):
        calls.append(("to GPU", gpu, index.is_trained, options.useFloat16))
        return faiss.clone_index(index)

    def back(index):
        calls.append(("to CPU", index.ntotal))
        return faiss.clone_index(index)

    parts = {"index_cpu_to_gpu": move, "index_gpu_to_cpu": back}
    parts |= dict.fromkeys(("StandardGpuResources", "GpuClonerOptions"), SimpleNamespace)
    for name, played in parts.items():
        monkeypatch.setattr(faiss, name, played, raising=False)
    found = {}
    for gpu in (None, 3):
        monkeypatch.setattr(faiss_index, "faiss_gpu", lambda _, gpu=gpu: gpu)
        monkeypatch.setattr(faiss_index, "has_room", lambda *_: True)
        make_index(tmp_path / f"{gpu}", ShardedVectors([DOCUMENTS]), factory, 3, ABOUT, World(), "cuda:3")
        index = FactoryIndex(tmp_path / f"{gpu}", World(), "", "cuda:3")
        found[gpu] = search_arrays(index, QUERIES, 5)[1], index.on_gpu is not None
    monkeypatch.setattr(faiss_index, "has_room", lambda *_: False)
    assert FactoryIndex(tmp_path / "3", World(), "", "cuda:3").on_gpu is None
    has_lists = "IVF" in factory
    to_gpu = [("to GPU", 3, False, True), ("to CPU", 300), ("to GPU", 3, True, True)]
    assert calls == (to_gpu if has_lists else [])
    assert (found[None][1], found[3][1]) == (False, has_lists)
    np.testing.assert_array_equal(found[3][0], found[None][0])
