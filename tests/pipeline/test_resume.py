import json

import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.resume import check_same_run


def collection(text: str) -> Collection:
    queries = Texts(["q"], {"text": ["a"]})
    return Collection(
        Texts(["d"], {"text": [text]}), {"train": Split("train", queries, Qrels.of([0], [0], [1], queries=1))}
    )


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(dump(load("demo/ance").recipe))
    made.environment.write_text(json.dumps({"data": {"digest": collection("one").digest}}))
    return made


def test_a_run_may_continue_on_another_machine_and_with_other_published_figures(run):
    machine = "refresher={launch: external, device: cpu, timeout_seconds: 5}"
    figures = ["data.official.documents=7", "description=better", "expect={test: {RR@10: 0.4}}"]
    for changes in ([], ["cache=/elsewhere", "device=cpu", "threads=3", machine], figures):
        check_same_run(run, load("demo/ance", *changes).recipe, collection("one"))


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
        check_same_run(run, load("demo/ance", *overrides).recipe, collection(text))
    assert "init_from" not in str(error.value)
