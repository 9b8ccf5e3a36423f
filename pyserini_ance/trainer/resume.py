"""Resume an interrupted stage: its newest checkpoint, the tables adopted before it, and the requests still
pending."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, newest_progress
from pyserini_ance.runs.rundir import RunDir, RunLog, step_of
from pyserini_ance.storage.files import read_json
from pyserini_ance.storage.publish import is_complete, read_manifest
from pyserini_ance.trainer.products import PRODUCTS
from pyserini_ance.trainer.refresh import Refreshes


@dataclass(frozen=True)
class Resumed:
    """The progress and checkpoint from which a stage continues; None if it has no checkpoint yet."""

    progress: TrainingProgress | None = None
    checkpoint: Checkpoint | None = None


def resume_stage(run: RunDir, name: str, refreshes: Refreshes, log: RunLog, world: World) -> Resumed:
    """Discard records after the newest checkpoint, restore the tables in use then, and submit pending
    requests again.

    Adoptions of `adopt: when_ready` after the checkpoint are kept and repeated: they depended on time, and
    later steps depended on them.
    """
    repeated = [
        queue.product.event
        for queue in refreshes.queues
        if queue.schedule.adopts_when_ready and queue.schedule.log.mode != "replay"
    ]
    state = world.on_main(lambda: _read_state(run, name, log, repeated))
    if state["progress"] is None:
        return Resumed()
    progress = TrainingProgress(**state["progress"])
    weights = dict(state["weights"])
    for queue in refreshes.queues:
        records = [record for record in state["decisions"] if record["event"] == queue.product.event]
        before = [record for record in records if record["step"] < progress.step]
        queue.product.restore(before)
        queue.schedule = queue.schedule.resumed([r for r in records if r["step"] >= progress.step])
        due = (step for step in range(1, progress.step) if queue.product.is_due(step))
        adopted = {record["checkpoint_step"] for record in before}
        queue.resubmit([(step, weights.get(step)) for step in due], adopted)
    return Resumed(progress, Checkpoint.open(run.checkpoint(name, progress.step)))


def _read_state(run: RunDir, stage: str, log: RunLog, keep: list[str]) -> dict[str, Any]:
    progress = newest_progress(run, stage)
    log.forget_after(stage, progress.step if progress else 0, keep)
    decisions = [r for product in PRODUCTS for r in log.decisions(product.event) if r["stage"] == stage]
    return {
        "progress": progress and asdict(progress),
        "decisions": decisions,
        "weights": list(_known_weights(run, stage)),
    }


def _known_weights(run: RunDir, stage: str) -> Iterator[tuple[int, str]]:
    """Yield (step, weights) of checkpoints and of products, which serve even if their checkpoint was removed
    since."""
    for folder in run.checkpoints.glob(f"{stage}-????????"):
        if is_complete(folder):
            yield step_of(folder.name), Checkpoint.open(folder, verify=False).weights
    for folder in run.negatives.glob(f"{stage}-????????"):
        if is_complete(folder):
            yield step_of(folder.name), read_manifest(folder, verify=False)["weights"]
    for path in run.evaluations.glob(f"{stage}-????????.json"):
        yield step_of(path.stem), read_json(path)["weights"]
