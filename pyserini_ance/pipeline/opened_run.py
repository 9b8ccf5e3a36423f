"""A run directory in Python: its results, model and log."""

from pathlib import Path
from typing import Any

from pyserini_ance.pipeline.model_export import text_of_run
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs import rundir
from pyserini_ance.runs.run_log import METRICS
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
        """The results table, the expected figures if the recipe has any, and the search command."""
        return text_of_run(self._finished())

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

    def _finished(self) -> rundir.RunDir:
        """The run's files. Raises FileNotFoundError before its end, RuntimeError for another version's."""
        self._files.trainer.read()
        if not self._files.measures.is_file():
            raise FileNotFoundError(
                f"{self.directory} has no results table yet: it holds {self._files.describe()}. "
                f"Continue it with resume({str(self.directory)!r})."
            )
        return self._files
