"""What a run directory holds while a stage trains: as much as the recipe keeps, and never more than the plan
says."""

import pytest
from helpers.stage_fixture import MIXED, Training

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.plan import checkpoints_at_once, vectors_at_once
from pyserini_ance.recipe.models import Retention
from pyserini_ance.runs.generation import publish_evaluation
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.trainer import StageTrainer


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


class Slow:
    """A refresher that takes `steps` steps for each order, and `looks` at the run directory when it is told
    of something."""

    def __init__(self, make, steps: int, look):
        self.make, self.steps, self.look, self.requests, self.left = make, steps, look, [], steps

    def submit(self, order) -> None:
        self.look()
        self.requests.append(order)

    def cancel(self, requests) -> None:
        self.requests = [order for order in self.requests if order not in requests]

    def done(self, order) -> bool:
        return order not in self.requests

    def wait(self, requests):
        while all(order in self.requests for order in requests):
            self.tick()
        return next(order for order in requests if order not in self.requests)

    def tick(self) -> None:
        self.left -= 1
        if self.requests and self.left <= 0:
            self.make(self.requests.pop(0))
            self.look()
            self.left = self.steps


@pytest.mark.parametrize(
    ("adopt", "keep"),
    [
        ({"after_steps": 5}, {"save_total_limit": 1, "keep_negatives": 1}),
        ("when_ready", {"save_total_limit": 2, "keep_negatives": 1}),
    ],
)
def test_a_run_directory_is_never_fuller_than_planned(small_recipe, tmp_path, adopt, keep):
    background = {"every_steps": 2, "mode": "async", "adopt": adopt}
    made = Training(
        small_recipe, tmp_path, MIXED, steps=18, refresh=background, evaluate={**background, "every_steps": 3}
    )
    made.recipe = made.recipe.model_copy(update={"retention": Retention(**keep)})
    seen = []

    def look():
        rooms = (made.run.checkpoints, made.run.scratch)
        seen.append([len(list(room.glob("[!.]*"))) for room in rooms])

    executor = Slow(made.make, 3, look)

    class Tick(TrainerCallback):
        def on_step_end(self, *arguments):
            executor.tick()

    stage = StageTrainer(
        made.recipe,
        "a",
        made.data,
        made.run,
        World(),
        lambda product: executor,
        made.start,
        callbacks=[Tick()],
    )
    stage.train()
    checkpoints, vectors = map(max, zip(*seen, strict=True))
    assert checkpoints <= checkpoints_at_once(made.recipe) and vectors <= vectors_at_once(made.recipe)
    assert (
        2 * checkpoints > checkpoints_at_once(made.recipe) and executor.requests == []
    )  # the plan is no wild guess
