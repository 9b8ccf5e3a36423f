"""The results of a run: `measures.json` with its warnings, the table as text, and all of it in Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.lines import is_utf8
from pyserini_ance.evaluation import tables
from pyserini_ance.pipeline.data_checks import data_warnings
from pyserini_ance.pipeline.final_evaluator import QUERIES
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.run_log import METRICS, RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json_lines


def results_record(
    recipe: Recipe,
    collection: Collection,
    run_log: RunLog,
    rows: Sequence[dict[str, Any]],
    seconds: Mapping[str, float],
    memory_bytes: Mapping[str, int],
    exported: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of `measures.json`.

    rows: BM25, the untrained encoder, external initial weights, each stage's result, and the hybrid of BM25
    and the last, with measures and seconds. seconds: of each phase of the run. memory_bytes: the highest peak
    of a process, by kind. exported: the model's Pyserini class, the search command, and with BM25 the fusion
    command.
    """
    warnings = [
        *data_warnings(recipe, collection),
        *unimproved_stages(recipe, run_log),
        *low_results(recipe.final_evaluation, rows),
    ]
    return {
        "recipe": recipe.name,
        "config_hash": config_hash(recipe),
        "measures": measure_columns(recipe.final_evaluation),
        "judged": judged_queries(recipe.final_evaluation, collection),
        "rows": rows,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "export": exported,
        **({"warnings": warnings} if warnings else {}),
    }


def judged_queries(test: FinalEvaluation, collection: Collection) -> list[str]:
    """A line for each test split that has judged queries without a relevant document."""
    lines = []
    for split in map(collection.split, test.split):
        total, relevant = len(split.queries), len(split.qrels.positives.anchors)
        if split.is_judged and relevant < total:
            lines.append(
                f"{split.name}: {total:,} judged queries, {total - relevant:,} of them without a relevant "
                "document (they count as 0)"
            )
    return lines


def measure_columns(test: FinalEvaluation) -> list[str]:
    return [test.column(split, measure) for split in test.split for measure in test.measures_of(split)]


def low_results(test: FinalEvaluation, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning if the result is below the untrained encoder, and one if BM25 is above all."""
    if not (columns := measure_columns(test)):
        return []
    measure, final, warnings = columns[0], tables.last_stage(rows), []
    by_name = {row["row"]: row[measure] for row in rows}
    if by_name.get(tables.UNTRAINED, 0) > final[measure]:
        warnings.append(
            f"{final['row']} is below the untrained encoder: {measure} {final[measure]:.4f} instead of "
            f"{by_name[tables.UNTRAINED]:.4f}. See docs/guides/choosing-a-method.md, It got worse"
        )
    others = {row["row"]: row[measure] for row in rows if row["row"] == tables.HYBRID or row is final}
    if by_name.get(tables.BM25, 0) > max(others.values()):
        beaten = ", ".join(f"{name} {value:.4f}" for name, value in others.items())
        warnings.append(
            f"{tables.BM25} alone is above the result: {measure} {by_name[tables.BM25]:.4f}, {beaten}"
        )
    return warnings


def unimproved_stages(recipe: Recipe, run_log: RunLog) -> list[str]:
    """A warning for each stage whose result is its start."""
    ends = [ended for ended in run_log.decisions("stage_end") if step_of(ended["result"]) == 0]
    return [
        f"stage {ended['stage']} never improved on its start ({recipe.stages[ended['stage']].init_from}), "
        "which is its result"
        for ended in ends
    ]


def heading(text: str, command: str) -> str:
    """The line above a command to paste, which says if no library can open its folder."""
    return f"{text}:" if is_utf8(command) else f"{text}, once the folder is renamed (its name is not UTF-8):"


class Run:
    """A run directory: the results, the model and the log of one experiment.

    model: the folder of the trained encoder, a Hugging Face folder. index: the Faiss folder of the documents,
    for Pyserini. Raises FileNotFoundError if `directory` is not a run directory.
    """

    def __init__(self, directory: str | Path):
        self._files = RunDir.find(Path(directory))
        self._files.check()
        self.directory = self._files.folder
        self.model = self._files.model
        self.index = self._files.index

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    def __reduce__(self) -> tuple[type["Run"], tuple[Path]]:
        """For `pickle`: a run is its directory."""
        return type(self), (self.directory.absolute(),)

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run was started with."""
        return self._files.read_recipe()

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows of the results table, with measures and seconds: BM25, the untrained encoder, each stage,
        and BM25's hybrid with the last.
        """
        return list(self._finished().read_measures()["rows"])

    def as_text(self) -> str:
        """The results table, the expected figures if the recipe has any, and the search command.

        Without expected figures, but with the reason, if the recipe names classes that are not here.
        """
        run = self._finished()
        values = run.read_measures()
        rows, exported = values["rows"], values["export"]
        test = run.read_final_evaluation()
        documents = measure_columns(test)
        # Only some rows have measures of reranked documents and of query retrieval.
        reranked = [column for column in test.columns.values() if column not in documents]
        of_queries = [(split, m) for split in test.split for m in test.query_measures_of(split)]
        columns = [*documents, *reranked, *(test.column(split, f"{QUERIES}{m}") for split, m in of_queries)]
        columns += [name for name in tables.COSTS if any(row.get(name) is not None for row in rows)]
        try:
            figures = tables.expected_rows(run.read_recipe(), tables.last_stage(rows))
            expected = tables.table(figures, list(figures[0])) if figures else ""
        except ValueError as error:
            expected = f"without the figures that the recipe expects: {error}"
        paragraphs = [
            tables.table_with_legend(rows, ["row", *columns], *values.get("judged", ())),
            "\n".join(f"WARNING: {warning}" for warning in values.get("warnings", ())),
            expected,
        ]
        timings = ", ".join(f"{phase} {seconds}" for phase, seconds in values["seconds"].items())
        lines = [f"seconds: {timings}", *exported["notes"]]
        lines += [heading("search with it", exported["command"]), indent(exported["command"], "  ")]
        if fusion := exported.get("hybrid"):
            lines += ["fuse it with BM25, as in row hybrid:", indent(fusion, "  ")]
        return "\n\n".join([*filter(None, paragraphs), "\n".join(lines)])

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`, in order; with `event`, those of one kind.

        Kinds: `step`, `refresh` (the time before a step), `generation` (adopted negatives), `dev`,
        `documents` (frozen ones, encoded once), `training_queries` (their ranks after a stage),
        `teacher`, `targets` (the encoders whose vectors are learnt). Raises ValueError for another.
        """
        if event is not None and event not in METRICS:
            raise ValueError(
                f"event {event!r} is no kind of record{did_you_mean(str(event), METRICS)}; kinds: "
                f"{', '.join(METRICS)}"
            )
        records = read_json_lines(self._files.metrics)
        return [record for record in records if event is None or record["event"] == event]

    def _finished(self) -> RunDir:
        """The run's files. Raises FileNotFoundError before its end, RuntimeError for another version's."""
        self._files.trainer.read()
        if not self._files.measures.is_file():
            raise FileNotFoundError(
                f"{self.directory} has no results table yet: it holds {self._files.describe()}. "
                f"Continue it with resume({str(self.directory)!r})."
            )
        return self._files
