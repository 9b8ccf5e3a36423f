"""Taking up a stage that stopped: from its newest checkpoint, with the tables adopted before it and the orders still open."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf

from pyserini_ance.distributed.world import World
from pyserini_ance.runs.checkpoint import Checkpoint, Place, newest_place
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.orders import ProductKind
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json
from pyserini_ance.storage.publish import is_complete, read_manifest
from pyserini_ance.trainer.adoption import Adoption
from pyserini_ance.trainer.handover import Script

EVENTS: dict[ProductKind, str] = {"tables": "adopt", "dev": "evaluate"}


@dataclass(frozen=True)
class Resumed:
    """Where to go on; nothing is set when the stage has no checkpoint yet."""

    place: Place | None = None
    checkpoint: Checkpoint | None = None


def resume_stage(run: RunDir, name: str, adoption: Adoption, log: RunLog, world: World) -> Resumed:
    """Forget what was logged after the newest checkpoint, take up the tables in use then, and open the orders again.

    What `adopt: ready` decided after it is repeated: it depended on time, and later steps on it.
    """
    handovers = adoption.handovers
    free = [EVENTS[kind] for kind, handover in handovers.items() if handover.product.lag_steps is None and handover.script.until != inf]
    found = world.once(lambda: _look_back(run, name, log, free))
    if found["place"] is None:
        return Resumed()
    place = Place(**found["place"])
    adoption.recall([r for r in found["decisions"] if r["event"] == "adopt" and r["step"] < place.step])
    for kind, handover in handovers.items():
        records = [r for r in found["decisions"] if r["event"] == EVENTS[kind]]
        if later := [r for r in records if r["step"] >= place.step]:
            handover.script = script_of(later, until=max(r["step"] for r in later))
        weights = dict(found["weights"])
        due = (step for step in range(1, place.step) if kind in adoption.due(step))
        handover.reopen(name, [(step, weights.get(step)) for step in due], {r["of"] for r in records if r["step"] < place.step})
    return Resumed(place, Checkpoint.open(run.checkpoint(name, place.step)))


def script_of(records: list[dict], until: float) -> Script:
    """The adoptions that `records` (of one kind and stage) tell."""
    adoptions: dict[int, list[int]] = {}
    for record in records:
        adoptions.setdefault(record["step"], []).append(record["of"])
    return Script(adoptions, until, {record["of"]: record["weights"] for record in records})


def _look_back(run: RunDir, stage: str, log: RunLog, keep: list[str]) -> dict:
    place = newest_place(run, stage)
    log.forget_after(stage, place.step if place else 0, keep)
    decisions = [r for event in EVENTS.values() for r in log.decisions(event) if r["stage"] == stage]
    return {"place": place and asdict(place), "decisions": decisions, "weights": list(_known_weights(run, stage))}


def _known_weights(run: RunDir, stage: str) -> Iterator[tuple[int, str]]:
    """(step, weights) of checkpoints, and of what was made of them: that is enough where the checkpoint has been removed since."""
    for folder in run.checkpoints.glob(f"{stage}-????????"):
        if is_complete(folder):
            yield step_of(folder.name), Checkpoint.open(folder, verify=False).weights
    for folder in run.negatives.glob(f"{stage}-????????"):
        if is_complete(folder):
            yield step_of(folder.name), read_manifest(folder, verify=False)["weights"]
    for path in run.evaluations.glob(f"{stage}-????????.json"):
        yield step_of(path.stem), read_json(path)["weights"]
