"""A recipe's collection, negatives that a run has mined for it, and a run's rankings, in the layouts of other tools."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.joint import with_joint
from pyserini_ance.data.stored import reading_room
from pyserini_ance.data.trec import Run, read_run, write_ranks, write_run
from pyserini_ance.data.writers import write_beir, write_tevatron
from pyserini_ance.experiment.prepare import data_of
from pyserini_ance.experiment.ranked import named, ranking_file
from pyserini_ance.measures.evaluate import best_first
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import open_generation, table_name
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.folders import whole_folder
from pyserini_ance.storage.publish import is_complete, read_manifest

Row = tuple[str, str, float]  # query, document, score
RUN_FORMS = {"trec": lambda path, rows: write_run(path, rows, tag="pyserini_ance"), "msmarco": write_ranks}


def convert(source: str, to: str, output: Path, table: str | None = None, split: str | None = None, overrides: tuple[str, ...] = ()) -> str:
    """Write `output`, and say in a line how it is read again.

    `source` is a recipe, or a run directory, whose mined negatives `trec` and `msmarco` write, and `tevatron` too; `table` names
    them as `generation/table`, such as ance-00000100/query.0: else it is the only one of the last generation. With `split`, or of a
    `source` FOLDER:ROW, these two write the ranking of a test split (else the first), the final one or that of the row.
    """
    folder, row = named(source)
    run = _run_at(folder)
    if row or split:
        if run is None:
            raise ValueError(f"{source} is no run directory, and has no rankings; name one, as FOLDER or FOLDER:ROW, or leave out --split")
        return _to_ranking(run, row, split, to, output, table)
    if run is None and (table or to in RUN_FORMS):
        raise ValueError(f"{source} is a recipe, which has mined no negatives; name a run directory, or leave out --table and write beir or tevatron")
    if to == "beir" and table:
        raise ValueError(f"--table {table} names negatives, for which beir has no place; leave it out, or write tevatron, trec or msmarco")
    recipe = load(run.recipe if run else source, *overrides).recipe
    with reading_room(recipe.cache) as documents:
        return _write(recipe, run, (data_of(recipe) if run else recipe.data).read(documents), to, output, table)


def _write(recipe: Recipe, run: RunDir | None, collection: Collection, to: str, output: Path, table: str | None) -> str:
    if to == "beir":
        return _to_beir(_judged(collection), recipe.data.relevance_threshold, output)
    training = recipe.train_split
    collection = with_joint(collection, training.name, training.splits)
    rows = list(_rows(_mined(recipe, run, collection, table), collection, training.name)) if run else []
    if to == "tevatron":
        return _to_tevatron(_judged(collection), training.name, rows, output)
    RUN_FORMS[to](output, rows)
    return _flow({"kind": "run", "file": str(output)})


def _to_ranking(run: RunDir, row: str | None, split: str | None, to: str, output: Path, table: str | None) -> str:
    if table or to not in RUN_FORMS:
        forms = " or ".join(RUN_FORMS)
        raise ValueError(f"a ranking is written by --to {forms}, without --table, which names negatives; for these name {run.folder} alone")
    split = split or load(run.recipe).recipe.test.split[0]
    ranking = read_run(ranking_file(run, row, split))
    RUN_FORMS[to](output, ((query, document, hits[document]) for query, hits in ranking.items() for document in best_first(hits)))
    return "test: " + _flow({"rerank": {split: {"file": str(output)}}})


def _judged(collection: Collection) -> Collection:
    """Without splits of which nobody has judged anything: these layouts have no place for them."""
    return replace(collection, splits={name: split for name, split in collection.splits.items() if split.is_judged})


def _run_at(run: RunDir) -> RunDir | None:
    if run.folder.is_dir() and not run.recipe.is_file():
        raise FileNotFoundError(f"{run.folder} is a folder, but no run directory (no {run.recipe.name}); name a recipe or a run")
    return run if run.folder.is_dir() else None


def _to_beir(collection: Collection, threshold: int, output: Path) -> str:
    with whole_folder(output) as folder:
        write_beir(collection, folder)
    splits = {name: f"qrels/{name}.tsv" for name in collection.splits}
    return "data: " + _flow({"kind": "beir", "folder": str(output), "splits": splits} | ({"relevance_threshold": threshold} if threshold > 1 else {}))


def _to_tevatron(collection: Collection, training: str, rows: list[Row], output: Path) -> str:
    negatives: Run = {}
    for query, document, score in rows:
        negatives.setdefault(query, {})[document] = score
    with whole_folder(output) as folder:
        write_tevatron(collection, folder, {training: negatives})
    splits = {name: str(output / f"{name}.jsonl") for name in collection.splits}
    return "data: " + _flow({"kind": "tevatron", "corpus": str(output / "corpus.jsonl"), "splits": splits})


def _flow(value: dict) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf).strip()


def _mined(recipe: Recipe, run: RunDir, collection: Collection, name: str | None) -> NegativeTable:
    wanted, _, key = (name or "").partition("/")
    folders = {folder.name: folder for folder in run.negatives.glob("*-????????") if is_complete(folder)}
    if not folders or (wanted and wanted not in folders):
        known = ", ".join(sorted(folders)) or "none"
        raise ValueError(f"{run.negatives} has no generation {wanted or 'of negatives'}; generations: {known}; name one of them: --table GENERATION")
    stages = list(recipe.stages)
    manifests = {name: read_manifest(folder, verify=False) for name, folder in folders.items()}
    chosen = wanted or max(manifests, key=lambda name: (stages.index(manifests[name]["stage"]), manifests[name]["step"]))
    opened = open_generation(folders[chosen], {"collection": collection.digest})
    tables = {table_name(place): table for place, table in opened.tables.items()}
    if key not in tables and (key or len(tables) > 1):
        raise ValueError(f"generation {chosen} has the tables {', '.join(tables)}; name one of them: --table {chosen}/{next(iter(tables))}")
    table = tables[key] if key else next(iter(tables.values()))
    if table.anchor_side != "query":
        raise ValueError(f"the table of {chosen} holds queries for documents, but what is written lists documents for queries; name another table")
    return table


def _rows(table: NegativeTable, collection: Collection, split: str) -> Iterator[Row]:
    queries, documents = collection.split(split).queries.ids, collection.documents.ids
    for anchor, candidates, scores in zip(table.anchors.tolist(), table.candidates.tolist(), table.scores.tolist(), strict=True):
        found = dict(zip(reversed(candidates), reversed(scores), strict=True))  # the first of a repeated one counts
        for candidate in dict.fromkeys(candidates):
            if candidate != PADDING:
                yield queries[anchor], documents[candidate], found[candidate]
