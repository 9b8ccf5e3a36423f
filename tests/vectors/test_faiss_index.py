"""Compressed indexes against plain faiss, in subprocesses: faiss must not be imported into this process."""

from types import SimpleNamespace

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


def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 8)).astype(np.float32), rng.normal(size=(300, 8)).astype(np.float32)


def factory_search(world: World, folder, factories: list[str], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    queries, documents = drawn()
    for number, factory in enumerate(factories):
        make_index(folder / str(number), ShardedVectors.split(documents, world), factory, 3, ABOUT, world)
    return [
        search_arrays(FactoryIndex(folder / str(number), world), queries, k)
        for number in range(len(factories))
    ]


def faiss_alone(world: World, factories: list[str], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    import faiss

    queries, documents = drawn()
    results = []
    for factory in factories:
        index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(documents[np.random.default_rng(3).permutation(300)])
        index.add(documents)
        results.append(index.search(queries, k))
    return results


@pytest.mark.parametrize("k", [20, 1000])
def test_processes_together_find_what_faiss_finds(run_processes, tmp_path, k):
    (expected,) = run_processes(1, faiss_alone, FACTORIES, min(k, 300))
    for results in run_processes(3, factory_search, tmp_path, FACTORIES, k):
        for (scores, rows), (expected_scores, expected_rows) in zip(results, expected, strict=True):
            assert (scores.dtype, rows.dtype) == (np.float32, np.int32)
            np.testing.assert_array_equal(rows, expected_rows)
            np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)


def plain_and_factory_rows(world: World, folder) -> tuple[np.ndarray, np.ndarray]:
    """Rows (7, 20) of plain faiss, then of FactoryIndex, which changes faiss's settings."""
    ((_, alone),) = faiss_alone(world, [CODES], 20)
    ((_, rows),) = factory_search(world, folder, [CODES], 20)
    import faiss

    index = new_index(8, CODES)
    quantizers = faiss.downcast_VectorTransform(index.chain.at(0)).pq, faiss.downcast_index(index.index).pq
    assert [faiss.downcast_index(quantizer.assign_index).d for quantizer in quantizers] == [4, 4]
    assert faiss.cvar.distance_compute_blas_threshold == 800 * faiss.omp_get_max_threads()
    return alone, rows


def test_codes_of_8_bits_use_matrix_products_and_rank_as_plain_faiss_does(run_processes, tmp_path):
    """Up to rounding, which training amplifies."""
    ((alone, rows),) = run_processes(1, plain_and_factory_rows, tmp_path)
    overlaps = [
        len({*own} & {*expected}) / 20 for own, expected in zip(rows.tolist(), alone.tolist(), strict=True)
    ]
    assert np.mean(overlaps) > 0.9


def made_again(world: World, folder) -> dict:
    vectors, seen = ShardedVectors.split(drawn()[1], world), {}
    for name, seed in {"one": 1, "same": 1, "other": 2}.items():
        make_index(folder / name, vectors, "OPQ2,IVF1,PQ4x4", seed, ABOUT, world)
        seen[name] = sha256_file(folder / name / "index")
    before = (folder / "one" / "index").stat().st_mtime_ns
    make_index(folder / "one", vectors, "OPQ2,IVF1,PQ4x4", 1, ABOUT, world)
    assert (folder / "one" / "index").stat().st_mtime_ns == before
    for factory, documents in {"PQ3": 300, "NoSuch": 300, "IVF1,PQ2": 20}.items():
        few = ShardedVectors.split(drawn()[1][:documents], world)
        with pytest.raises(ValueError) as caught:
            make_index(folder / factory, few, factory, 1, ABOUT, world)
        seen[factory] = str(caught.value)
    return seen


def test_an_index_depends_on_vectors_and_seed_and_is_made_once(run_processes, tmp_path):
    (seen,) = run_processes(1, made_again, tmp_path)
    assert seen["one"] == seen["same"] != seen["other"]
    for factory in ("PQ3", "NoSuch", "IVF1,PQ2"):
        assert seen[factory].startswith(f"index '{factory}' cannot be made of these vectors")
        assert "such as OPQ96,IVF1,PQ96" in seen[factory]
    assert "(20 of 8 dimensions)" in seen["IVF1,PQ2"]


def searched(world: World, folder, index: str, k: int) -> np.ndarray:
    queries, documents = drawn()
    factory, _, search = index.partition(";")
    make_index(folder / factory, ShardedVectors.split(documents, world), factory, 3, ABOUT, world)
    return search_arrays(FactoryIndex(folder / factory, world, search), queries, k)[1]


def test_search_settings_reach_the_index(run_processes, tmp_path):
    """All 8 cells make the search exact, the default of one cell does not; one file serves both."""
    queries, documents = drawn()
    exact = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]
    (all_cells,) = run_processes(1, searched, tmp_path, "IVF8,Flat;nprobe=8", 10)
    (one_cell,) = run_processes(1, searched, tmp_path, "IVF8,Flat", 10)
    np.testing.assert_array_equal(all_cells, exact)
    assert (one_cell != exact).any() and [path.name for path in tmp_path.glob("IVF*")] == ["IVF8,Flat"]


