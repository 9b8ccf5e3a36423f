"""Write a collection or a ranking in the formats of other tools; `data/formats/` reads them again."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import documents_file
from pyserini_ance.data.collection_files import write_beir, write_tevatron
from pyserini_ance.data.trec import Rows, best_first, read_run, write_ranks, write_run
from pyserini_ance.pipeline.preparation import recipe_data
from pyserini_ance.recipe.yaml_text import to_yaml
from pyserini_ance.reports.ranking_inputs import parse_ranking_name, ranking_file
from pyserini_ance.runs.rundir import load_recipe
from pyserini_ance.storage.files import check_not_input
from pyserini_ance.storage.publish import whole_folder

log = logging.getLogger(__name__)
READ_AGAIN = ("title", "text")  # the fields of a document in kinds beir and tevatron
RUN_FORMATS: dict[str, Callable[[Path, Rows], None]] = {
    "trec": lambda path, rows: write_run(path, rows, tag="pyserini_ance"),
    "msmarco": write_ranks,
}


def convert(
    source: str, to: str, output: Path, split: str | None = None, overrides: tuple[str, ...] = ()
) -> str:
    """Write `output` in the format `to`; returns the recipe key that reads it again, as one line of YAML.

    source: for `beir` and `tevatron` a recipe or a run directory, whose collection they hold; for `trec` and
        `msmarco` a run directory, or FOLDER:ROW, whose ranking they hold.
    split: the test split of the ranking; default: the run's first.
    """
    run, row = parse_ranking_name(source)
    if to in RUN_FORMATS:
        run.check()
        if overrides:
            raise ValueError(f"a ranking is written as it is, without overrides; remove {overrides[0]}")
        split = split or run.read_final_evaluation().split[0]
        ranking = read_run(ranking_file(run, row, split))
        hits = ((query, one, found[one]) for query, found in ranking.items() for one in best_first(found))
        RUN_FORMATS[to](output, hits)
        return "final_evaluation: " + _one_line({"rerank": {split: str(output)}})
    if row or split:
        formats = " or ".join(RUN_FORMATS)
        raise ValueError(f"--to {to} holds a collection; write the ranking with --to {formats}")
    is_run = run.folder.is_dir()
    if is_run:
        run.check()
    recipe = load_recipe(run.recipe if is_run else source, *overrides).recipe
    data = recipe_data(recipe) if is_run else recipe.data
    check_not_input(output, data.input_files())
    with documents_file(recipe.cache) as path:
        return _to_folder(data.read(path), to, output, recipe.data.relevance_threshold)


def _to_folder(collection: Collection, to: str, output: Path, threshold: int) -> str:
    """Write the formats `beir` and `tevatron`, which hold no split without judgments.

    Warnings name such splits, and the fields of documents that kind `to` does not read again.
    """
    judged = {name: split for name, split in collection.splits.items() if split.is_judged}
    for name, split in collection.splits.items():
        if name not in judged:
            count = len(split.queries)
            log.warning("split %s is left out with its %d queries: %s needs judgments", name, count, to)
    if others := ", ".join(field for field in collection.documents.columns if field not in READ_AGAIN):
        known = " and ".join(READ_AGAIN)
        log.warning("kind %s reads %s alone: %s is written, but not read again", to, known, others)
    collection = replace(collection, splits=judged)
    with whole_folder(output) as folder:
        if to == "beir":
            write_beir(collection, folder)
        else:
            write_tevatron(collection, folder)
    if to == "tevatron":
        splits = {name: str(output / f"{name}.jsonl") for name in judged}
        return "data: " + _one_line({"kind": to, "corpus": str(output / "corpus.jsonl"), "splits": splits})
    data = {"kind": to, "folder": str(output), "splits": {name: f"qrels/{name}.tsv" for name in judged}}
    return "data: " + _one_line(data | ({"relevance_threshold": threshold} if threshold > 1 else {}))


def _one_line(value: dict[str, Any]) -> str:
    """`value` as YAML in flow style."""
    return to_yaml(value, default_flow_style=True, width=math.inf).strip()
