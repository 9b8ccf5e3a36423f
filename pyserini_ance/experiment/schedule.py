"""At which steps a stage does what, counted before it runs."""

from pyserini_ance.recipe.models import Recipe, Stage


def refresh_steps(stage: Stage) -> set[int]:
    return set(range(0, stage.steps, stage.refresh.every_steps)) if stage.refresh else set()


def evaluation_steps(stage: Stage) -> set[int]:
    return {*range(stage.evaluate.every_steps, stage.steps, stage.evaluate.every_steps), stage.steps} if stage.evaluate else set()


def tables_mined(stage: Stage) -> int:
    """How often a source's table is written: once for a static one, at each refresh for the others."""
    return max(1, len(refresh_steps(stage)))


def encodings(stage: Stage) -> int:
    """How often the whole collection is encoded: a refresh and a dev evaluation at the same step share their vectors."""
    samples = stage.evaluate is not None and stage.evaluate.sample_documents is not None
    return len(refresh_steps(stage) | (set() if samples else evaluation_steps(stage)))


def closing_encodings(recipe: Recipe) -> int:
    """The closing table encodes the collection once for the untrained encoder and once for each stage."""
    return 1 + len(recipe.stages)
