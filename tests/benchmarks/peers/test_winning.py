"""The rows that decide: the same steps, rate and choice by dev for ours and for sentence-transformers'."""

import pytest

from pyserini_ance.commands import compare
from pyserini_ance.pipeline.grid import GridRuns
from pyserini_ance.recipe.load import load

winning = pytest.importorskip("benchmarks.peers.winning")


@pytest.mark.parametrize("name", winning.SETS)
def test_all_rows_have_the_same_settings_and_what_has_finished_is_kept(name, tmp_path, monkeypatch):
    from benchmarks.peers import sentence_transformers_training as training

    ours, peers, compared = [], [], []

    def train_rows(recipe, overrides, method, folder, overwrite):
        peers.append((method, load(recipe, *overrides)))
        folder.mkdir(parents=True)
        (folder / "measures.json").touch()

    monkeypatch.setattr(GridRuns, "run", lambda self, recipes, **_: ours.extend(recipes.values()) or True)
    monkeypatch.setattr(training, "train_rows", train_rows)
    monkeypatch.setattr(compare, "main", compared.append)
    command = [name, "two", "data.relevance_threshold=1", "--seeds", "7,8", "--output", str(tmp_path)]
    for _ in range(2):
        assert winning.main(command) == 0
    assert [method for method, _ in peers] == ["in-batch", "mined"] * 2
    rows = {f"{name}/{row}" for row in ("rand-batch", "recommended", "distilled")}
    assert {recipe.name for recipe in ours} == rows and len(ours) == 2 * 6
    settings = [
        (stage.steps, stage.batch_queries, stage.optimizer, stage.lr_schedule, stage.evaluate, recipe.encoder)
        for recipe in [*ours, *(recipe for _, recipe in peers)]
        for stage in recipe.stages.values()
    ]
    assert all(one == settings[0] for one in settings)
    steps, batch, optimizer, _, evaluate, encoder = settings[0]
    assert (steps, batch, optimizer.learning_rate, encoder.layers) == (300, 16, 3e-4, (0, 1))
    assert (evaluate.every_steps, evaluate.keep_best) == (100, True)
    assert len(compared) == 2 and compared[0] == compared[1]
