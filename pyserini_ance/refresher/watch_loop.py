"""The loop of a refresher process: it serves the refresh requests that training writes into the run
directory."""

import logging
import time
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import RefresherProcess
from pyserini_ance.refresher.refresher import CheckpointRemoved, Refresher
from pyserini_ance.runs.requests import RefreshRequest, next_requests, read_requests
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.liveness import HeartbeatMonitor

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2


class RefresherLoop:
    """Serves requests until training has ended or has given no sign of life for `trainer_timeout_seconds`.

    The main process polls and tells the other processes of the world.
    """

    def __init__(self, run: RunDir, refresher: Refresher, settings: RefresherProcess, world: World):
        self.run, self.refresher, self.settings, self.world = run, refresher, settings, world
        self.trainer = HeartbeatMonitor(run.trainer)

    def work(self) -> str:
        """Serve requests; return the reason for ending."""
        while True:
            answer = self.world.on_main(self._poll)
            if "end" in answer:
                return answer["end"]
            for request in (RefreshRequest(**fields) for fields in answer["requests"]):
                self._serve(request)

    def _serve(self, request: RefreshRequest) -> None:
        start = time.perf_counter()
        try:
            self.refresher.make(request)
        except CheckpointRemoved:
            # Training may have removed the checkpoint because it cancelled the request; otherwise this is an
            # error.
            if self.world.on_main(lambda: request in read_requests(self.run)):
                raise
            log.info("%s: no longer needed", request.describe())
            return
        log.info("%s: made in %.1f s", request.describe(), time.perf_counter() - start)

    def _poll(self) -> dict[str, Any]:
        """Wait for requests, or for a reason to end."""
        self.refresher.report("waiting for requests")
        last_alive = time.monotonic()
        timeout = self.settings.trainer_timeout_seconds
        while True:
            if requests := next_requests(read_requests(self.run), self.run):
                return {"requests": [vars(request) for request in requests]}
            record = self.run.trainer.read() or {}
            if record.get("status") == "finished":
                return {"end": "the run has finished"}
            if self.trainer.alive():
                last_alive = time.monotonic()
            elif time.monotonic() - last_alive > timeout:
                silence = f"training has given no sign of life for {timeout} seconds"
                return {"end": f"{silence} ({self.trainer.describe()})"}
            self.world.check()
            time.sleep(POLL_SECONDS)
