"""Train runs, and write the model card and the report of each once the pipeline has finished it."""

import logging
import shlex
from pathlib import Path
from typing import Any

from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.results import Run
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.model_card import CARD, write_model_card
from pyserini_ance.reports.report import REPORT, write_report
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)


def train(recipe: Recipe, folder: Path, **how: Any) -> Run | None:
    """`experiment.train` with its parameters `how`, then the card and the report."""
    run = experiment.train(recipe, folder, **how)
    if run:
        write_card_and_report(folder)
    return run


def write_card_and_report(folder: Path, only_missing: bool = False) -> None:
    """Write the model card and `report.html` of a finished run.

    Without one of them the run is finished all the same, and the log says why.
    """
    run = RunDir(folder)
    for file, write in ((run.model / CARD, write_model_card), (run.folder / REPORT, write_report)):
        try:
            if not (only_missing and file.exists()):
                log.info("written: %s", write(run))
        except Exception as error:  # whatever it is, the results of hours of training are there
            again = "publish" if file.name == CARD else "report"
            command = shlex.join(["pyserini-ance", again, str(folder), *["NAME"] * (again == "publish")])
            log.warning("no %s: %s; for one, remove the cause and call: %s", file.name, error, command)
