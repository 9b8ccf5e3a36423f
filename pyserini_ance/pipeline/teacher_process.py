"""The process that trains a cross-encoder for a run: `python -m pyserini_ance.pipeline.teacher_process`.

It reads one line of JSON from stdin, and ends when stdin does. Why it failed is its output.
"""

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection_cache import open_collection
from pyserini_ance.distributed.failures import FAILED
from pyserini_ance.pipeline.mined_lists import MinedLists
from pyserini_ance.pipeline.teacher_training import (
    TeacherSettings,
    default_length,
    start_weights,
    train_teacher,
)
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.teacher_training import TeacherStart, TeacherTraining, TrainedTeacher
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.error_text import text_of


def main() -> int:
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        _train(request)
    except (ValueError, OSError, RuntimeError) as error:
        print(text_of(error))
        return FAILED
    return 0


def _end_with_stdin() -> None:
    # Not by sys.stdin, whose lock Python takes when it exits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _train(request: dict[str, Any]) -> None:
    recipe, run, name = (
        Recipe.model_validate(request["recipe"]),
        RunDir(Path(request["run"])),
        request["teacher"],
    )
    collection = open_collection(recipe.cache, request["collection"])
    if collection is None:
        raise FileNotFoundError(f"{recipe.cache} does not hold the run's data any more; train with --resume")
    teacher = recipe.teachers[name]
    generation = open_generation(run.generation(name, 0), {})
    split = collection.split(recipe.train_split.name)
    tables = [generation.tables[key] for key in sorted(generation.tables)]
    lists = MinedLists.of_tables(collection, split, tables, {generation.folder.name: generation.weights})
    about = {"retriever": recipe.name, "start": str(teacher.init_from)}
    train_teacher(
        lists, _start(teacher, run), _settings(teacher, recipe), request["device"], run.teacher(name), about
    )


def _start(teacher: TrainedTeacher, run: RunDir) -> str:
    """The folder or hub name of the weights that a teacher starts from."""
    start = teacher.init_from
    if not isinstance(start, TeacherStart):
        return start_weights(run)
    return start.model or str(run.teacher(start.teacher or ""))


def _settings(teacher: TrainedTeacher, recipe: Recipe) -> TeacherSettings:
    given = teacher.model_dump(include=set(TeacherTraining.model_fields) - {"length_tokens"})
    length_tokens = teacher.length_tokens or default_length(recipe)
    return TeacherSettings(**given, length_tokens=length_tokens, seed=recipe.seed, precision=recipe.precision)


if __name__ == "__main__":
    sys.exit(main())
