"""The times that a dry run expects, from given measurements."""

import resource
from types import SimpleNamespace

import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import dry_run
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.trainer.optim import learning_rate

STAGE = {
    "steps": 6,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "refresh": {"every_steps": 3},
    "evaluate": {"every_steps": 2},
}
ANN = {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}}


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("both", 2 * 3 + 3 * 100),  # refreshes before steps 0 and 3; dev of 2, 4 and 6
        ("query_tower", 10 + 2 * 3),  # documents are encoded once, as measured
    ],
)
def test_frozen_documents_are_encoded_once(small_recipe, tmp_path, monkeypatch, trainable, expected):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        RunLog,
        "seconds_spent",
        lambda log, stage: {"step": 4.0, "refresh": 3.0, "documents": 10.0 * (trainable == "query_tower")},
    )
    monkeypatch.setattr(dry_run, "_seconds_to_encode", lambda *given: 100.0)
    recipe = small_recipe(
        {"only": {**STAGE, "trainable": trainable, "terms": ANN}}, cache=str(tmp_path / "cache")
    )
    report = dry_run.dry_run(recipe, prepare(recipe, World()), 2, World())
    assert [cell.strip() for cell in report.splitlines()[3].split("|")[1:-1]] == [
        "only",
        "2.000",
        "12.0",
        f"{expected:.1f}",
    ]


@pytest.mark.parametrize(
    "schedule", [{"warmup_steps": 4, "offset_steps": 1}, {"kind": "cosine", "warmup_steps": 2}]
)
def test_few_steps_have_the_learning_rates_of_the_whole_stage(small_recipe, schedule):
    stage = small_recipe({"only": {**STAGE, "lr_schedule": schedule, "terms": ANN}}).stages["only"]
    short = dry_run.shortened(stage, 3)
    assert short.steps == 3
    assert [learning_rate(short, step) for step in range(3)] == [
        learning_rate(stage, step) for step in range(3)
    ]


def test_the_memory_of_each_process_its_gpu_and_its_children_is_told(monkeypatch):
    class Two(World):
        def gather(self, tensor):
            return [tensor, tensor + 2**30]

    peaks = {resource.RUSAGE_SELF: 3 << 20, resource.RUSAGE_CHILDREN: 1 << 20}
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=peaks[who]))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5 << 30)
    assert dry_run.peak_memory(Two(0, 2, "cuda:0")) == (
        "3.00, 4.00 GiB (each process); 5.00, 6.00 GiB (its GPU, by torch); "
        "1.00, 2.00 GiB (its largest child)"
    )
    peaks[resource.RUSAGE_CHILDREN] = 0
    assert dry_run.peak_memory(World()) == (
        "3.00 GiB (this process); no child ran: BM25's rankings were in the cache, or there are none"
    )
