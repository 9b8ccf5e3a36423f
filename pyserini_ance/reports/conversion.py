"""Write a collection, mined negatives or a ranking in the formats of other tools; `data/formats/` reads them
again."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import documents_file
from pyserini_ance.data.collection_files import NegativesOf, write_beir, write_tevatron
from pyserini_ance.data.prepared import merge_splits
from pyserini_ance.data.trec import PADDING, Rows, best_first, read_run, write_ranks, write_run
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pipeline.preparation import recipe_data
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.yaml_text import to_yaml
from pyserini_ance.reports.ranking_inputs import check_run_directory, parse_ranking_name, ranking_file
from pyserini_ance.runs.generation import open_generation, table_name
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.files import check_not_input
from pyserini_ance.storage.publish import is_complete, whole_folder

log = logging.getLogger(__name__)
READ_AGAIN = ("title", "text")  # the fields of a document in kinds beir and tevatron
TEVATRON_NEGATIVES = 30  # with full texts; Tevatron draws fewer than this for each query and step
RUN_FORMATS: dict[str, Callable[[Path, Rows], None]] = {
    "trec": lambda path, rows: write_run(path, rows, tag="pyserini_ance"),
    "msmarco": write_ranks,
}


def convert(
    source: str,
    to: str,
    output: Path,
    table: str | None = None,
    split: str | None = None,
    overrides: tuple[str, ...] = (),
    negatives: int | None = None,
) -> str:
    """Write `output` in the format `to`; returns the recipe key that reads it again, as one line of YAML.

    source: a recipe or a run directory, whose mined negatives `trec`, `msmarco` and `tevatron` write.
    table: the negatives as `GENERATION/TABLE`, such as ance-00000100/query.0; default: the only table of the
        last generation.
    split: write the ranking of this test split instead of negatives; with the source `FOLDER:ROW`, that of
        the row.
    negatives: write the first of each query's negatives only; default: TEVATRON_NEGATIVES for tevatron, else
        all.
    """
    run, row = parse_ranking_name(source)
    is_run, is_ranking = run.folder.is_dir(), bool(row or split)
    if is_run:
        check_run_directory(run, run.recipe)
    elif is_ranking or table or to in RUN_FORMATS:
        raise ValueError(
            f"{source} is not a run directory: it has no rankings and no mined negatives; pass one, as "
            "FOLDER or FOLDER:ROW, or write the recipe's data with --to beir or tevatron, without --table "
            "and --split"
        )
    if negatives is not None and (not is_run or is_ranking or to == "beir"):
        raise ValueError(
            f"--num-negatives {negatives} limits the mined negatives of a run directory, but what is written "
            "has none; remove it"
        )
    if table and to == "beir":
        raise ValueError(
            f"--table {table} names negatives, which the beir format cannot hold; remove it, or write "
            "tevatron, trec or msmarco"
        )
    if is_ranking:
        if overrides or table or to not in RUN_FORMATS:
            raise ValueError(
                f"a ranking is written as it is, by --to {' or '.join(RUN_FORMATS)}, without overrides and "
                f"--table; for negatives pass {run.folder} alone"
            )
        split = split or run.read_final_evaluation().split[0]
        ranking = read_run(ranking_file(run, row, split))
        hits = ((query, one, found[one]) for query, found in ranking.items() for one in best_first(found))
        RUN_FORMATS[to](output, hits)
        return "final_evaluation: " + _one_line({"rerank": {split: {"file": str(output)}}})
    recipe = load_recipe(run.recipe if is_run else source, *overrides).recipe
    data = recipe_data(recipe) if is_run else recipe.data
    check_not_input(output, data.input_files())
    with documents_file(recipe.cache) as path:
        collection = data.read(path)
        if to == "beir":
            return _to_folder(collection, to, output, {}, recipe.data.relevance_threshold)
        training = recipe.train_split
        collection = merge_splits(collection, training.name, training.splits)
        limit = negatives or (TEVATRON_NEGATIVES if to == "tevatron" else None)
        mined = mined_table(recipe, run, collection, table) if is_run else None
        places = {} if mined is None else {one: place for place, one in enumerate(mined.anchors.tolist())}

        def first(query: int) -> dict[int, float]:
            """The first candidates of a query with their scores; a repeated one has its first score."""
            scores: dict[int, float] = {}
            if mined is not None and query in places:
                found, of_found = mined.candidates[places[query]], mined.scores[places[query]]
                for candidate, score in zip(found.tolist(), of_found.tolist(), strict=True):
                    if candidate != PADDING:
                        scores.setdefault(candidate, score)
            return dict(islice(scores.items(), limit))

        if to == "tevatron":
            return _to_folder(collection, to, output, {training.name: lambda query: list(first(query))})
        queries, documents = collection.split(training.name).queries.ids, collection.documents.ids
        rows = (
            (queries[query], documents[candidate], score)
            for query in places
            for candidate, score in first(query).items()
        )
        RUN_FORMATS[to](output, rows)
    return _one_line({"kind": "ranking", "file": str(output)})


def _to_folder(
    collection: Collection, to: str, output: Path, negatives: Mapping[str, NegativesOf], threshold: int = 1
) -> str:
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
            write_tevatron(collection, folder, negatives)
    if to == "tevatron":
        splits = {name: str(output / f"{name}.jsonl") for name in judged}
        return "data: " + _one_line({"kind": to, "corpus": str(output / "corpus.jsonl"), "splits": splits})
    data = {"kind": to, "folder": str(output), "splits": {name: f"qrels/{name}.tsv" for name in judged}}
    return "data: " + _one_line(data | ({"relevance_threshold": threshold} if threshold > 1 else {}))


def _one_line(value: dict[str, Any]) -> str:
    """`value` as YAML in flow style."""
    return to_yaml(value, default_flow_style=True, width=math.inf).strip()


def mined_table(recipe: Recipe, run: RunDir, collection: Collection, name: str | None) -> NegativeTable:
    """The table `GENERATION/TABLE` of a run; default: the only table of the last stage's last generation."""
    generation, _, key = (name or "").partition("/")
    folders = {folder.name: folder for folder in run.negatives.glob("*-????????") if is_complete(folder)}
    if not folders:
        raise ValueError(
            f"{run.folder} has mined no negatives; pass a run that has. For its data alone pass its recipe, "
            f"{run.recipe}, with --to tevatron or beir; for its ranking add --split NAME, with --to trec"
        )
    if not generation:  # one of a teacher is never the last
        stages = list(recipe.stages)
        positions = {one: one.rpartition("-")[0] for one in folders}
        of_stages = [one for one, stage in positions.items() if stage in stages]
        generation = max(of_stages, key=lambda one: (stages.index(positions[one]), one), default="")
    if generation not in folders:
        raise ValueError(
            f"{run.negatives} has no generation {generation or 'of a stage'}; "
            f"generations: {', '.join(sorted(folders))}; pass one of them: --table GENERATION"
        )
    opened = open_generation(folders[generation], {"collection": collection.digest})
    tables = {table_name(position): table for position, table in opened.tables.items()}
    if key not in tables and (key or len(tables) > 1):
        raise ValueError(
            f"generation {generation} has the tables {', '.join(tables)}; pass one of them: "
            f"--table {generation}/{next(iter(tables))}"
        )
    table = tables[key] if key else next(iter(tables.values()))
    if table.anchor_side != "query":
        raise ValueError(
            f"the table of {generation} holds queries for documents, but these formats list documents for "
            "queries; pass another table"
        )
    return table
