import json
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment.servant import Servant
from small import make_finished_run

RANDOM_STAGE = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
QRELS = {"test": "test-0 0 red-horse 1\ntest-1 0 green-horse 1\n"}
HITS = {"test-0": ["red-apple", "pink-river", "red-horse", "blue-cloud"], "test-1": ["green-apple"], "elsewhere": ["red-apple"]}
RANKING = "".join(f"{q} Q0 {d} {rank} {9 - rank} t\n" for q, found in HITS.items() for rank, d in enumerate(found, start=1))


@pytest.fixture(scope="session")
def servant():
    """One for all whole runs: it takes seconds to import everything."""
    with Servant() as servant:
        yield servant


@pytest.fixture
def asked_recipe(small_recipe, tmp_path):
    """Make recipes over 12 passages of DPR's layout: 3 questions to train on, and 4 to test on with answers alone, the last of which none holds."""

    def make(stages: dict, test: dict, **more):
        passages = [(f"p{n}", f"the year {1980 + n} and the {'apple' if n % 3 else 'stone'}", "title") for n in range(12)]
        (tmp_path / "psgs.tsv").write_text("".join("\t".join(row) + "\n" for row in passages))
        judged = [{"question": f"query {n}", "answers": [str(1980 + n)], "positive_ctxs": [{"passage_id": f"p{n}"}]} for n in range(3)]
        (tmp_path / "train.json").write_text(json.dumps([{**one, "hard_negative_ctxs": []} for one in judged]))
        (tmp_path / "test.qa.csv").write_text("which year\t['1984', '1985']\nwhich thing\t['Stone']\nwhat\t['1991']\nwho\t['nobody']\n")
        splits = {"train": {"questions": str(tmp_path / "train.json")}, "test": {"questions": str(tmp_path / "test.qa.csv")}}
        data = {"kind": "dpr", "passages": str(tmp_path / "psgs.tsv"), "splits": splits}
        return small_recipe(stages, data=data, test=test, cache=str(tmp_path / "cache"), **more)

    return make


@pytest.fixture(scope="module")
def train(recipe, servant) -> Callable[..., dict]:
    """Run `train RECIPE --output FOLDER ...`, of the file's own `recipe`, in a process; its exit code and stderr."""

    def run(folder: Path, *flags: str, **trouble) -> dict:
        return servant.run("train", [str(recipe), "--output", str(folder), *flags], **trouble)

    return run


@pytest.fixture(scope="module")
def undisturbed(train, tmp_path_factory) -> Path:
    """The run directory of the file's `recipe`, left in peace."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = train(folder)
    assert done["code"] == 0, done["stderr"]
    return folder


@pytest.fixture
def ranked(small_recipe, tmp_path):
    """The collection has five test queries; two have hits."""
    from pyserini_ance.experiment.ranked import open_ranked

    recipe = small_recipe({"only": RANDOM_STAGE}, cache=str(tmp_path / "cache"))
    run = make_finished_run(tmp_path / "run", recipe, QRELS, {"run.test.trec": RANKING, "runs/bm25.test.trec": RANKING})
    return open_ranked(str(run.folder))
