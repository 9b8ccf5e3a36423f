"""Refresh requests: the products that training needs of checkpoints, in a file that a refresher polls."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_json
from pyserini_ance.storage.publish import is_complete

ProductKind = Literal["tables", "dev"]
# The kinds, with the names that messages use. Tables are made first: training draws from them.
PRODUCT_NAMES: dict[ProductKind, str] = {"tables": "generation of negatives", "dev": "dev score"}
_IS_DONE: dict[ProductKind, Callable[[RunDir, str, int], bool]] = {
    "tables": lambda run, stage, step: is_complete(run.generation(stage, step)),
    "dev": lambda run, stage, step: run.evaluation(stage, step).exists(),
}


@dataclass(frozen=True)
class RefreshRequest:
    """A product to make of the checkpoint before `step` of `stage`, whose weights have the hash `weights`.

    is_awaited: training waits for this very product; otherwise a newer one is as good.
    checkpoint: the name of another checkpoint to make the product of, from the previous stage.
    """

    kind: ProductKind
    stage: str
    step: int
    weights: str
    is_awaited: bool = True
    checkpoint: str = ""

    def folder(self, run: RunDir) -> Path:
        """The folder of the checkpoint that the product is made of."""
        return run.checkpoints / self.checkpoint if self.checkpoint else run.checkpoint(self.stage, self.step)

    def is_done(self, run: RunDir) -> bool:
        """Whether the product is in the run directory."""
        return _IS_DONE[self.kind](run, self.stage, self.step)

    def describe(self) -> str:
        """The product, its stage and its step, for messages."""
        return f"{PRODUCT_NAMES[self.kind]} of stage {self.stage}, step {self.step}"


def write_requests(run: RunDir, requests: Iterable[RefreshRequest]) -> None:
    """Replace the open requests of the run."""
    write_json(run.requests, {"requests": [asdict(request) for request in requests]})


def read_requests(run: RunDir) -> list[RefreshRequest]:
    """Read the open requests of the run; none when the file is missing."""
    content = read_json_object(run.requests)
    return [RefreshRequest(**request) for request in content["requests"]] if content else []


def next_requests(requests: Collection[RefreshRequest], run: RunDir) -> list[RefreshRequest]:
    """Return the requests that a refresher serves next, all of one checkpoint; none when all are done.

    Tables come before dev evaluations, because training draws from them. Among awaited tables the oldest come
    first, among other tables the newest. Dev evaluations are made from the oldest on, because each is needed.
    """
    waiting = [request for request in requests if not request.is_done(run)]
    tables = [request for request in waiting if request.kind == "tables"]
    awaited = [request for request in tables if request.is_awaited]
    first = next(iter(awaited or tables[::-1] or waiting), None)
    if first is None:
        return []
    return sorted(
        (request for request in waiting if (request.stage, request.step) == (first.stage, first.step)),
        key=lambda request: list(PRODUCT_NAMES).index(request.kind),
    )
