"""Warnings about settings and data that a run accepts, though they are hardly meant."""

from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.texts import text_key
from pyserini_ance.pipeline.data_checks import dev_splits
from pyserini_ance.recipe.models import Recipe

COMPARED = 10_000  # queries with the id of a document whose texts are always compared


def setting_warnings(recipe: Recipe, training_queries: int) -> list[str]:
    """A line for each value that is allowed, but hardly meant: it has no effect, or repeats queries."""
    lines = []
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.every_steps > stage.steps:
            lines.append(
                f"stages.{name}.refresh.every_steps is {stage.refresh.every_steps:,}, but the stage has "
                f"{stage.steps:,} steps: its negatives are mined at its start and never refreshed"
            )
        if stage.lr_schedule.warmup_steps > stage.horizon_steps:
            lines.append(
                f"stages.{name}.lr_schedule.warmup_steps is {stage.lr_schedule.warmup_steps:,}, but the "
                f"schedule has {stage.horizon_steps:,} steps: the rate never rises to "
                "optimizer.learning_rate"
            )
        if stage.batch_queries > training_queries:
            lines.append(
                f"stages.{name}.batch_queries is {stage.batch_queries:,}, but there are {training_queries:,} "
                "training queries: a batch has the same query more than once"
            )
    return lines


def data_warnings(recipe: Recipe, collection: Collection) -> list[str]:
    """A line for each trait of the data that is allowed, but makes figures other than they seem."""
    lines = []
    for name, count in also_trained_on(recipe, collection).items():
        if count:
            total = len(collection.split(name).queries)
            lines.append(
                f"{count:,} of {total:,} queries of split {name!r} are training queries too (the same id or "
                "text), so its figures are too high; remove them from one of the splits"
            )
    if count := queries_that_are_documents(collection):
        lines.append(
            f"{count:,} queries are documents, with the same id and text: each stays in its own ranking, and "
            "may be its negative; leave them out, as BEIR does: data.ignore_identical_ids=true"
        )
    if recipe.data.hold_out and _has_own_dev(recipe.data):
        lines.append(
            "data.hold_out makes split 'dev' of training queries; the data's own 'dev' is not read; to use "
            "that, set data.hold_out=null"
        )
    return lines


def also_trained_on(recipe: Recipe, collection: Collection) -> dict[str, int]:
    """How many queries of each other split that is measured on are training queries: same id or same text.

    Texts may differ in case and blanks. Ids that are numbers say nothing: many files count their queries.
    """
    training = recipe.train_split.splits
    ids: set[str] = set()
    texts: set[str] = set()
    for queries in (collection.split(name).queries for name in training):
        ids.update(id for id in queries.ids if not id.isdecimal())
        texts.update(map(text_key, queries.columns["text"]))
    measured = {*recipe.final_evaluation.split, *dev_splits(recipe)}
    return {
        name: sum(
            id in ids or text_key(text) in texts
            for id, text in zip(split.queries.ids, split.queries.columns["text"], strict=True)
        )
        for name, split in collection.splits.items()
        if name in measured.difference(training)
    }


def queries_that_are_documents(collection: Collection) -> int:
    """How many queries have the id and the text, or title, of a document, if rankings do not leave it out.

    Texts may differ in case and blanks. Of very many queries with the id of a document, as where both are
    numbers, all are compared only if one of a sample has its text.
    """
    if collection.ignore_identical_ids:
        return 0
    documents, found = collection.documents, set[str]()
    for queries in (split.queries for split in collection.splits.values()):
        rows = documents.rows_of(queries.ids)

        def is_document(query: int, queries: Texts = queries, rows: np.ndarray = rows) -> bool:
            fields = [text for text in documents[int(rows[query])].values() if text]
            texts = {text_key(text) for text in [*fields, " ".join(fields)]}
            return text_key(queries.columns["text"][query]) in texts

        same_ids = np.flatnonzero(rows >= 0)
        sample = same_ids[:: max(1, len(same_ids) // COMPARED)].tolist()
        if any(map(is_document, sample)):
            found.update(queries.ids[query] for query in same_ids.tolist() if is_document(query))
    return len(found)


def _has_own_dev(data: Format) -> bool:
    """Whether the data has a split `dev`: its files are there, or the settings name it and list no files."""
    if "dev" not in getattr(data, "splits", {}):
        return False
    paths = [path for key, path in data.files() if f"{key}.".startswith("data.splits.dev.")]
    return all(path.expanduser().exists() or Path(f"{path}.gz").expanduser().exists() for path in paths)
