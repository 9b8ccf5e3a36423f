"""A run that draws as the code of ANCE and ANCE-Tele does, interrupted and resumed."""

import pytest

import pyserini_ance as pa
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

STAGE = {
    "steps": 9,
    "batch_queries": 4,
    "repeats_per_query": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 6, "rolling": True}]}},
    "refresh": {"every_steps": 4, "restart_queries": True, "query_chunks": 2},
    "save_every_steps": 1,
}


def test_a_resumed_run_draws_what_an_undisturbed_one_draws(small_recipe, tmp_path):
    recipe = small_recipe({"ance": STAGE}, train_split={"splits": ["train"], "positives": "last"})

    class Stop(pa.TrainerCallback):
        def on_step_end(self, stage, step, losses, metrics):
            if step == 6:
                raise KeyboardInterrupt

    undisturbed = pa.train(recipe, tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        pa.train(recipe, tmp_path / "stopped", callbacks=[Stop()])
    resumed = pa.resume(tmp_path / "stopped")
    weights = "model/model.safetensors"
    assert (resumed.directory / weights).read_bytes() == (undisturbed.directory / weights).read_bytes()
    adopted = read_json_lines(RunDir(resumed.directory).decisions)
    assert [one["step"] for one in adopted if one["event"] == "adopt"] == [0, 4, 8]
