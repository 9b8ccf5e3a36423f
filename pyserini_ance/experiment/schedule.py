"""What a recipe will do, counted before it runs."""

import math

from pyserini_ance.negatives.source import Source
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Product, Refresh
from pyserini_ance.recipe.stage import Stage


def refresh_steps(stage: Stage) -> set[int]:
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


def times_mined(stage: Stage, source: Source) -> int:
    """Once for a static source, at each refresh for the others."""
    return len(refresh_steps(stage)) if source.refreshed else 1


def open_at_once(stage: Stage) -> int:
    """The most checkpoints of which a refresher has still to make something, or training to take it up."""
    return sum(_open(product) for product in (stage.refresh, stage.measuring) if product)


def _open(product: Product) -> int:
    """See trainer/handover.py."""
    if product.lag_steps is not None:
        return math.ceil(product.lag_steps / product.every_steps)
    return math.ceil(product.staleness_steps / product.every_steps) + 1 if isinstance(product, Refresh) else 3


def checkpoints_at_once(recipe: Recipe) -> int:
    """Checkpoints in the run directory at its fullest: what stages start from, of each stage the newest and the best, and those in work.

    While a stage runs, its former best stays beside the new one, and a new checkpoint is written before an old one goes.
    """
    kept = sum(recipe.keep.checkpoints + (stage.evaluate is not None) for stage in recipe.stages.values())
    return 2 + len(recipe.outside_starts) + kept + max((stage.evaluate is not None) + open_at_once(stage) for stage in recipe.stages.values())


def vectors_at_once(recipe: Recipe) -> int:
    """Vectors of all documents: of the newest checkpoint and those in work, in the closing precision, and in the index."""
    return 3 + max(open_at_once(stage) for stage in recipe.stages.values())


def generations_kept(recipe: Recipe, stage: Stage, source: Source) -> int:
    """Tables of a source in the run directory at their most."""
    mined = times_mined(stage, source)
    return mined if recipe.keep.tables == "all" else min(mined, recipe.keep.tables + 1 + open_at_once(stage))


def candidates_kept(recipe: Recipe) -> int:
    """Of an anchor, in all tables in the run directory at their most."""
    total, former = 0, {}
    for stage in recipe.stages.values():
        mined = [(name, source, source.most_candidates(former.get(name, 0))) for name, term in stage.terms.items() for source in term.negatives]
        total += sum(width * generations_kept(recipe, stage, source) for _, source, width in mined)
        former = {name: sum(width for of_term, _, width in mined if of_term == name) for name in stage.terms}
    return total


def documents_encoded(stage: Stage, documents: int) -> int:
    """By all refreshes and dev evaluations; an evaluation at the step of a refresh finds its vectors. Where the query tower
    trains alone, all are encoded before the first step and never again.
    """
    if stage.train == "queries":
        return documents
    refreshes = refresh_steps(stage)
    sample = stage.evaluate and stage.evaluate.sample_documents
    return len(refreshes) * documents + len(evaluation_steps(stage) - refreshes) * min(documents, sample or documents)


def closing_encodings(recipe: Recipe) -> int:
    """The closing table encodes the collection for the untrained encoder, other starts, and each stage that trains the document
    tower, at most once each.
    """
    return 1 + len(recipe.outside_starts) + sum(stage.train == "both" for stage in recipe.stages.values())
