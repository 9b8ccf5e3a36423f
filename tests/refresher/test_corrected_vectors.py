import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import EmbeddingServer, Recipe
from pyserini_ance.recipe.refresh_settings import CorrectedEncoding
from pyserini_ance.refresher.corrected_vectors import correct_vectors
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.generation import (
    ENCODED,
    RefreshRequest,
    base_before,
    open_evaluation,
    open_generation,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import read_manifest
from pyserini_ance.vectors.correction import Correction, token_means

STAGE = {
    "steps": 8,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}},
    "refresh": {"every_steps": 2, "encode": {"sample": 0.5, "min_recall": 0}},
    "evaluate": {"every_steps": 2, "measure": "RR@10"},
}
KEY, NOW = (42, 0, 2), np.zeros(30)
SAMPLE = CorrectedEncoding(sample=0.5, min_recall=0)


def publish(run: RunDir, recipe: Recipe, step: int) -> Checkpoint:
    """The initial encoder, with all weights moved by `step` hundredths."""
    encoder = initial_encoder(recipe.encoder, 0)
    for parameter in encoder.towers.parameters():
        parameter.data += step / 100 * parameter.data.sign()
    return publish_checkpoint(run, encoder, None, TrainingProgress("a", step))


def snapshot_of(run: RunDir, recipe: Recipe, step: int, world: World | None = None) -> Snapshot:
    data = tokenize(recipe, read_collection(recipe))
    return Snapshot.of(Checkpoint.open(run.checkpoint("a", step)), data, recipe, run, world or World())


def made(folder, recipe, *steps: int, kinds=("tables", "dev")) -> tuple[RunDir, list[dict]]:
    """The tables and then the dev score of each step; returns the reports of the tables."""
    run = RunDir(folder)
    refresher = Refresher(recipe, tokenize(recipe, read_collection(recipe)), run, World())
    reports = []
    for step in steps:
        checkpoint = publish(run, recipe, step)
        for kind in kinds:
            refresher.make(RefreshRequest(kind, "a", step, checkpoint.weights))
        reports.append(open_generation(run.generation("a", step), {}).report[ENCODED])
    return run, reports


def with_encode(small_recipe, **encode) -> Recipe:
    refresh = {**STAGE["refresh"], "encode": {**STAGE["refresh"]["encode"], **encode}}
    return small_recipe({"a": {**STAGE, "refresh": refresh}})


@pytest.fixture
def recipe(small_recipe) -> Recipe:
    return with_encode(small_recipe)


def test_the_sample_is_exact_and_the_others_are_mapped(recipe, tmp_path):
    run = RunDir(tmp_path)
    for step in (0, 2):
        publish(run, recipe, step)
    base, snapshot, exact = (snapshot_of(run, recipe, step) for step in (0, 2, 2))
    measured = correct_vectors(snapshot, base.document_vectors, SAMPLE, 5, KEY, NOW)
    old, new, corrected = base.document_vectors[:], exact.document_vectors[:], snapshot.mined_vectors[:]
    same = np.abs(corrected - new).max(1) < 1e-5
    assert same.sum() == 15 and measured["documents"] == 15
    inputs = np.concatenate([old, token_means(exact.encoder, exact.data.documents, np.arange(30))], axis=1)
    expected = Correction.fit(inputs[same], new[same], normalizes=False)(inputs)
    np.testing.assert_allclose(corrected[~same], expected[~same], atol=1e-4)
    assert "document_vectors" not in vars(snapshot)
    scores = snapshot.query_vectors @ corrected.T
    found = snapshot.search("query", np.arange(15), "document", 4)[1]
    assert found.tolist() == np.argsort(-scores)[:, :4].tolist()
    pairs = np.arange(15), np.arange(15, 30)
    np.testing.assert_allclose(snapshot.score(snapshot.query_vectors, *pairs), scores[pairs], rtol=1e-5)
    nearest = snapshot.search("document", pairs[1], "document", 1)[1][:, 0]
    assert nearest.tolist() == (corrected[15:] @ corrected.T).argmax(1).tolist()


