"""What a recipe will do, counted before it runs."""

from pyserini_ance.negatives.source import Source
from pyserini_ance.recipe.models import Recipe, Stage


def refresh_steps(stage: Stage) -> set[int]:
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


def times_mined(stage: Stage, source: Source) -> int:
    """Once for a static source, at each refresh for the others."""
    return len(refresh_steps(stage)) if source.refreshed else 1


def documents_encoded(stage: Stage, documents: int) -> int:
    """By all refreshes and dev evaluations; an evaluation at the step of a refresh finds its vectors."""
    refreshes = refresh_steps(stage)
    sample = stage.evaluate and stage.evaluate.sample_documents
    return len(refreshes) * documents + len(evaluation_steps(stage) - refreshes) * min(documents, sample or documents)


def closing_encodings(recipe: Recipe) -> int:
    """The closing table encodes the collection for the untrained encoder and for each stage, at most once each."""
    return 1 + len(recipe.stages)
