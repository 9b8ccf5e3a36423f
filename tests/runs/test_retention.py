from pathlib import Path

import pytest
from helpers.elsewhere import elsewhere
from safetensors.numpy import save_file

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import ENCODER, Checkpoint, clean_up_finished, prune_stage
from pyserini_ance.runs.generation import publish_evaluation
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import MANIFEST, publishing

STAGE = {"steps": 4, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "refresh": {"every_steps": 1}}
RECIPE = {"name": "r", "data": {"kind": "docstrings"}, "encoder": {"model": "m"}, "bm25": None}
RECIPE["stages"] = {"a": {**STAGE, "terms": {"query": {"negatives": [{"kind": "ann"}]}}}}
KEPT = [(2, (), (3, 4)), (1, (2,), (2, 4)), (2, (1, 3), (1, 3, 4)), (9, (), (1, 2, 3, 4))]


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    for step in (1, 2, 3, 4):
        publish(made, "a", step)
    return made


def publish(run: RunDir, stage: str, step: int) -> None:
    """A checkpoint, its vectors, and tables mined with it."""
    folder = run.checkpoint(stage, step)
    with publishing(folder, {}) as temporary:
        (temporary / ENCODER).mkdir()
        save_file({}, temporary / ENCODER / "model.safetensors", {"of": folder.name})
    vectors(run, step, stage).mkdir(parents=True)
    with publishing(run.generation(stage, step), {}):
        pass


def vectors(run: RunDir, step: int, stage: str = "a", precision: str = "fp32") -> Path:
    weights = Checkpoint.open(run.checkpoint(stage, step)).document_weights
    return run.scratch / f"{weights[:16]}-{precision}"


def reading(*folders: Path):
    """Another process that reads three folders."""
    block = ", ".join(f"leased(Path(sys.argv[{number}]))" for number in (1, 2, 3))
    return elsewhere("from pyserini_ance.storage.publish import leased", block, *folders)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def prune(run: RunDir, checkpoints=(), vectors=(), **keep) -> None:
    prune_stage(run, "a", Recipe.model_validate(RECIPE | keep), checkpoints, vectors)


@pytest.mark.parametrize("keep, needed, steps", KEPT)
def test_the_newest_and_the_needed_checkpoints_stay(run, keep, needed, steps):
    prune(run, checkpoints=needed, save_total_limit=keep)
    assert names(run.checkpoints) == [f"a-{step:08d}" for step in steps]


def test_a_checkpoint_of_an_interruption_takes_no_place(run):
    every = {"a": {**RECIPE["stages"]["a"], "refresh": {"every_steps": 2}}}
    prune(run, save_total_limit=2, stages=every)
    assert names(run.checkpoints) == ["a-00000002", "a-00000004"]


def test_vectors_of_every_precision_belong_to_their_weights(run):
    other = vectors(run, 4, precision="bf16")
    other.mkdir()
    (run.scratch / f"{'0' * 16}-fp32").mkdir()  # of no checkpoint
    kept = [vectors(run, step) for step in (3, 4)]
    prune(run, vectors=(3, 4))
    assert names(run.scratch) == sorted([other.name, *(folder.name for folder in kept)])


def test_other_stages_and_unfinished_folders_stay(run):
    publish(run, "a-b", 1)
    publish(run, "b", 9)
    (run.checkpoint("a", 2) / MANIFEST).unlink()
    prune(run)
    assert names(run.checkpoints) == ["a-00000002", "a-00000004", "a-b-00000001", "b-00000009"]


def test_folders_stay_while_they_are_read(run):
    """A killed reader keeps nothing; its leases are removed with the folders."""
    read = [run.checkpoint("a", 1), vectors(run, 1), run.generation("a", 2)]
    with reading(*read):
        prune(run)
        assert all(folder.exists() for folder in read)
        assert [
            sorted(name for name in names(directory) if name[0] != ".")
            for directory in (run.checkpoints, run.scratch)
        ] == [["a-00000001", "a-00000004"], [read[1].name]]
    prune(run)
    assert [names(directory) for directory in (run.checkpoints, run.scratch)] == [["a-00000004"], []]


def test_what_nobody_adopted_goes_with_its_last_reader(run):
    """A stage that stopped early at step 3, while a refresher was at work on its step 4."""
    run.trainer.mark("running", "stage a, step 3")
    log = RunLog(run)
    for step in (1, 2):
        log.decide("adopt", stage="a", step=step, checkpoint_step=step, weights="w", folder="")
    log.decide("evaluate", stage="a", step=2, checkpoint_step=2, weights="w", value=0.5)
    log.decide("stage_end", stage="a", step=3, result="a-00000002", weights="w")
    for step in (1, 2, 3):
        publish_evaluation(run.evaluation("a", step), {"dev": 0.5}, "w", {})
    read = [run.checkpoint("a", 3), vectors(run, 3), run.generation("a", 4)]
    recipe = Recipe.model_validate(RECIPE)
    clean_up_finished(run, recipe)
    assert all(folder.exists() for folder in read)  # the run has not finished
    run.trainer.mark("finished", "the end")
    with reading(*read) as reader:
        clean_up_finished(run, recipe)
        assert all(folder.exists() for folder in read)
        reader.communicate()
    clean_up_finished(run, recipe)
    kept = {run.checkpoints: (2, 4), run.scratch: (), run.negatives: (1, 2)}
    for directory, steps in kept.items():
        assert names(directory) == [f"a-{step:08d}" for step in steps]
    assert names(run.evaluations) == ["a-00000002.json"]
