import pytest
from helpers.stages import RANDOM, changed, make_stage

from pyserini_ance.data.trec import read_qrels
from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.experiment import Experiment
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.runs.rundir import RunDir

STAGE = make_stage(RANDOM, steps=2, evaluate={"every_steps": 1})


@pytest.fixture
def held_out(small_recipe, tmp_path):
    """A recipe whose data has no dev split; 4 of 15 training queries become one."""
    recipe = small_recipe({"a": STAGE}, cache=str(tmp_path / "cache"))
    return changed(recipe, "data.splits.dev=null", "data.hold_out=4")


def test_a_run_records_the_split_and_resumes_with_it(held_out, tmp_path):
    run = RunDir(tmp_path / "run")
    rows = [row["RR@10"] for row in Experiment(held_out, run.folder, World()).run().table]
    recorded = read_qrels(run.qrels("dev"))
    assert len(recorded) == 4 and not set(recorded) & set(read_qrels(run.qrels("test")))
    assert run.read_recipe().data.hold_out == held_out.data.hold_out
    assert set(recorded) == set(read_collection(run.read_recipe()).split("dev").queries.ids)
    again = Experiment(run.read_recipe(), run.folder, World()).run(resume=True)
    assert [row["RR@10"] for row in again.table] == rows
    with pytest.raises(ValueError, match="differ"):
        Experiment(changed(held_out, "data.hold_out=5"), run.folder, World()).run(resume=True)


def test_without_a_dev_split_both_cures_are_named(held_out):
    with pytest.raises(ValueError, match="data.hold_out=200; or .*: stages.a.evaluate=null$"):
        read_collection(changed(held_out, "data.hold_out=null"))


@pytest.mark.parametrize("order", [1, -1], ids=["the same file", "the same lines in another order"])
def test_the_test_split_as_dev_is_refused(small_recipe, tmp_path, order):
    recipe = small_recipe({"a": STAGE})
    test = recipe.data.splits["test"]
    copies = {"topics": tmp_path / "copy.tsv", "qrels": tmp_path / "copy.qrels"}
    for key, path in copies.items():
        lines = getattr(test, key).read_text().splitlines(keepends=True)
        path.write_text("".join(lines[::order]))
    same = changed(recipe, *(f"data.splits.dev.{key}={path}" for key, path in copies.items()))
    with pytest.raises(ValueError, match="'dev' and 'test' have the same queries and judgments: the best"):
        read_collection(same)
    assert read_collection(changed(same, "stages.a.evaluate=null"))
    assert read_collection(changed(same, "final_evaluation.split=dev"))  # the recipe says so itself
