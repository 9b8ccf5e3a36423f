"""What an experiment comes to: the rows of its table, and the command that searches with its model."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from pyserini_ance.data.collection import Collection
from pyserini_ance.experiment.closing import beside_columns, measure_columns
from pyserini_ance.measures.compare import last_stage
from pyserini_ance.measures.expected import beside_expected
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.variant import variant
from pyserini_ance.storage.files import write_whole


@dataclass(frozen=True)
class Results:
    """`rows`: BM25, the untrained encoder, what else stages start from, and each stage's result, with measures and seconds."""

    recipe: Recipe
    rows: list[dict]
    seconds: dict[str, float]
    exported: dict

    def as_json(self) -> dict:
        about = {"recipe": self.recipe.name, "variant": variant(self.recipe), "measures": measure_columns(self.recipe.test)}
        return {**about, "rows": self.rows, "seconds": self.seconds, "export": self.exported}

    def as_text(self) -> str:
        """The closing table, what was expected of the last stage, and what to type next."""
        measured = [*measure_columns(self.recipe.test), *beside_columns(self.recipe.test)]
        columns = ["row", *measured, "train seconds", "refresh seconds", "test seconds"]
        parts = ", ".join(f"{part} {seconds}" for part, seconds in self.seconds.items())
        expected = beside_expected(self.recipe, last_stage(self.rows))
        lines = [table(self.rows, columns), *(["", expected] if expected else []), "", f"seconds: {parts}", *self.exported["notes"]]
        return "\n".join([*lines, "search with it:", indent(self.exported["command"], "  ")])


def write_qrels(collection: Collection, split: str, path: Path) -> None:
    """The split's judgments as TREC qrels."""
    part, ids = collection.split(split), collection.documents.ids
    judged = ((query, *part.qrels.judged(row)) for row, query in enumerate(part.queries.ids))
    lines = (f"{q} 0 {ids[d]} {grade}\n" for q, rows, grades in judged for d, grade in zip(rows, grades, strict=True))
    write_whole(path, "".join(lines))
