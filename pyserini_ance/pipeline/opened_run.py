"""A run directory in Python: its results, model and log."""

from pathlib import Path
from typing import Any

from pyserini_ance.pipeline.model_export import Results
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs import rundir
from pyserini_ance.storage.files import read_json, read_json_lines


class Run:
    """A run directory: the results, the model and the log of one experiment.

    Raises FileNotFoundError if `directory` is not a run directory.
    """

    def __init__(self, directory: str | Path):
        self._files = rundir.RunDir(Path(directory))
        if not self._files.recipe.is_file():
            raise FileNotFoundError(
                f"{directory} is not a run directory ({self._files.recipe.name} is missing). "
                "Pass a directory written by `train`."
            )

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

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
        return self._results().rows

    def as_text(self) -> str:
        """The results table, the expected figures if the recipe has any, and the search command."""
        return self._results().as_text()

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`, in order; with `event`, those of one kind: `step`, `refresh`."""
        records = read_json_lines(self._files.metrics)
        return [record for record in records if event is None or record["event"] == event]

    def _results(self) -> Results:
        if not self._files.measures.is_file():
            raise FileNotFoundError(
                f"{self.directory} has no results table yet: it holds {self._files.describe()}. "
                f"Continue it with resume({str(self.directory)!r})."
            )
        values = read_json(self._files.measures)
        return Results(self.recipe, values["rows"], values["seconds"], values["export"])
