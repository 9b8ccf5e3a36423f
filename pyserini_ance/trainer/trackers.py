"""Trackers: what `metrics.jsonl` records also goes to TensorBoard, Weights & Biases or Trackio."""

import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines, read_json_object, write_json

PROJECT = "pyserini_ance"
IDENTITY = {"wandb": "id", "trackio": "name"}  # attributes of a package's run
POSITION = "position"  # the horizontal axis in Weights & Biases, whose own steps must not go back
WHERE = ("event", "stage", "step", "weights")  # keys of a record that are not values
OFFLINE = {"wandb": ". Without network set WANDB_MODE=offline"}
log = logging.getLogger(__name__)


def check_trackers(names: Sequence[str]) -> None:
    """Raise RuntimeError with the command that installs a tracker of `log_with` if it is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            cure = f"Install it with `pip install {name}`, or remove {name} from log_with"
            raise RuntimeError(f"log_with: the package {name} is not installed. {cure}")


def series(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record of `metrics.jsonl`, by path: `step/terms/query`; a dev score by its measure."""
    if record["event"] == "dev":
        record = {**record, record["measure"]: record["value"]}
        del record["value"]
    values = {key: value for key, value in record.items() if key not in WHERE}
    numbers = _leaves(record["event"], values, "/")
    return {path: n for path, n in numbers if isinstance(n, int | float) and not isinstance(n, bool)}


def _leaves(path: str, value: Any, separator: str) -> Iterator[tuple[str, Any]]:
    """Yield the values in mappings and lists that are not None, with their paths."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}{separator}{key}" if path else str(key), inner, separator)
    elif value is not None:
        yield path, value


def arguments(name: str, run: Path, run_id: str | None) -> dict[str, Any]:
    """The arguments of accelerate's class for the run in a folder; `run_id`: the run to continue."""
    if name == "tensorboard":
        return {"run_name": PROJECT, "logging_dir": run / "trackers"}
    if name == "wandb":
        own = {"name": run.name, "id": run_id, "resume": "allow", "dir": str(run / "trackers")}
    else:  # Trackio resumes the last run of a name, and other runs have folders of the same name
        unique = f"{run.name}-{run.stat().st_ctime_ns % 10**6:06d}"
        own = {"name": run_id or unique, "resume": "allow" if run_id else "never"}
    return {"run_name": PROJECT, **own}


def open_trackers(run: RunDir, names: Sequence[str], config: dict[str, Any]) -> list[GeneralTracker]:
    """Open each tracker's run, or reopen that of a resumed run; `config` are the settings to show.

    Raises RuntimeError for a tracker that cannot be started.
    """
    PartialState(cpu=True)  # accelerate's trackers log with it
    folder, trackers = run.folder / "trackers", []
    folder.mkdir(exist_ok=True)
    # What a resumed run continues by; the folder of TensorBoard identifies it.
    ids = read_json_object(folder / "ids.json") or {}
    for name in names:
        tracker = LOGGER_TYPE_TO_CLASS[name](**arguments(name, run.folder.resolve(), ids.get(name)))
        try:
            tracker.start()
            if name not in ids:
                tracker.store_init_configuration(config)
            if name == "wandb":
                tracker.tracker.define_metric("*", step_metric=POSITION)
        except Exception as error:  # each package has its own kinds of errors
            cure = OFFLINE.get(name, "")
            raise RuntimeError(f"log_with: {name} cannot be started: {error}{cure}") from error
        ids[name] = getattr(tracker.tracker, IDENTITY[name]) if name in IDENTITY else ""
        trackers.append(tracker)
        write_json(folder / "ids.json", ids)
    return trackers


@contextmanager
def tracking(recipe: Recipe, run: RunDir) -> Iterator[None]:
    """While inside, in the main process, send what is recorded in the run's metrics to the trackers of
    `log_with`.

    A value's step counts the steps of all stages; a dev score has its checkpoint's. A resumed run sends the
    records that it makes again once more, with the same values and steps. A tracker that fails is left out
    from then on: the run goes on.
    """
    if not recipe.log_with:
        yield
        return
    # The settings as trackers show them: numbers and texts by dotted key.
    trackers = open_trackers(run, recipe.log_with, dict(_leaves("", recipe.model_dump(mode="json"), ".")))
    first: dict[str, int] = {}  # the steps of all stages before a stage
    steps: dict[str, int] = {}  # the steps done of each stage

    def position(record: Mapping[str, Any]) -> int:
        """The step of a record, plus the steps of all stages before its own."""
        stage = record.get("stage", "")
        before = first.setdefault(stage, sum(steps.values()))
        if record["event"] == "step":
            steps[stage] = max(steps.get(stage, 0), record["step"] + 1)
        return before + int(record["checkpoint_step"] if record["event"] == "dev" else record.get("step", 0))

    def each(act: Callable[[GeneralTracker], None]) -> None:
        for tracker in list(trackers):
            try:
                act(tracker)
            except Exception as error:  # a service that cannot be reached must not end a run
                log.warning("%s failed and gets nothing more: %s", tracker.name, error)
                trackers.remove(tracker)

    def send(record: Mapping[str, Any]) -> None:
        if "stage" in record:
            step, values = position(record), series(record)
            if values:
                placed = {**values, POSITION: step}
                each(lambda one: one.log(placed) if one.name == "wandb" else one.log(values, step=step))

    for record in read_json_lines(run.metrics):  # of a resumed run
        position(record)
    run.listeners.append(send)
    try:
        yield
    finally:
        run.listeners.remove(send)
        each(lambda tracker: tracker.finish())
