"""The main process's hold on a run directory, from opening it to recording how the run ended."""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.distributed.failures import begin_shutdown
from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.refresher_process import refresher_subprocess
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.retention import clean_up_finished
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.locks import check_file_system
from pyserini_ance.storage.role import Status
from pyserini_ance.trainer.resume import read_replay

log = logging.getLogger(__name__)
_one_training = threading.Lock()
_trained: Path | None = None  # the run that this process trains


@contextmanager
def only_training(folder: Path) -> Iterator[None]:
    """Train the run in `folder`, and what it requires, inside the block.

    Raises RuntimeError if this process trains already, in another thread or around a callback: two trainings
    would share torch's random generators and number of threads, and accelerate's state.
    """
    global _trained
    if not _one_training.acquire(blocking=False):
        raise RuntimeError(
            f"{folder} is not trained: this process trains {_trained} already, and two trainings in one "
            "process would change each other's weights. Wait until it ends, start another process, or train "
            "several runs with `pyserini-ance train --grid ... --jobs N`"
        )
    try:
        _trained = folder
        yield
    finally:
        _one_training.release()


class RunSession:
    """One attempt at a run. The other processes do not open the directory.

    previous_refresher: the record of an earlier attempt's refresher.
    subprocess_failure: returns why this attempt's refresher subprocess ended, None while it works.
    """

    def __init__(self, recipe: Recipe, run_dir: RunDir, world: World):
        self.recipe, self.run_dir, self.world = recipe, run_dir, world
        self.previous_refresher: dict[str, Any] | None = None
        self.subprocess_failure: Callable[[], str | None] = lambda: None

    def check(self, resume: bool) -> None:
        """Raise OSError where locks do not work, LockHeld if another process trains the run to `resume`."""
        for folder in (self.run_dir.folder, self.recipe.cache):
            check_file_system(folder)
        if resume:
            self.run_dir.trainer.check_free()

    @contextmanager
    def opened(
        self, provenance: dict[str, Any], overwrite: bool, resume: bool, replay: Path | None
    ) -> Iterator[None]:
        """Hold the run directory; start a refresher subprocess if the recipe needs one."""
        run = self.run_dir
        decisions = read_replay(replay, self.recipe) if replay else None
        if resume:
            run.check_resumable()
        else:
            run.check_creatable(overwrite)
            run.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(run.held())
            if resume:
                run.reopen()
                self.previous_refresher = run.refresher.read()
            else:
                run.create(dump(absolute(self.recipe)), overwrite)
                write_json(run.environment, provenance)
                if decisions is not None:
                    write_whole(run.replay, decisions)
            # The refresher subprocess may work beyond the end of the run.
            stack.callback(clean_up_finished, run, self.recipe)
            self.subprocess_failure = stack.enter_context(refresher_subprocess(self.recipe, run))
            stack.enter_context(self.recording_the_end())
            if resume:
                RunLog(run).decide("resume", environment=provenance)
            yield

    @contextmanager
    def recording_the_end(self) -> Iterator[None]:
        """Record how and where the run ended.

        On a full disk the reason may be lost, but not the last step.
        """
        try:
            yield
        except BaseException as error:
            begin_shutdown()
            where = self.run_dir.trainer.where
            status: Status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            try:
                self.run_dir.mark(status, where, reason=text_of(error))
                self.run_dir.error.write_text(traceback.format_exc(), encoding="utf-8")
            except (OSError, RuntimeError) as second:
                log.error("cannot record the end of the run in %s: %s", self.run_dir.state, second)
            cure = f"continue with: {self.run_dir.resume_command(self.world.size)}"
            if getattr(error, "needs_new_recipe", False):
                cure = f"change the recipe and start again with: --output {self.run_dir.folder} --overwrite"
            log.error("%s at %s; %s", status, where, cure)
            raise
        self.run_dir.mark("finished", "the end")
