"""Refresh executors: products of checkpoints are made by the training processes (sync) or by a refresher
(async)."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.runs.generation import RefreshRequest, write_requests
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
FIRST_REPORT_SECONDS, REPORT_SECONDS = 10, 60
LATE_SECONDS = 120
# By `refresher`: training waits so long for a missing refresher, and a refresher for training. On a cluster
# the job of the other may be in the queue.
TIMEOUT_SECONDS = {"subprocess": 600, "external": 86_400}


class SyncExecutor:
    """Makes each product in the training processes when it is submitted.

    `make` is `Refresher.make`; trainer and refresher do not import each other. Every process makes the
    same calls of an executor, of either class, in the same order.
    """

    def __init__(self, make: Callable[[RefreshRequest], None]):
        self.make = make

    def submit(self, request: RefreshRequest) -> None:
        self.make(request)

    def cancel(self, requests: Collection[RefreshRequest]) -> None:
        """Withdraw requests whose products are no longer needed, done or not."""

    def done(self, request: RefreshRequest) -> bool:
        """Whether the product is published; the same answer on every process."""
        return True

    def wait(self, requests: Sequence[RefreshRequest]) -> RefreshRequest:
        """Wait until one of `requests` is done; return the last of those. Every process can then open it."""
        return requests[-1]


class AsyncExecutor:
    """Writes requests into the run directory and waits for what a refresher publishes there.

    The main process polls.

    `command` starts a refresher; messages quote it. `previous_refresher` is the last record of a refresher
    that worked for an earlier training process; its failure is not reported again. `subprocess_failure`
    returns how the refresher that this run has started ended, if no other can take over.
    """

    def __init__(
        self,
        run: RunDir,
        timeout_seconds: float,
        command: str,
        world: World,
        previous_refresher: dict[str, Any] | None = None,
        subprocess_failure: Callable[[], str | None] = lambda: None,
    ):
        self.run, self.timeout_seconds, self.command, self.world = run, timeout_seconds, command, world
        self.previous_refresher, self.subprocess_failure = previous_refresher, subprocess_failure
        self.pending: list[RefreshRequest] = []

    def submit(self, request: RefreshRequest) -> None:
        self._write([*self.pending, request])

    def cancel(self, requests: Collection[RefreshRequest]) -> None:
        self._write([request for request in self.pending if request not in requests])

    def done(self, request: RefreshRequest) -> bool:
        # Called before every step: a collective is quicker than polling.
        return self.world.all_agree(request.is_done(self.run))

    def wait(self, requests: Sequence[RefreshRequest]) -> RefreshRequest:
        """Raises RuntimeError if there is no refresher for `timeout_seconds`, or if it has failed;
        SettingError if it has failed because of a setting."""
        request = requests[self.world.on_main(lambda: self._wait(requests))]
        end = time.monotonic() + LATE_SECONDS
        while not request.is_done(self.run) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)  # on another host: its file client shows new names late
        self.world.barrier()
        return request

    def reset(self) -> None:
        """Discard the requests of an earlier stage, or of a training process that died."""
        self._write([])

    def _write(self, requests: list[RefreshRequest]) -> None:
        self.pending = sorted(requests, key=lambda request: request.step)
        if self.world.is_main:
            write_requests(self.run, self.pending)

    def _wait(self, requests: Sequence[RefreshRequest]) -> int:
        """Return the position in `requests` of the last that is done."""
        refresher, last_alive = self.run.refresher, time.monotonic()
        next_report = last_alive + FIRST_REPORT_SECONDS
        needed = " or ".join(request.describe() for request in requests)
        while not (done := [i for i, request in enumerate(requests) if request.is_done(self.run)]):
            now = time.monotonic()
            if refresher.is_held:
                last_alive = now
            else:
                self._check_not_failed(needed)
            if now - last_alive > (limit := self.timeout_seconds):
                raise RuntimeError(
                    f"training needs the {needed}, but no refresher has been at work for {limit} seconds "
                    f"({refresher.describe()}). Start one with: {self.command}\nand continue with --resume"
                )
            if now > next_report:
                next_report = now + REPORT_SECONDS
                start = "" if now == last_alive else f"; start a refresher with: {self.command}"
                log.info("waiting for the %s: %s%s", needed, refresher.describe(), start)
            time.sleep(POLL_SECONDS)
        return done[-1]

    def _check_not_failed(self, needed: str) -> None:
        record = self.run.refresher.read()
        if record and record["status"] == "failed" and record != self.previous_refresher:
            failed = f"training needs the {needed}, but the refresher has failed: {record.get('reason')}"
            if record.get("needs_new_recipe"):
                raise SettingError(failed)
            raise RuntimeError(f"{failed}\nStart it again with: {self.command}\nand continue with --resume")
        if failure := self.subprocess_failure():
            raise RuntimeError(
                f"training needs the {needed}, but the refresher that it started has ended with {failure}\n"
                "Remove the cause and continue with --resume, which starts another"
            )


RefreshExecutor = SyncExecutor | AsyncExecutor
