"""Write a collection, mined negatives or a ranking in the formats of other tools; `data/formats/` reads them
again."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import documents_file
from pyserini_ance.data.collection_files import NegativesOf, write_beir, write_tevatron
from pyserini_ance.data.formats.files import input_files
from pyserini_ance.data.prepared import merge_splits
from pyserini_ance.data.trec import PADDING, best_first, read_run, write_ranks, write_run
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pipeline.preparation import recipe_data
from pyserini_ance.pipeline.ranking_inputs import parse_ranking_name, ranking_file
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import open_generation, table_name
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.files import check_not_input
from pyserini_ance.storage.publish import is_complete, read_manifest, whole_folder

log = logging.getLogger(__name__)

Row = tuple[str, str, float]  # query, document, score


def _write_trec(path: Path, rows: Iterable[Row]) -> None:
    write_run(path, rows, tag="pyserini_ance")


READ_AGAIN = ("title", "text")  # the fields of a document in kinds beir and tevatron
TEVATRON_NEGATIVES = 30  # with full texts; Tevatron draws fewer than this for each query and step

RUN_FORMATS: dict[str, Callable[[Path, Iterable[Row]], None]] = {"trec": _write_trec, "msmarco": write_ranks}


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
    run_dir, row = parse_ranking_name(source)
    if run_dir.folder.is_dir() and not run_dir.recipe.is_file():
        raise FileNotFoundError(
            f"{run_dir.folder} is not a run directory ({run_dir.recipe.name} is missing). "
            "Pass a recipe, or a directory written by `pyserini-ance train`"
        )
    run = run_dir if run_dir.folder.is_dir() else None
    is_ranking = bool(row or split)
    if negatives is not None and (run is None or is_ranking or to == "beir"):
        raise ValueError(
            f"--num-negatives {negatives} limits the mined negatives of a run directory, but what is written "
            "has none; remove it"
        )
    if run is None and is_ranking:
        raise ValueError(
            f"{source} is not a run directory and has no rankings; pass one, as FOLDER or FOLDER:ROW, "
            "or remove --split"
        )
    if run is None and (table or to in RUN_FORMATS):
        asked = f"--table {table}" if table else f"--to {to}"
        raise ValueError(
            f"{asked} writes what a run has mined or ranked, but {source} is a recipe, which has no mined "
            "negatives; pass a run directory, or write the recipe's data with --to beir or tevatron"
            f"{' and without --table' if table else ''}"
        )
    if run and is_ranking:
        if overrides:
            raise ValueError(
                f"{' '.join(overrides)}: a ranking is written as it is, whatever the recipe; remove it"
            )
        return _to_ranking(run, row, split, to, output, table)
    if to == "beir" and table:
        raise ValueError(
            f"--table {table} names negatives, which the beir format cannot hold; remove it, or write "
            "tevatron, trec or msmarco"
        )
    recipe = load_recipe(run.recipe if run else source, *overrides).recipe
    data = recipe_data(recipe) if run else recipe.data
    check_not_input(output, input_files(data))
    with documents_file(recipe.cache) as path:
        collection = data.read(path)
        if to == "beir":
            return _to_folder(collection, to, output, {}, recipe.data.relevance_threshold)
        training = recipe.train_split
        collection = merge_splits(collection, training.name, training.splits)
        mined = _mined_table(recipe, run, collection, table) if run else None
        if to == "tevatron":
            limit = negatives or TEVATRON_NEGATIVES
            by_split = {training.name: _negatives_of(mined, limit)} if mined else {}
            return _to_folder(collection, to, output, by_split)
        assert mined is not None  # a recipe is refused above
        queries, documents = collection.split(training.name).queries.ids, collection.documents.ids
        rows = (
            (queries[anchor], documents[candidate], score)
            for position, anchor in enumerate(mined.anchors.tolist())
            for candidate, score in _scores(mined, position, negatives).items()
        )
        RUN_FORMATS[to](output, rows)
    return _one_line({"kind": "ranking", "file": str(output)})


def _to_ranking(
    run: RunDir, row: str | None, split: str | None, to: str, output: Path, table: str | None
) -> str:
    if table or to not in RUN_FORMATS:
        raise ValueError(
            f"a ranking is written by --to {' or '.join(RUN_FORMATS)}, without --table, which names "
            f"negatives; for negatives pass {run.folder} alone"
        )
    split = split or run.read_final_evaluation().split[0]
    ranking = read_run(ranking_file(run, row, split))
    rows = (
        (query, document, hits[document]) for query, hits in ranking.items() for document in best_first(hits)
    )
    RUN_FORMATS[to](output, rows)
    return "final_evaluation: " + _one_line({"rerank": {split: {"file": str(output)}}})


def _to_folder(
    collection: Collection, to: str, output: Path, negatives: Mapping[str, NegativesOf], threshold: int = 1
) -> str:
    """Write the formats `beir` and `tevatron`, which hold no split without judgments.

    Warnings name such splits, and the fields of documents that kind `to` does not read again.
    """
    judged = {name: split for name, split in collection.splits.items() if split.is_judged}
    for name in (name for name in collection.splits if name not in judged):
        reason = f"it has no judgments, which {to} needs"
        log.warning(
            "split %s is left out with its %d queries: %s", name, len(collection.split(name).queries), reason
        )
    if others := [field for field in collection.documents.columns if field not in READ_AGAIN]:
        log.warning(
            "kind %s reads %s alone: %s of the documents is written, but not read again",
            to,
            " and ".join(READ_AGAIN),
            ", ".join(others),
        )
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
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.strip()


def _mined_table(recipe: Recipe, run: RunDir, collection: Collection, name: str | None) -> NegativeTable:
    """The table `GENERATION/TABLE` of a run; default: the only table of the last generation."""
    generation, _, key = (name or "").partition("/")
    folders = {folder.name: folder for folder in run.negatives.glob("*-????????") if is_complete(folder)}
    if not folders:
        raise ValueError(
            f"{run.folder} has mined no negatives; pass a run that has. For its data alone pass its recipe, "
            f"{run.recipe}, with --to tevatron or beir; for its ranking add --split NAME, with --to trec"
        )
    if generation and generation not in folders:
        raise ValueError(
            f"{run.negatives} has no generation {generation}; "
            f"generations: {', '.join(sorted(folders))}; pass one of them: --table GENERATION"
        )
    if not generation:  # the last one of the last stage that has one; one of a teacher is never the last
        stages = list(recipe.stages)
        manifests = {name: read_manifest(folder, verify=False) for name, folder in folders.items()}
        of_stages = {
            name: (stages.index(manifest["stage"]), manifest["step"])
            for name, manifest in manifests.items()
            if manifest["stage"] in stages
        }
        if not of_stages:
            raise ValueError(
                f"only teachers have generations of negatives: {', '.join(sorted(folders))}; pass one of "
                "them: --table GENERATION"
            )
        generation = max(of_stages, key=lambda name: of_stages[name])
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


def _negatives_of(table: NegativeTable, limit: int | None = None) -> NegativesOf:
    """The first `limit` candidates of a query in the table; none for a query that is not in it."""
    positions = {anchor: position for position, anchor in enumerate(table.anchors.tolist())}
    return lambda query: list(_scores(table, positions[query], limit)) if query in positions else []


def _scores(table: NegativeTable, position: int, limit: int | None) -> dict[int, float]:
    """The first `limit` candidates of an anchor with their scores; that of a repeated one is its first."""
    scores: dict[int, float] = {}
    candidates = zip(table.candidates[position].tolist(), table.scores[position].tolist(), strict=True)
    for candidate, score in candidates:
        if candidate != PADDING:
            scores.setdefault(candidate, score)
    return dict(islice(scores.items(), limit))
