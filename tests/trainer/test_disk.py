"""What a run directory holds while a stage trains: as much as the recipe keeps, and never more than the plan
says."""

from helpers.stage_fixture import MIXED, Training

from pyserini_ance.recipe.models import Retention
from pyserini_ance.runs.generation import publish_evaluation


def test_checkpoints_and_tables_are_kept_as_the_recipe_says(small_recipe, tmp_path):
    made = Training(
        small_recipe, tmp_path, MIXED, steps=12, refresh={"every_steps": 3}, evaluate={"every_steps": 2}
    )
    made.recipe = made.recipe.model_copy(
        update={"retention": Retention(save_total_limit=2, keep_negatives=1)}
    )
    make, seen = made.make, []

    def watched(order):
        seen.append(
            (
                order.step,
                *(
                    len(list(folder.glob("a-????????")))
                    for folder in (made.run.checkpoints, made.run.scratch.parent / "negatives")
                ),
            )
        )
        if order.kind == "dev":
            publish_evaluation(
                made.run.evaluation("a", order.step),
                {"dev": order.step and 0.5 - order.step / 100},
                order.weights,
                {},
            )
        else:
            make(order)

    result = made.train(watched)
    assert result.folder == made.run.checkpoint("a", 2)
    assert sorted(folder.name for folder in made.run.checkpoints.glob("a-*")) == [
        "a-00000002",
        "a-00000010",
        "a-00000012",
    ]
    assert sorted(folder.name for folder in made.run.negatives.iterdir()) == ["a-00000009"]
    assert max(count for _, count, _ in seen) <= 4  # two newest, the best, and the one just published
    assert len(list(made.run.scratch.iterdir())) <= 1
