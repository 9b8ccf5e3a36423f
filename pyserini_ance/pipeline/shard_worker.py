"""Encoding the corpus for a refresh by several processes: the refresher's part, and a worker's.

They meet in the run directory alone. `encoding.json` says which checkpoint's encoding is shared. The shards
are folders below the folder of its vectors (`ShardTasks`).
"""

import logging
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.batching import tokens_at_once
from pyserini_ance.negatives.snapshot import Snapshot, vectors_folder
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_json
from pyserini_ance.storage.lease import leased
from pyserini_ance.storage.liveness import remove
from pyserini_ance.storage.publish import is_complete
from pyserini_ance.vectors.encoding import ShardedVectors, encode_shards, has_shards
from pyserini_ance.vectors.shard_tasks import POLL_SECONDS, EncodedTexts, ShardTasks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedEncoding:
    """An encoding that workers may take part in.

    checkpoint: the name of the checkpoint's folder. weights: the hash of its document tower.
    """

    checkpoint: str
    weights: str
    precision: str
    tokens_per_batch: int
    shards: int

    @classmethod
    def of(cls, run: RunDir) -> "SharedEncoding | None":
        """The encoding that is shared now, if there is one."""
        content = read_json_object(run.shared_encoding)
        return cls(**content) if content else None


def tasks_folder(vectors: Path, shards: int, tokens_per_batch: int) -> Path:
    """The folder of the shards, in the folder of the vectors; the batch size decides where texts are cut."""
    return vectors / f"tasks-{shards}-{tokens_per_batch}"


def encode_with_workers(run: RunDir, shards: int, model: Path, *arguments: Any) -> ShardedVectors:
    """As `encode_shards(*arguments)`, together with the workers of the run; called by the refresher.

    `model` is the encoder's folder in its checkpoint. The shards are copied into one store for each process
    of the refresher, and removed.
    """
    folder, key, encoder, tokens, side, precision, tokens_per_batch, label, world = arguments
    budget = tokens_at_once(tokens_per_batch, world.device)  # a worker may have another device
    how = tokens, side, precision, budget, label, world
    tasks = ShardTasks(tasks_folder(folder, shards, budget), shards, key, encoder, *how)
    if not world.on_main(lambda: has_shards(folder, world)):
        shared = SharedEncoding(model.parent.name, key["weights"], precision, budget, shards)
        world.on_main(lambda: write_json(run.shared_encoding, asdict(shared)))
        tasks.encode_all()
        world.barrier()
        encoder = EncodedTexts(encoder, tasks.vectors())
    vectors = encode_shards(folder, key, encoder, *how)

    def end() -> None:
        run.shared_encoding.unlink(missing_ok=True)
        remove(tasks.folder)

    world.on_main(end)
    return vectors


class ShardWorker:
    """Encodes shards for the refresher of a run, which need not be there."""

    def __init__(self, run: RunDir, recipe: Recipe, data: PreparedData, world: World):
        self.run, self.recipe, self.data, self.world = run, recipe, data, world
        self._served: SharedEncoding | None = None

    def find(self) -> SharedEncoding | None:
        """The encoding that is shared, unless this worker has done all it can for it."""
        shared = SharedEncoding.of(self.run)
        if shared is None:
            self._served = None  # a later one may be equal
        return None if shared == self._served else shared

    def serve(self, shared: SharedEncoding) -> None:
        """Encode shards until all are complete, or the encoding is needed no longer."""
        self._served = shared
        try:
            with ExitStack() as leases:
                self._encode(shared, leases)
        except (OSError, RuntimeError):
            if SharedEncoding.of(self.run) == shared:
                raise
            log.info("the encoding with %s is no longer needed", shared.checkpoint)  # and may be removed

    def _encode(self, shared: SharedEncoding, leases: ExitStack) -> None:
        folder = self.run.checkpoints / shared.checkpoint
        if is_complete(folder):
            leases.enter_context(leased(folder, "read to encode shards"))
        if not is_complete(folder):  # a refresher that was killed has left its word
            log.info("%s was removed; it is no longer needed", shared.checkpoint)
            return
        checkpoint = Checkpoint.open(folder)
        if checkpoint.document_weights != shared.weights:
            raise RuntimeError(
                f"{folder} holds weights {checkpoint.document_weights[:12]}, but the encoding is with "
                f"{shared.weights[:12]}"
            )
        vectors = vectors_folder(self.run.scratch, shared.weights, shared.precision)
        vectors.parent.mkdir(exist_ok=True)
        leases.enter_context(leased(vectors, "shards are written into it"))
        settings = {"precision": shared.precision, "tokens_per_batch": shared.tokens_per_batch}
        snapshot = Snapshot(
            checkpoint.encoder,
            checkpoint.weights,
            self.data,
            self.recipe.encoding.model_copy(update=settings),
            self.run.scratch,
            self.world.device,
            self.world,
            checkpoint.document_weights,
        )
        tasks = ShardTasks(
            tasks_folder(vectors, shared.shards, shared.tokens_per_batch),
            shared.shards,
            *snapshot.encode_arguments[1:],
        )
        while SharedEncoding.of(self.run) == shared:
            if tasks.encode_free(lambda: SharedEncoding.of(self.run) == shared):
                return
            time.sleep(POLL_SECONDS)