def test_dev_never_sees_corrected_vectors_and_the_base_stays_the_first(recipe, small_recipe, tmp_path):
    run, reports = made(tmp_path / "corrected", recipe, 0, 2, 4)
    whole = small_recipe({"a": {**STAGE, "refresh": {"every_steps": 2}}})
    other, plain = made(tmp_path / "whole", whole, 0, 2, 4)
    assert plain == [{"documents": 30}] * 3
    weights = Checkpoint.open(run.checkpoint("a", 0)).weights
    same = {"documents": 15, "corrected": True, "base": 0, "base_weights": weights, "sample": 0.5}
    assert reports[0] == {"documents": 30}
    for step, report in zip((2, 4), reports[1:], strict=True):
        assert report.items() >= same.items()
        assert 0 < report["recall"] <= 1 and 0 < report["rank_correlation"] <= 1
        assert read_manifest(run.generation("a", step))[ENCODED] == report
        scores = [
            open_evaluation(one.evaluation("a", step), Checkpoint.open(one.checkpoint("a", step)).weights)
            for one in (run, other)
        ]
        assert scores[0]["value"] == scores[1]["value"]
    assert ENCODED not in read_manifest(other.generation("a", 2))
    tables = [open_generation(one.generation("a", 4), {}).tables["query", 0] for one in (run, other)]
    assert not np.array_equal(tables[0].scores, tables[1].scores)


def test_below_the_bound_all_documents_are_encoded_as_the_base(small_recipe, tmp_path, caplog, monkeypatch):
    from pyserini_ance.refresher import corrected_vectors

    recalls = iter([0.4, 0.5])
    monkeypatch.setattr(corrected_vectors, "agreement", lambda *given: (next(recalls), 0.9))
    run, reports = made(tmp_path / "run", with_encode(small_recipe, min_recall=0.5), 0, 2, 4)
    assert [report["documents"] for report in reports] == [30, 45, 15]
    assert [report.get("base") for report in reports] == [None, 0, 2]
    assert [base_before(run, "a", step, SAMPLE) for step in (0, 2, 4, 9)] == [None, 0, 2, 2]
    says = "step 2: corrected vectors have recall 0.400, less than min_recall 0.5: all documents"
    assert says in caplog.text
    _, whole = made(tmp_path / "whole", small_recipe({"a": {**STAGE, "refresh": {"every_steps": 2}}}), 0, 2)
    directories = [RunDir(tmp_path / name) for name in ("run", "whole")]
    tables = [open_generation(one.generation("a", 2), {}).tables["query", 0] for one in directories]
    assert np.array_equal(tables[0].candidates, tables[1].candidates)


def rolling(small_recipe, part: float) -> Recipe:
    refresh = {"every_steps": 2, "encode": {"part": part, "min_recall": 0}}
    return small_recipe({"a": {**STAGE, "refresh": refresh, "evaluate": None}})


def test_the_oldest_documents_are_encoded_and_the_others_corrected_once_more(small_recipe, tmp_path):
    """As a slow loop over what is stored: which documents have the vectors of a whole encoding."""
    recipe = rolling(small_recipe, 0.3333)
    run, reports = made(tmp_path, recipe, *range(0, 12, 2), kinds=("tables",))
    stored, encoded_at = snapshot_of(run, recipe, 0).document_vectors[:], np.zeros(30)
    for number, step in enumerate(range(2, 12, 2), start=1):
        snapshot, report = snapshot_of(run, recipe, step), reports[number]
        folder = snapshot.vectors_folder / "corrected"
        found = np.fromfile(folder / "0-of-1" / "vectors.float32", np.float32).reshape(30, -1)
        same = np.abs(found - snapshot.document_vectors[:]).max(1) < 1e-5
        before = encoded_at.copy()
        encoded_at[same] = step
        assert np.load(folder / "encoded_at.npy").tolist() == encoded_at.tolist()
        oldest = np.sort(before)[7]  # eight are the oldest, and two any others, to measure
        assert (before[same] <= oldest).sum() >= 8 and same.sum() == 10
        assert not (before[~same] < oldest).any()
        means = token_means(snapshot.encoder, snapshot.data.documents, np.arange(30))
        inputs = np.concatenate([stored, means], 1)
        expected = Correction.fit(inputs[same], found[same], normalizes=False)(inputs)
        np.testing.assert_allclose(found[~same], expected[~same], atol=1e-4)
        assert (report["documents"], report["part"], report["base"]) == (10, 0.3333, step - 2)
        ages = step - encoded_at
        assert report["mean_age_steps"] == pytest.approx(ages.mean(), abs=0.1)
        assert report["max_age_steps"] == ages.max()
        stored = found


