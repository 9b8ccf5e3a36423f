import importlib.util
from unittest.mock import Mock

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from pyserini_ance.recipe.load import load
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, read_json_lines
from pyserini_ance.trainer.trackers import check_trackers, open_trackers, series, tracking


def log_steps(run: RunDir, stage: str, first: int, last: int) -> None:
    """The records of the steps, with a refresh and an older dev score before each second one."""
    log = RunLog(run)
    for step in range(first, last):
        at = {"stage": stage, "step": step}
        if step % 2 == 0:
            tables = {"query.0": {"kind": "ann", "new_share": None if step == 0 else 0.5}}
            log.metric("generation", **at, checkpoint_step=step, tables=tables)
            log.metric("dev", **at, checkpoint_step=step // 2, measure="RR@10", value=step / 8)
        log.metric("step", **at, loss=1 / (step + 1), terms={"query": 0.5 * step}, seconds=0.25)


def run_until_killed_and_resumed(folder, name: str) -> RunDir:
    """Two stages; in the second, steps 2 and 3 were done when the run was killed, and step 2 is repeated."""
    recipe = load("demo/ance", f"log_with={name}")
    run = RunDir(folder)
    folder.mkdir()
    with tracking(recipe, run):
        log_steps(run, "warm", 0, 3)
        log_steps(run, "ance", 0, 4)
    assert run.listeners == []
    resumed = RunDir(folder)
    with tracking(recipe, resumed):
        RunLog(resumed).forget_after("ance", 2)
        log_steps(resumed, "ance", 2, 6)
    return resumed


def expected(run: RunDir) -> dict[str, list[tuple[int, float]]]:
    """The points of each series, from the metrics; the second stage begins at 3."""
    points: dict[str, list[tuple[int, float]]] = {}
    for record in read_json_lines(run.metrics):
        step = record["checkpoint_step"] if record["event"] == "dev" else record["step"]
        for name, value in series(record).items():
            points.setdefault(name, []).append((step + 3 * (record["stage"] == "ance"), value))
    return points


def test_tensorboard_has_each_point_after_a_kill(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    run = run_until_killed_and_resumed(tmp_path / "run", "tensorboard")
    found: dict[str, list[tuple[int, float]]] = {}
    events = EventMultiplexer().AddRunsFromDirectory(str(run.folder)).Reload()
    for name, kinds in events.Runs().items():
        for tag in kinds["scalars"]:
            points = [(event.step, event.value) for event in events.Scalars(name, tag)]
            found.setdefault(tag, []).extend(points)  # those of the repeated steps twice
    assert {tag: sorted(dict(points).items()) for tag, points in found.items()} == {
        name: [(step, pytest.approx(value)) for step, value in points]
        for name, points in expected(run).items()
    }
    assert max(found["dev/RR@10"]) == (3 + 2, 0.5)


class Recorder(GeneralTracker):
    """A tracker that keeps what it gets, and fails at a step."""

    name, requires_logging_directory, main_process_only = "wandb", False, False
    fails_at: int | None = None
    made: list["Recorder"] = []

    def __init__(self, **settings):
        self.settings, self.config, self.points, self.is_open = settings, None, [], True
        self.id = settings["id"] or "abc"
        Recorder.made.append(self)

    def start(self):
        pass

    @property
    def tracker(self):
        return self

    def store_init_configuration(self, values):
        self.config = values

    def define_metric(self, name, step_metric):
        self.axis = step_metric

    def log(self, values, step=None):
        """Steps that go back would be lost in Weights & Biases: it gets none."""
        assert step is None and self.axis in values
        if values[self.axis] == self.fails_at:
            raise OSError("no network")
        self.points.append((values[self.axis], values))

    def finish(self):
        self.is_open = False


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Recorder)
    monkeypatch.setattr(Recorder, "made", [])
    return Recorder


def test_a_resumed_run_goes_on_where_the_killed_one_was(recorder, tmp_path):
    run_until_killed_and_resumed(tmp_path / "run", "wandb")
    first, second = recorder.made
    assert [step for step, _ in first.points] == [0, 0, 0, 1, 2, 1, 2, 3, 3, 3, 4, 5, 4, 5, 6]
    assert [step for step, _ in second.points] == [5, 4, 5, 6, 7, 5, 7, 8]
    assert first.config["stages.ance.steps"] == 120 and second.config is None
    assert first.config["stages.ance.terms.query.negatives.0.kind"] == "ann"
    assert None not in first.config.values()
    assert [made.settings["id"] for made in recorder.made] == [None, "abc"]
    assert not first.is_open and not second.is_open


def test_a_tracker_that_fails_does_not_end_the_run(recorder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "fails_at", 1)
    run = RunDir(tmp_path)
    with tracking(load("demo/ance", "log_with=wandb"), run):
        log_steps(run, "warm", 0, 3)
    assert caplog.messages == ["wandb failed and gets nothing more: no network"]
    assert len(read_json_lines(run.metrics)) == 7
    assert [step for step, _ in recorder.made[0].points] == [0, 0, 0]


def test_a_tracker_that_is_missing_or_fails_ends_the_run_before_training(recorder, tmp_path, monkeypatch):
    failing = Mock(return_value=Mock(start=Mock(side_effect=OSError("no network"))))
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "trackio", failing)
    with pytest.raises(RuntimeError, match="log_with: trackio cannot be started: no network"):
        open_trackers(RunDir(tmp_path), ["wandb", "trackio"], {})
    assert read_json(tmp_path / "trackers" / "ids.json") == {"wandb": "abc"}  # to go on with
    monkeypatch.setattr(recorder, "start", Mock(side_effect=OSError("no network")))
    expected = "log_with: wandb cannot be started: no network. Without network set WANDB_MODE=offline"
    recipe = load("demo/ance", "log_with=wandb")
    with pytest.raises(RuntimeError, match=expected), tracking(recipe, RunDir(tmp_path)):
        pytest.fail("training began")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="the package wandb is not installed.*pip install wandb"):
        check_trackers(["wandb"])