def test_a_truncated_index_ranks_by_the_first_numbers(run_processes, tmp_path):
    queries, documents = drawn()
    lengths = np.linalg.norm(documents[:, :3], axis=1)
    expected = {
        "Truncate3,Flat": queries[:, :3] @ documents[:, :3].T,
        "Truncate3,L2norm,Flat": queries[:, :3] @ documents[:, :3].T / lengths,
        "Truncate3,Flat,RFlat;k_factor_rf=30": queries @ documents.T,  # all 300 are scored again
    }
    for index, scores in expected.items():
        (rows,) = run_processes(1, searched, tmp_path, index, 10)
        np.testing.assert_array_equal(rows, np.argsort(-scores, axis=1, kind="stable")[:, :10])
    (again,) = run_processes(1, searched, tmp_path, "Truncate3,Flat,RFlat;k_factor_rf=2", 10)
    scores = np.take_along_axis(queries @ documents.T, again, 1)
    assert (np.diff(scores, axis=1) <= 0).all() and (again != rows).any()
    first = np.argsort(-expected["Truncate3,Flat"], axis=1)[:, :20]
    assert all(set(found) <= set(of_query) for found, of_query in zip(again, first, strict=True))


def sizes(world: World, folder, factories: list[str]) -> list[int]:
    for factory in factories:
        make_index(folder / factory, ShardedVectors.split(drawn()[1], world), factory, 3, ABOUT, world)
    return [size_bytes(folder / factory) for factory in factories]


def test_the_size_of_an_index_is_that_of_its_codes_or_of_its_file(run_processes, tmp_path):
    factories = ["Flat", "Truncate3,L2norm,SQ8", "Truncate3,SQ8,RFlat", "HNSW8"]
    (found,) = run_processes(1, sizes, tmp_path, factories)
    file = (tmp_path / "HNSW8" / "index").stat().st_size
    assert found == [300 * 32, 300 * 3, 300 * (3 + 32), file]


def errors_of(world: World, indexes: list[str]) -> list[str]:
    messages = []
    for index in indexes:
        with pytest.raises(ValueError) as caught:
            check_index(8, index)
        messages.append(str(caught.value))
    return messages


def test_more_numbers_than_vectors_have_are_an_error(run_processes):
    for message in run_processes(1, errors_of, ["Truncate9,Flat", "Truncate0,Flat"])[0]:
        assert ",Flat' cannot be made of these vectors of 8 dimensions: they have no " in message


def test_a_setting_that_the_index_does_not_know_is_an_error(run_processes):
    indexes = ["Flat;nprobe=8", "IVF8,Flat;nprobes=8", "IVF8,Flat;nprobe"]
    for index, message in zip(indexes, run_processes(1, errors_of, indexes)[0], strict=True):
        assert f"index search setting {index.partition(';')[2]!r}" in message
        assert "IVF64,Flat;nprobe" in message


def with_a_gpu(world: World, folder, factory: str) -> dict:
    """What is made of an index where a GPU is played by the CPU."""
    import faiss

    calls = []

    def move(_, gpu, index, options):
        calls.append(("to GPU", gpu, index.is_trained, options.useFloat16))
        return faiss.clone_index(index)

    def back(index):
        calls.append(("to CPU", index.ntotal))
        return faiss.clone_index(index)

    faiss.index_cpu_to_gpu, faiss.index_gpu_to_cpu = move, back
    faiss.StandardGpuResources = faiss.GpuClonerOptions = SimpleNamespace
    queries, documents = drawn()
    results = {}
    for gpu in (None, 3):
        faiss_index.faiss_gpu = lambda _, gpu=gpu: gpu
        faiss_index.has_room = lambda *_: True
        name = folder / str(gpu)
        make_index(name, ShardedVectors([documents]), factory, 3, ABOUT, world, "cuda:3")
        index = FactoryIndex(name, world, "", "cuda:3")
        results[gpu] = search_arrays(index, queries, 5)[1], index.on_gpu is not None
    faiss_index.has_room = lambda *_: False
    results["no room"] = FactoryIndex(folder / "3", world, "", "cuda:3").on_gpu
    return {"calls": calls, **results}


@pytest.mark.parametrize("factory", ["OPQ2,IVF4,PQ2x4", "IVF4,Flat", "Flat", "HNSW8", "PQ2x4"])
def test_indexes_with_lists_are_trained_and_searched_on_a_gpu_with_room(run_processes, tmp_path, factory):
    (end,) = run_processes(1, with_a_gpu, tmp_path, factory)
    has_lists = "IVF" in factory
    made = [("to GPU", 3, False, True), ("to CPU", 300), ("to GPU", 3, True, True)]
    assert end["calls"] == (made if has_lists else [])
    assert (end[None][1], end[3][1], end["no room"]) == (False, has_lists, None)
    np.testing.assert_array_equal(end[3][0], end[None][0])
