import json

import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.refresh import AdoptionLog
from pyserini_ance.trainer.resume import check_resumable, read_replay, replay_logs

ADOPT = {"event": "adopt", "stage": "ance"}
RECORDS = [
    {**ADOPT, "stage": "bm25-neg", "step": 0, "checkpoint_step": 0, "weights": "u"},
    {"event": "stage_end", "stage": "bm25-neg", "step": 60, "result": "bm25-neg-00000060", "weights": "v"},
    {**ADOPT, "step": 0, "checkpoint_step": 0, "weights": "v"},
    {**ADOPT, "step": 47, "checkpoint_step": 40, "weights": "w"},
    {"event": "evaluate", "stage": "ance", "step": 51, "checkpoint_step": 40, "value": 0.5, "weights": "w"},
    {"event": "best", "stage": "ance", "step": 51, "checkpoint_step": 40, "value": 0.5},
    {"event": "resume", "environment": {}},
    {"event": "stage_end", "stage": "ance", "step": 120, "result": "ance-00000120", "weights": "x"},
]


def recipe(*overrides: str) -> Recipe:
    return load("demo/ance", *overrides).recipe


@pytest.fixture
def decisions(tmp_path):
    """Write a run's decisions, and its recipe next to them."""

    def write(records=RECORDS, recorded: Recipe | None = None):
        (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if recorded:
            (tmp_path / "recipe.yaml").write_text(dump(recorded))
        return tmp_path / "decisions.jsonl"

    return write


def test_a_replay_may_have_another_name_and_machine_but_no_other_recipe(decisions):
    for override in ("name=other", "threads=2", "refresher.launch=external"):
        path = decisions(recorded=recipe(override))
        assert read_replay(path, recipe()) == path.read_text()
    for override in ("seed=7", "stages.ance.optimizer.learning_rate=1e-4", "stages.ance.steps=30"):
        path = decisions(recorded=recipe(override))
        message = f"has another recipe; replay it with: pyserini-ance train {path.parent}/recipe.yaml"
        with pytest.raises(ValueError, match=message):
            read_replay(path, recipe())


def test_a_run_that_has_not_finished_or_is_missing_is_refused(decisions, tmp_path):
    with pytest.raises(ValueError, match="decisions.jsonl: it records no end of stage ance; replay a fini"):
        read_replay(decisions(RECORDS[:-1]), recipe())
    with pytest.raises(FileNotFoundError, match=f"--replay {tmp_path}/no.jsonl: no such file; expected"):
        read_replay(tmp_path / "no.jsonl", recipe())


def test_the_logs_of_a_stage_hold_its_adoptions(decisions):
    assert replay_logs(decisions(), "ance") == {
        "tables": AdoptionLog({0: [0], 47: [40]}, {0: "v", 40: "w"}, "replay"),
        "dev": AdoptionLog({51: [40]}, {40: "w"}, "replay"),
    }
    assert replay_logs(decisions(), "bm25-neg") == {
        "tables": AdoptionLog({0: [0]}, {0: "u"}, "replay"),
        "dev": AdoptionLog({}, {}, "replay"),
    }


def collection(text: str) -> Collection:
    queries = Texts(["q"], {"text": ["a"]})
    return Collection(
        Texts(["d"], {"text": [text]}), {"train": Split("train", queries, Qrels.of([0], [0], [1], queries=1))}
    )


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(dump(recipe()))
    made.environment.write_text(json.dumps({"data": {"digest": collection("one").digest}}))
    return made


def test_a_run_may_continue_on_another_machine_and_with_other_published_figures(run):
    machine = "refresher={launch: external, device: cpu, timeout_seconds: 5}"
    figures = ["data.official.documents=7", "description=better", "expect={test: {RR@10: 0.4}}"]
    for changes in ([], ["cache=/elsewhere", "device=cpu", "threads=3", machine], figures):
        check_resumable(run, recipe(*changes), collection("one"))


@pytest.mark.parametrize(
    ("overrides", "text", "message"),
    [
        (["seed=7"], "one", r"differs from the recipe given.* train .*recipe\.yaml --output .* --resume"),
        (
            ["stages.ance.terms.query.negatives.0.top_k=20", "stages.bm25-neg.steps=5", "device=cpu"],
            "one",
            r"\(stages.bm25-neg.steps: 60 in the run, 5 given; stages.ance.terms.query.negatives.0.top_k: "
            r"200 in the run, 20 given\).* `train` with --overwrite",
        ),
        ([], "two", "the data .* is not that which .* was started with"),
    ],
)
def test_another_recipe_and_other_data_are_refused(run, overrides, text, message):
    with pytest.raises(ValueError, match=message) as error:
        check_resumable(run, recipe(*overrides), collection(text))
    assert "init_from" not in str(error.value)
