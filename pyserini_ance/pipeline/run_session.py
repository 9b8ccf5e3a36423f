"""The main process's hold on a run directory, from opening it to recording how the run ended."""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.refresher_subprocess import refresher_subprocess
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.retention import clean_up_finished
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.role_lock import Status
from pyserini_ance.trainer.resume import read_replay

log = logging.getLogger(__name__)


class RunSession:
    """One attempt at a run. The other processes do not open the directory.

    previous_refresher: the record of an earlier attempt's refresher.
    subprocess_failure: returns why this attempt's refresher subprocess ended, None while it works.
    """

    def __init__(self, recipe: Recipe, run_dir: RunDir, world: World):
        self.recipe, self.run_dir, self.world = recipe, run_dir, world
        self.previous_refresher: dict[str, Any] | None = None
        self.subprocess_failure: Callable[[], str | None] = lambda: None

    @contextmanager
    def opened(
        self, provenance: dict[str, Any], overwrite: bool, resume: bool, replay: Path | None
    ) -> Iterator[None]:
        """Lock the run directory; start a refresher subprocess if the recipe needs one."""
        if resume:
            self.run_dir.reopen()
            self.previous_refresher = self.run_dir.refresher.read()
        else:
            decisions = read_replay(replay, self.recipe) if replay else None
            self.run_dir.create(dump(absolute(self.recipe)), overwrite)
            write_json(self.run_dir.environment, provenance)
            if decisions is not None:
                write_whole(self.run_dir.replay, decisions)
        with ExitStack() as stack:
            stack.enter_context(self._cleaning_up())
            self.subprocess_failure = stack.enter_context(refresher_subprocess(self.recipe, self.run_dir))
            stack.enter_context(self.run_dir.held())
            stack.enter_context(self.recording_the_end())
            if resume:
                RunLog(self.run_dir).decide("resume", environment=provenance)
            yield

    @contextmanager
    def _cleaning_up(self) -> Iterator[None]:
        """Clean up again once the refresher subprocess has ended, which may have worked beyond the end of the
        run."""
        yield
        clean_up_finished(self.run_dir, self.recipe)

    @contextmanager
    def recording_the_end(self) -> Iterator[None]:
        """Record how and where the run ended.

        On a full disk the reason may be lost, but not the last step.
        """
        try:
            with self.world.reraise_peer_error():
                yield
        except BaseException as error:
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
