"""The results of a run: the table with its warnings, as text, as `measures.json`, and read in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import BM25, HYBRID, SECONDS, UNTRAINED, expected_rows, last_stage, table
from pyserini_ance.pipeline.final_evaluator import extra_columns, measure_columns
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.runs.run_log import METRICS, RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json, read_json_lines


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
        measure, final = measure_columns(self.recipe.final_evaluation)[0], last_stage(self.rows)
        rows, warnings = {row["row"]: row for row in self.rows}, list(self.warnings)
        if UNTRAINED in rows and final[measure] < rows[UNTRAINED][measure]:
            warnings.append(
                f"{final['row']} is below the untrained encoder: {measure} {final[measure]:.4f} instead of "
                f"{rows[UNTRAINED][measure]:.4f}. See docs/guides/choosing-a-method.md, It got worse"
            )
        others = [row for row in self.rows if row["row"] == HYBRID or row is final]
        if BM25 in rows and rows[BM25][measure] > max(row[measure] for row in others):
            beaten = ", ".join(f"{row['row']} {row[measure]:.4f}" for row in others)
            warnings.append(f"{BM25} alone is the best row: {measure} {rows[BM25][measure]:.4f}, {beaten}")
        return warnings

    def as_text(self) -> str:
        """The results table, the last stage next to the expected figures, and the search command."""
        expected = _expectation(self.recipe, self.rows)
        return results_text(self.as_json(), self.recipe.final_evaluation, expected)


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


def _expectation(recipe: Recipe, rows: Sequence[dict[str, Any]]) -> str:
    """A table of the expected figures beside those of the last stage; "" if nothing is expected."""
    expected = expected_rows(recipe, last_stage(rows))
    return table(expected, list(expected[0])) if expected else ""


def unimproved_stages(recipe: Recipe, run_log: RunLog) -> list[str]:
    """A warning for each stage whose result is its start."""
    warnings = []
    for ended in run_log.decisions("stage_end"):
        if step_of(ended["result"]) != 0:
            continue
        name = ended["stage"]
        init_from, previous = recipe.stages[name].init_from, recipe.stage_before(name)
        if init_from == "initial" or (init_from == "previous" and previous is None):
            start = "the untrained encoder"
        elif isinstance(init_from, str):
            start = f"that of stage {previous}"
        elif init_from.is_external:
            start = f"its initial weights, {init_from}"
        else:
            start = f"that of stage {init_from.stage}"
        warnings.append(f"stage {name} never improved on its start: the result is {start}")
    return warnings


class Run:
    """A run directory: the results, the model and the log of one experiment.

    Raises FileNotFoundError if `directory` is not a run directory.
    """

    def __init__(self, directory: str | Path):
        self._files = RunDir(Path(directory))
        if not self._files.recipe.is_file():
            raise FileNotFoundError(
                f"{directory} is not a run directory ({self._files.recipe.name} is missing). "
                "Pass a directory written by `train`."
            )

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    def __reduce__(self) -> tuple[type["Run"], tuple[Path]]:
        """For `pickle`: a run is its directory."""
        return type(self), (self.directory.absolute(),)

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self._files.folder

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run was started with."""
        return self._files.read_recipe()

    @property
    def model(self) -> Path:
        """The folder of the trained encoder, a Hugging Face folder."""
        return self._files.model

    @property
    def index(self) -> Path:
        """The Faiss folder of the documents, for Pyserini."""
        return self._files.index

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows of the results table, with measures and seconds: BM25, the untrained encoder, each stage,
        and BM25's hybrid with the last.
        """
        rows: list[dict[str, Any]] = read_json(self._finished().measures)["rows"]
        return rows

    def as_text(self) -> str:
        """The results table, the expected figures if the recipe has any, and the search command.

        Without expected figures, but with the reason, if the recipe names classes that are not here.
        """
        run = self._finished()
        values = read_json(run.measures)
        try:
            expected = _expectation(run.read_recipe(), values["rows"])
        except ValueError as error:
            expected = f"without the figures that the recipe expects: {error}"
        return results_text(values, run.read_final_evaluation(), expected)

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`, in order; with `event`, those of one kind.

        Kinds: `step`, `refresh` (the time before a step), `generation` (adopted negatives), `dev`,
        `documents` (frozen ones, encoded once), `average`, `training_queries` (their ranks after a stage),
        `teacher`. Raises ValueError for another.
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
