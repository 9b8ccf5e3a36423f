"""What a run directory holds while a stage trains: as much as the recipe keeps, and never more than the plan says."""

import pytest
from trainer.given import MIXED, Training

from pyserini_ance.distributed.world import World
from pyserini_ance.experiment.experiment import accelerator_of
from pyserini_ance.experiment.schedule import checkpoints_at_once, generations_kept, vectors_at_once
from pyserini_ance.recipe.models import Retention
from pyserini_ance.runs.evaluation import publish_evaluation
from pyserini_ance.trainer.step import StepRunner
from pyserini_ance.trainer.trainer import StageTraining


def test_checkpoints_and_tables_are_kept_as_the_recipe_says(small_recipe, tmp_path):
    made = Training(small_recipe, tmp_path, MIXED, steps=12, refresh={"every_steps": 3}, evaluate={"every_steps": 2})
    made.recipe = made.recipe.model_copy(update={"keep": Retention(checkpoints=2, tables=1)})
    make, seen = made.make, []

    def watched(order):
        seen.append((order.step, *(len(list(folder.glob("a-????????"))) for folder in (made.run.checkpoints, made.run.scratch.parent / "negatives"))))
        if order.kind == "dev":
            publish_evaluation(made.run.evaluation("a", order.step), {"dev": 0.5 - order.step / 100}, order.weights, {})
        else:
            make(order)

    result = made.train(watched)
    assert result.folder == made.run.checkpoint("a", 2)
    assert sorted(folder.name for folder in made.run.checkpoints.glob("a-*")) == ["a-00000002", "a-00000010", "a-00000012"]
    assert sorted(folder.name for folder in made.run.negatives.iterdir()) == ["a-00000009"]
    assert max(count for _, count, _ in seen) <= 4  # two newest, the best, and the one just published
    assert len(list(made.run.scratch.iterdir())) <= 1


class Slow:
    """A refresher that takes `steps` steps for each order, and `looks` at the run directory when it is told of something."""

    def __init__(self, make, steps: int, look):
        self.make, self.steps, self.look, self.orders, self.left = make, steps, look, [], steps

    def place(self, order) -> None:
        self.look()
        self.orders.append(order)

    def drop(self, orders) -> None:
        self.orders = [order for order in self.orders if order not in orders]

    def is_made(self, order) -> bool:
        return order not in self.orders

    def wait(self, orders):
        while all(order in self.orders for order in orders):
            self.tick()
        return next(order for order in orders if order not in self.orders)

    def tick(self) -> None:
        self.left -= 1
        if self.orders and self.left <= 0:
            self.make(self.orders.pop(0))
            self.look()
            self.left = self.steps


@pytest.mark.parametrize(("adopt", "keep"), [({"after_steps": 5}, {"checkpoints": 1, "tables": 1}), ("ready", {"checkpoints": 2, "tables": 1})])
def test_a_run_directory_is_never_fuller_than_planned(small_recipe, tmp_path, monkeypatch, adopt, keep):
    background = {"every_steps": 2, "run": "background", "adopt": adopt}
    made = Training(small_recipe, tmp_path, MIXED, steps=18, refresh=background, evaluate={**background, "every_steps": 3})
    made.recipe = made.recipe.model_copy(update={"keep": Retention(**keep)})
    seen = []

    def look():
        rooms = (made.run.checkpoints, made.run.scratch, made.run.negatives)
        seen.append([len(list(room.glob("[!.]*"))) for room in rooms])

    desk = Slow(made.make, 3, look)
    accumulate = StepRunner.accumulate
    monkeypatch.setattr(StepRunner, "accumulate", lambda runner, batch, step: (desk.tick(), accumulate(runner, batch, step))[1])
    stage = StageTraining(made.recipe, "a", made.data, made.run, accelerator_of(made.recipe), World(), lambda product: desk)
    stage.train(made.start)
    checkpoints, vectors, tables = map(max, zip(*seen, strict=True))
    assert checkpoints <= checkpoints_at_once(made.recipe) and vectors <= vectors_at_once(made.recipe)
    assert tables <= generations_kept(made.recipe, stage.stage, stage.stage.terms["query"].negatives[0])
    assert 2 * checkpoints > checkpoints_at_once(made.recipe) and desk.orders == []  # the plan is no wild guess
