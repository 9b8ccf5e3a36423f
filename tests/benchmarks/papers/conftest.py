"""One small run that all tests of studies read."""

from pathlib import Path

import pytest

from benchmarks.papers.studies.studied_run import StudiedRun, StudySettings
from pyserini_ance.pipeline import experiment

SETTINGS = StudySettings(queries=10, top_k=5)


def stage(kind: str, steps: int, **more) -> dict:
    negatives = [{"kind": kind, "num_negatives": 1, **({"top_k": 8} if kind == "ann" else {})}]
    terms = {"query": {"negatives": negatives, "loss": {"kind": "nll", "scale": 0.1}}}
    made = {"steps": steps, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    return {**made, **more}


@pytest.fixture(scope="session")
def small_run(small_recipe, tmp_path_factory) -> Path:
    """A run with a warm-up and an ANCE stage with three refreshes, over the small collection."""
    every = {"every_steps": 2}
    stages = {"warm": stage("random", 4), "ance": stage("ann", 6, refresh=every, evaluate=every)}
    folder = tmp_path_factory.mktemp("studied") / "run"
    final = {"measures": ["RR@10", "R@20"], "query_measures": ["RR@10"]}
    experiment.train(small_recipe(stages, final_evaluation=final, save_total_limit=9), folder)
    return folder


@pytest.fixture
def studied(small_run) -> StudiedRun:
    return StudiedRun("run", small_run, SETTINGS)
