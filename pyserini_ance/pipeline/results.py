"""The results of an experiment: its results table, and the command that searches with its model."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.evaluation.run_report import expected_columns
from pyserini_ance.evaluation.run_results import last_stage
from pyserini_ance.evaluation.tables import table
from pyserini_ance.pipeline.final_evaluator import extra_columns, measure_columns
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.provenance import config_hash
from pyserini_ance.storage.files import write_whole


@dataclass(frozen=True)
class Results:
    """The results table of one run.

    `rows`: BM25, the untrained encoder, external initial weights and each stage's result, with measures and
    seconds. `seconds`: of each phase of the run. `exported`: the model's Pyserini class and the search
    command.
    """

    recipe: Recipe
    rows: list[dict[str, Any]]
    seconds: dict[str, float]
    exported: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The content of `measures.json`."""
        return {
            "recipe": self.recipe.name,
            "config_hash": config_hash(self.recipe),
            "measures": measure_columns(self.recipe.final_evaluation),
            "rows": self.rows,
            "seconds": self.seconds,
            "export": self.exported,
        }

    def as_text(self) -> str:
        """The results table, the last stage next to the expected figures, and the search command."""
        measures = [
            *measure_columns(self.recipe.final_evaluation),
            *extra_columns(self.recipe.final_evaluation),
        ]
        columns = ["row", *measures, "train seconds", "refresh seconds", "test seconds"]
        timings = ", ".join(f"{phase} {seconds}" for phase, seconds in self.seconds.items())
        expected = expected_columns(self.recipe, last_stage(self.rows))
        lines = [
            table(self.rows, columns),
            *(["", expected] if expected else []),
            "",
            f"seconds: {timings}",
            *self.exported["notes"],
        ]
        return "\n".join([*lines, "search with it:", indent(self.exported["command"], "  ")])


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
