"""Train the cross-encoders of a recipe between its stages: mine with the result of a stage, then train on
lists of positives and mined negatives.

All processes mine; sentence-transformers' CrossEncoderTrainer trains, in one subprocess, since it would
otherwise join torchrun's processes. The retriever can then be trained again with the cross-encoder as
teacher: the alternation of AR2 (Zhang et al. 2021, arXiv:2110.03611), whose ranker learns from what the
retriever finds; RocketQA v2 (Ren et al. 2021, arXiv:2110.07367) trains both at once.
"""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from pyserini_ance.data.collection_cache import open_collection
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.failures import FAILED
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import tower_folder
from pyserini_ance.negatives.positives import find_positives
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.negatives.teachers.cross_encoder import forget_model
from pyserini_ance.pipeline.cross_encoder_training import MinedLists, train_teacher
from pyserini_ance.pipeline.refresher_process import MOST_LAST_WORDS, subprocess_environment
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.trained_teacher import TRAINED
from pyserini_ance.refresher.mined_tables import mine_table
from pyserini_ance.runs.checkpoint import ENCODER, Checkpoint
from pyserini_ance.runs.generation import TableKey, open_generation, publish_generation, table_name
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.publish import is_complete

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)
MODULE = "pyserini_ance.pipeline.teacher_training"


def train_teacher_of_run(
    recipe: Recipe, name: str, data: PreparedData, run: RunDir, result: Checkpoint, world: World
) -> None:
    """Train `teachers.NAME` on what `result` finds, the checkpoint that its stage has ended with.

    What a killed run has mined, or trained to the end, is used again. Called by all processes. Raises
    RuntimeError with the subprocess's message if training fails.
    """
    if world.on_main(lambda: run.teacher(name).exists()):
        return
    start = time.perf_counter()
    if not world.on_main(lambda: is_complete(run.generation(name, 0))):
        _mine(recipe, name, data, run, result, world)
    mined = time.perf_counter()
    world.on_main(lambda: _train_in_subprocess(recipe, name, run, data, world))
    seconds = {"mine": round(mined - start, 3), "train": round(time.perf_counter() - mined, 3)}
    RunLog(run, world.is_main).metric("teacher", teacher=name, seconds=seconds)


def _mine(
    recipe: Recipe, name: str, data: PreparedData, run: RunDir, result: Checkpoint, world: World
) -> None:
    """Publish the tables of the teacher's sources as the generation NAME-00000000."""
    teacher, folder = recipe.teachers[name], run.generation(name, 0)
    log.info("teacher %s: mining with the result of stage %s", name, teacher.after)
    # The vectors are those that the next stage's first refresh needs, if it starts from this result.
    snapshot = Snapshot.of(result, data, recipe.encoding, run, world, recipe)
    number = len(recipe.stages) + list(recipe.teachers).index(name)  # stages have the numbers before
    positives = find_positives(snapshot, recipe.stages[teacher.after].effective_refresh.positives_top_k)
    anchor_set = snapshot.anchor_set("query").with_positives(positives)
    tables: dict[TableKey, NegativeTable] = {}
    reports = {}
    for position, source in enumerate(teacher.negatives):
        context = MiningContext(folder.name, key=(recipe.seed, number, 0, 0, position))
        key = ("query", position)
        with snapshot.timed("filter"):
            tables[key], reports[table_name(key)] = mine_table(
                cast(TableSource, source), snapshot, anchor_set, context, promoted=positives
            )
    snapshot.free_device()  # the cross-encoder needs the memory
    about = {"stage": name, "step": 0, "weights": result.weights, **data.identity}
    world.on_main(lambda: publish_generation(folder, tables, reports, snapshot.seconds, about))


def _train_in_subprocess(recipe: Recipe, name: str, run: RunDir, data: PreparedData, world: World) -> None:
    """Train in a subprocess, which ends when its stdin does: with this process, however that ends."""
    log.info("teacher %s: training from %s", name, recipe.teachers[name].init_from)
    # The subprocess can take what this process frees: the cross-encoder before, cycles with an encoder.
    forget_model()
    gc.collect()
    if world.device.startswith("cuda"):
        torch.cuda.empty_cache()
    folder, cache = str(run.folder.absolute()), str(recipe.cache.absolute())
    command = [*teacher_command(), folder, name, cache, data.collection.digest, world.device]
    # The threads of all processes of this host, which wait for the subprocess.
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    environment = subprocess_environment(recipe.threads and recipe.threads * local)
    if world.size > 1 and not recipe.threads:
        environment.pop("OMP_NUM_THREADS", None)  # torchrun sets it to 1
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches training alone, which then ends the subprocess
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            reason = process.stdout.read().strip()[-MOST_LAST_WORDS:]
            code = process.wait()
        finally:
            process.kill()  # after an error or Ctrl-C in this process; no effect on one that has ended
    if code:
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}, see its messages above"
        raise RuntimeError(f"teachers.{name} could not be trained: {reason or ended}")


def teacher_command() -> list[str]:
    return [sys.executable, "-m", MODULE]


def main() -> int:
    """The subprocess, which ends when its stdin does. Its output is why it failed.

    Its arguments are the run directory, the name of the teacher, the cache, the digest of the collection, and
    the device.
    """
    folder, name, cache, digest, device = sys.argv[1:]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        run = RunDir(Path(folder))
        collection = open_collection(Path(cache), digest)
        if collection is None:
            raise FileNotFoundError(f"{cache} does not hold the run's data any more; train with --resume")
        recipe = run.read_recipe()
        generation = open_generation(run.generation(name, 0), {})
        tables = [generation.tables[key] for key in sorted(generation.tables)]
        weights = {generation.folder.name: generation.weights}
        lists = MinedLists(collection, collection.split(recipe.train_name), tables, weights)
        teacher = recipe.teachers[name]
        source = teacher.init_from
        if source == "initial":  # the untrained encoder's query tower
            source = str(tower_folder(run.checkpoint("initial", 0) / ENCODER, "query"))
        elif source.startswith(TRAINED):
            source = str(run.teacher(source.removeprefix(TRAINED)))
        train_teacher(lists, source, teacher, recipe, device, run.teacher(name))
    except (ValueError, OSError, RuntimeError) as error:
        print(text_of(error))
        return FAILED
    return 0


def _end_with_stdin() -> None:
    # Not by sys.stdin, whose lock Python takes when it exits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