def test_without_the_last_vectors_all_documents_are_encoded(small_recipe, tmp_path, caplog):
    recipe = rolling(small_recipe, 0.3333)
    run, _ = made(tmp_path, recipe, 0, 2, kinds=("tables",))
    folder = snapshot_of(run, recipe, 2).vectors_folder / "corrected" / "0-of-1"
    folder.rename(folder.with_name("0-of-2"))
    _, [report] = made(tmp_path, recipe, 4, kinds=("tables",))
    assert report == {"documents": 30}
    assert "lacks the vectors of step 2: all documents are encoded" in caplog.text


def refreshed_by(world: World, recipe: Recipe, run: RunDir, weights: str) -> None:
    data = tokenize(recipe, read_collection(recipe))
    Refresher(recipe, data, run, world).make(RefreshRequest("tables", "a", 4, weights))


def test_another_number_of_processes_goes_on_with_them(run_processes, small_recipe, tmp_path):
    recipe = rolling(small_recipe, 0.3333)
    run, _ = made(tmp_path, recipe, 0, 2, kinds=("tables",))
    run_processes(2, refreshed_by, recipe, run, publish(run, recipe, 4).weights)
    report = open_generation(run.generation("a", 4), {}).report[ENCODED]
    assert (report["base"], report["documents"], report["processes"]) == (2, 10, 2)


def corrected_by(world: World, recipe: Recipe, folder) -> tuple:
    run = RunDir(folder)
    snapshot, base = (snapshot_of(run, recipe, step, world) for step in (2, 0))
    measured = correct_vectors(snapshot, base.document_vectors, SAMPLE, 5, KEY, NOW)
    return measured, snapshot.mined_vectors[:]


def test_processes_correct_alike(run_processes, recipe, tmp_path):
    made = {}
    for size in (1, 2):
        for step in (0, 2):
            publish(RunDir(tmp_path / f"{size}"), recipe, step)
        made[size] = run_processes(size, corrected_by, recipe, tmp_path / f"{size}")
    [(measured, vectors)] = made[1]
    for of_rank in made[2]:
        assert of_rank[0] == pytest.approx(measured, abs=1e-3)
        np.testing.assert_allclose(of_rank[1], vectors, atol=1e-4)
    assert np.array_equal(made[2][0][1], made[2][1][1])


def test_passages_are_sampled_and_corrected(small_recipe, tmp_path):
    lengths = {"query": {"length_tokens": 24}, "document": {"length_tokens": 16, "passages": 3}}
    recipe = small_recipe({"a": STAGE})
    encoder = recipe.encoder.model_dump(mode="json")
    recipe = small_recipe({"a": STAGE}, encoder={**encoder, "tokenization": lengths})
    run, reports = made(tmp_path, recipe, 0, 2)
    passages = reports[0]["documents"]
    assert passages > 30 and reports[1]["documents"] == round(passages / 2)


def test_corrected_vectors_serve_whatever_encodes_from_now_on(small_recipe, tmp_path):
    """`--resume` may change the engine; samples are encoded here in any case."""
    recipe = rolling(small_recipe, 0.3333)
    made(tmp_path, recipe, 0, 2, kinds=("tables",))
    engine = EmbeddingServer(url="http://localhost:1/v1", model="m")
    server = recipe.encoding.model_copy(update={"engine": engine})
    _, [report] = made(tmp_path, recipe.model_copy(update={"encoding": server}), 4, kinds=("tables",))
    assert (report["base"], report["documents"]) == (2, 10)
