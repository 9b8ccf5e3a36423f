"""The results of an experiment: the model exported for Pyserini, the command that searches with it, and the
results table."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.passages import passage_ids
from pyserini_ance.encoders.dpr_export import is_dpr, to_dpr
from pyserini_ance.encoders.family import Family
from pyserini_ance.encoders.load_save import TOWERS, name_origin, read_side_file
from pyserini_ance.encoders.sentence_transformers_export import write_sentence_transformers
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import BM25, HYBRID, SECONDS, UNTRAINED, expected_rows, last_stage, table
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator, extra_columns, measure_columns
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import copy_whole, read_json, write_whole
from pyserini_ance.storage.publish import whole_folder
from pyserini_ance.vectors.encoding import ShardedVectors

if TYPE_CHECKING:
    from pyserini_ance.pyserini_bridge.stock_class import StockChoice


def export(
    row: str, checkpoint: Checkpoint, evaluator: FinalEvaluator, seconds: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write `model/`, `index/`, and the final run and the topics of each test split.

    Returns the record of `row`, with `seconds` added, and how to search with the model. The measured rankings
    were searched over exactly the vectors that the index holds. Called by all processes; the main process
    writes.
    """
    start = time.perf_counter()
    snapshot = evaluator.rank(row, checkpoint)
    record = evaluator.measure(row, time.perf_counter() - start, **seconds)
    evaluator.rank_by_indexes(row, snapshot)
    vectors = snapshot.document_vectors
    provenance = {
        "weights": checkpoint.weights,
        "document_weights": checkpoint.document_weights,
        "precision": snapshot.precision,
    }
    exported = evaluator.world.on_main(lambda: _write(row, checkpoint, evaluator, vectors, provenance))
    return record, exported


def _write(
    row: str,
    checkpoint: Checkpoint,
    evaluator: FinalEvaluator,
    vectors: ShardedVectors,
    provenance: dict[str, str],
) -> dict[str, Any]:
    from pyserini_ance.pyserini_bridge.export import search_command, write_topics
    from pyserini_ance.pyserini_bridge.vector_files import write_index

    run, data, test = evaluator.run, evaluator.data, evaluator.recipe.final_evaluation
    queries = {split: data.collection.split(split).queries for split in test.split}
    texts = [text for of_split in queries.values() for text in of_split.columns["text"]]
    choice, notes = _write_model(checkpoint.encoder, run.model, evaluator.recipe.encoder, texts)
    shutil.rmtree(run.index, ignore_errors=True)
    ids = passage_ids(data.collection.documents.ids, data.passages)
    write_index(vectors, ids, run.index, {"encoder": "../model", **provenance})
    max_passages = data.passages.max_passages if data.passages else 1
    commands = []
    for split, of_split in queries.items():
        copy_whole(run.ranking(row, split), run.final_run(split))
        pairs = list(zip(of_split.ids, of_split.columns["text"], strict=True))
        topics = write_topics(pairs, run.folder, split)
        output = run.folder / ("run.pyserini.txt" if len(queries) == 1 else f"run.pyserini.{split}.txt")
        commands.append(search_command(topics, run.index, output, choice, test.hits, max_passages))
    documents = {
        "encoder": str(choice.document_folder),
        "class": choice.document_class,
        "flags": choice.document_flags,
    }
    return {
        "class": choice.query_class,
        "documents": documents,
        "notes": [*choice.describe(), *notes],
        "command": "\n".join(commands),
    }


def _write_model(
    encoder: Path, folder: Path, family: Family, queries: Sequence[str]
) -> tuple["StockChoice", list[str]]:
    """Copy an encoder; return the stock classes of Pyserini that encode as it does, and a note if
    sentence-transformers does not.

    `family`: the recipe's encoder, whose public names replace paths of the run.
    A pair of towers that sentence-transformers cannot express is written in DPR's form if the stock class
    `dpr` then encodes the texts `queries` as the encoder does.
    """
    from pyserini_ance.pyserini_bridge.stock_class import stock_class

    obstacle = None

    def copy(temporary: Path) -> None:
        nonlocal obstacle
        shutil.copytree(encoder, temporary, dirs_exist_ok=True)
        name_origin(temporary, family)
        obstacle = write_sentence_transformers(temporary)

    def copy_as_dpr(temporary: Path) -> None:
        copy(temporary)
        if obstacle:
            to_dpr(temporary)

    _replace(folder, copy_as_dpr)
    choice = stock_class(read_side_file(folder), folder, queries)
    if choice.query_class != "dpr" and is_dpr(folder / TOWERS["query"]):
        _replace(folder, copy)
        choice = stock_class(read_side_file(folder), folder, queries)
    return choice, [f"sentence-transformers cannot load this model: it lacks {obstacle}"] if obstacle else []


