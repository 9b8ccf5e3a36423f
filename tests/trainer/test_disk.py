"""A run directory holds as much as the recipe keeps while a stage trains."""

from helpers.stage_fixture import MIXED, Training

from pyserini_ance.recipe.models import Retention
from pyserini_ance.runs.generation import publish_evaluation


def test_checkpoints_and_tables_are_kept_as_the_recipe_says(small_recipe, tmp_path):
    often = {"refresh": {"every_steps": 3}, "evaluate": {"every_steps": 2}}
    made = Training(small_recipe, tmp_path, MIXED, steps=12, **often)
    keep = Retention(save_total_limit=2, keep_negatives=1)
    made.recipe = made.recipe.model_copy(update={"retention": keep})
    make, seen = made.make, []

    def watched(order):
        seen.append(len(list(made.run.checkpoints.glob("a-????????"))))
        if order.kind == "tables":
            return make(order)
        value = {"dev": order.step and 0.5 - order.step / 100}
        return publish_evaluation(made.run.evaluation("a", order.step), value, order.weights, {})

    assert made.train(watched).folder == made.run.checkpoint("a", 2)
    kept = sorted(folder.name for folder in made.run.checkpoints.glob("a-*"))
    assert kept == ["a-00000002", "a-00000010", "a-00000012"]
    assert [folder.name for folder in made.run.negatives.iterdir()] == ["a-00000009"]
    assert max(seen) <= 4  # two newest, the best, and the one just published
    assert len(list(made.run.scratch.iterdir())) <= 1
