"""What a recipe will do, before it runs: refreshes, evaluations, encodings, and files at once.

Arithmetic on the recipe alone, for the plan, which imports nothing that only training needs.
"""

import math

from pyserini_ance.negatives.source import Source
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Product, Refresh
from pyserini_ance.recipe.stage import Stage


def refresh_steps(stage: Stage) -> set[int]:
    """The steps before which negatives are mined again."""
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    """The steps before which the dev measure is computed; `stage.steps` is the end of the stage."""
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


def times_mined(stage: Stage, source: Source) -> int:
    """The number of tables that a source makes: one if it is static, else one per refresh."""
    return len(refresh_steps(stage)) if source.is_dynamic else 1


def open_at_once(stage: Stage) -> int:
    """The highest number of checkpoints whose products are pending, or done and not yet adopted."""
    products = (stage.refresh, stage.effective_evaluate)
    return sum(_open_at_once(product) for product in products if product)


def _open_at_once(product: Product) -> int:
    """See trainer/refresh.py."""
    if product.lag_steps is not None:
        return math.ceil(product.lag_steps / product.every_steps)
    return math.ceil(product.staleness_steps / product.every_steps) + 1 if isinstance(product, Refresh) else 3


def checkpoints_at_once(recipe: Recipe) -> int:
    """The highest number of checkpoints in the run directory at any time.

    They are the initial ones, the newest and the best of each stage, and those with pending products. While a
    stage runs, its previous best is kept until the new one is complete, so are those that it averages, and a
    new checkpoint is written before an old one is removed.
    """
    stages = recipe.stages.values()
    kept = sum(_kept(stage, recipe) for stage in stages)
    return 2 + len(recipe.external_starts) + kept + max(map(_while_running, stages))


def moments_at_once(recipe: Recipe) -> int:
    """The highest number of checkpoints with optimizer moments: those of the running stage.

    With `keep_optimizer`, finished stages keep theirs for a while; the number is then a bound.
    """
    stages = recipe.stages.values()
    if any(stage.keep_optimizer for stage in stages):
        return checkpoints_at_once(recipe) - 1 - len(recipe.external_starts)
    return 1 + max(_kept(stage, recipe) + _while_running(stage) for stage in stages)


def _kept(stage: Stage, recipe: Recipe) -> int:
    return recipe.retention.save_total_limit + (stage.evaluate is not None)


def _while_running(stage: Stage) -> int:
    return (stage.evaluate is not None) + open_at_once(stage) + averaged_at_once(stage)


def averaged_at_once(stage: Stage) -> int:
    """The average, the checkpoints that are kept for it, and the trained best before the last."""
    return 0 if stage.average is None else 2 + (stage.average.checkpoints or 1)


def vectors_at_once(recipe: Recipe) -> int:
    """The highest number of copies of all document vectors.

    They are those of the newest checkpoint, of pending ones, of the final evaluation's precision, and the
    index.
    """
    return 3 + max(open_at_once(stage) for stage in recipe.stages.values())


def generations_kept(recipe: Recipe, stage: Stage, source: Source) -> int:
    """The highest number of tables of a source in the run directory at any time."""
    mined, keep = times_mined(stage, source), recipe.retention.keep_negatives
    return mined if keep == "all" else min(mined, keep + 1 + open_at_once(stage))


def candidates_kept(recipe: Recipe) -> int:
    """The highest number of candidates per anchor in all tables of the run directory together."""
    total = sum(source.max_candidates(0) for one in recipe.teachers.values() for source in one.negatives)
    previous: dict[str, int] = {}
    for stage in recipe.stages.values():
        widths: dict[str, int] = {}
        for name, term in stage.terms.items():
            of_sources = [source.max_candidates(previous.get(name, 0)) for source in term.negatives]
            generations = [generations_kept(recipe, stage, source) for source in term.negatives]
            total += sum(width * count for width, count in zip(of_sources, generations, strict=True))
            widths[name] = sum(of_sources)
        previous = widths
    return total


def documents_encoded(stage: Stage, documents: int) -> int:
    """The number of documents that all refreshes and dev evaluations of a stage encode.

    An evaluation at the step of a refresh uses its vectors. If only the query tower trains, all documents are
    encoded once, before the first step.
    """
    if stage.trainable == "query_tower":
        return documents
    refreshes = refresh_steps(stage)
    sample = (stage.evaluate and stage.evaluate.sample_documents) or documents
    between = evaluation_steps(stage) - refreshes
    return len(refreshes) * documents + len(between) * min(documents, sample)


def evaluation_encodings(recipe: Recipe) -> int:
    """The number of times that the final evaluation encodes the collection, at most.

    It does so once for each document tower among the rows that the recipe wants. A stage that trains only the
    query tower has the document tower of its start.
    """
    rows = recipe.final_evaluation.rows
    *earlier, last = recipe.stages
    stages = [*earlier, last] if "stages" in rows else [last]
    towers = {_document_tower(recipe, name) for name in stages}
    towers |= {"untrained"} & {*rows} | ({*recipe.external_starts} if "start" in rows else set())
    return len(towers)


def _document_tower(recipe: Recipe, name: str) -> str:
    """The row whose document tower the result of a stage has: its own, or that of its start."""
    stage = recipe.stages[name]
    if stage.trainable == "both":
        return name
    if stage.starts_from_checkpoint:
        return next(row for row, start in recipe.external_starts.items() if start == stage.init_from)
    before = recipe.stage_before(name) if stage.init_from == "previous" else None
    if isinstance(stage.init_from, InitFrom):
        before = stage.init_from.stage
    return "untrained" if before is None else _document_tower(recipe, before)