def _replace(folder: Path, fill: Callable[[Path], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with whole_folder(folder) as temporary:
        fill(temporary)


@dataclass(frozen=True)
class Results:
    """The results table of one run.

    `rows`: BM25, the untrained encoder, external initial weights, each stage's result, and the hybrid of BM25
    and the last, with measures and seconds. `seconds`: of each phase of the run. `exported`: the model's
    Pyserini class, the search command, and with BM25 the fusion command. `warnings`: on stages that did not
    improve. `memory_bytes`: the highest peak of a process, by kind.
    """

    recipe: Recipe
    rows: list[dict[str, Any]]
    seconds: dict[str, float]
    exported: dict[str, Any]
    warnings: Sequence[str] = ()
    memory_bytes: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The content of `measures.json`."""
        return {
            "recipe": self.recipe.name,
            "config_hash": config_hash(self.recipe),
            "measures": measure_columns(self.recipe.final_evaluation),
            "rows": self.rows,
            "seconds": self.seconds,
            **({"memory_bytes": dict(self.memory_bytes)} if self.memory_bytes else {}),
            "export": self.exported,
            **({"warnings": warnings} if (warnings := self.all_warnings) else {}),
        }

    @property
    def all_warnings(self) -> list[str]:
        """`warnings`, and one each if the result is below the untrained encoder, and if BM25 is above all."""
        measure = measure_columns(self.recipe.final_evaluation)[0]
        return [*self.warnings, *_below_untrained(self.rows, measure), *_bm25_is_best(self.rows, measure)]

    def as_text(self) -> str:
        """The results table, the last stage next to the expected figures, and the search command."""
        return results_text(
            self.as_json(), self.recipe.final_evaluation, _expectation(self.recipe, self.rows)
        )


def results_text(values: Mapping[str, Any], settings: FinalEvaluation, expected: str) -> str:
    """The text of a run's results from its `measures.json`; `expected`: what it says of expected figures."""
    rows, exported, warnings = values["rows"], values["export"], values.get("warnings")
    measures = [*measure_columns(settings), *extra_columns(settings)]
    seconds = [name for name in SECONDS if any(row.get(name) is not None for row in rows)]
    timings = ", ".join(f"{phase} {seconds}" for phase, seconds in values["seconds"].items())
    lines = [
        table_with_legend(rows, ["row", *measures, *seconds]),
        *(["", *(f"WARNING: {warning}" for warning in warnings)] if warnings else []),
        *(["", expected] if expected else []),
        "",
        f"seconds: {timings}",
        *exported["notes"],
    ]
    lines += ["search with it:", indent(exported["command"], "  ")]
    if fusion := exported.get("hybrid"):
        lines += ["fuse it with BM25, as in row hybrid:", indent(fusion, "  ")]
    return "\n".join(lines)


def text_of_run(run: RunDir) -> str:
    """The text of a finished run's results.

    Without expected figures, but with the reason, if the recipe names classes that are not here.
    """
    values = read_json(run.measures)
    try:
        expected = _expectation(run.read_recipe(), values["rows"])
    except ValueError as error:
        expected = f"without the figures that the recipe expects: {error}"
    return results_text(values, run.read_final_evaluation(), expected)


def _expectation(recipe: Recipe, rows: Sequence[dict[str, Any]]) -> str:
    """A table of the expected figures beside those of the last stage; "" if nothing is expected."""
    expected = expected_rows(recipe, last_stage(rows))
    return table(expected, list(expected[0])) if expected else ""


def _below_untrained(rows: Sequence[dict[str, Any]], measure: str) -> list[str]:
    """A warning if the run's result has less of `measure` than the untrained encoder."""
    untrained = next((row for row in rows if row["row"] == UNTRAINED), None)
    final = last_stage(rows)
    if untrained is None or final[measure] >= untrained[measure]:
        return []
    return [
        f"{final['row']} is below the untrained encoder: {measure} {final[measure]:.4f} instead of "
        f"{untrained[measure]:.4f}. See docs/guides/choosing-a-method.md, It got worse"
    ]


def _bm25_is_best(rows: Sequence[dict[str, Any]], measure: str) -> list[str]:
    """A warning if BM25 alone has more of `measure` than the run's result and than both fused."""
    final = last_stage(rows)
    others = [row for row in rows if row["row"] == HYBRID or row is final]
    bm25 = next((row for row in rows if row["row"] == BM25), None)
    if bm25 is None or bm25[measure] <= max(row[measure] for row in others):
        return []
    beaten = ", ".join(f"{row['row']} {row[measure]:.4f}" for row in others)
    return [f"{BM25} alone is the best row: {measure} {bm25[measure]:.4f}, {beaten}"]


def unimproved_stages(recipe: Recipe, run_log: RunLog) -> list[str]:
    """A warning for each stage whose result is its start."""
    return [
        f"stage {ended['stage']} never improved on its start: the result is "
        f"{_start_of(recipe, ended['stage'])}"
        for ended in run_log.decisions("stage_end")
        if step_of(ended["result"]) == 0
    ]


def _start_of(recipe: Recipe, name: str) -> str:
    """What a stage starts from, in words."""
    init_from, previous = recipe.stages[name].init_from, recipe.stage_before(name)
    if init_from == "initial" or (init_from == "previous" and previous is None):
        return "the untrained encoder"
    if init_from == "previous":
        return f"that of stage {previous}"
    assert not isinstance(init_from, str)
    return (
        f"its initial weights, {init_from}" if init_from.is_external else f"that of stage {init_from.stage}"
    )


def write_qrels(collection: Collection, split: str, path: Path) -> None:
    """Write the judgments of a split as TREC qrels."""
    judged_split, ids = collection.split(split), collection.documents.ids
    judgments = (
        (query, *judged_split.qrels.judged(row)) for row, query in enumerate(judged_split.queries.ids)
    )
    lines = (
        f"{query} 0 {ids[document]} {grade}\n"
        for query, documents, grades in judgments
        for document, grade in zip(documents, grades, strict=True)
    )
    write_whole(path, "".join(lines))
