import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.processes import CommandServer
from helpers.ranked_run import make_ranked_run

from pyserini_ance.pipeline.ranking_inputs import RankingInput


@pytest.fixture(scope="session")
def server():
    """One server for all whole runs: importing everything takes seconds."""
    with CommandServer() as server:
        yield server


@pytest.fixture
def asked_recipe(small_recipe, tmp_path):
    """Make recipes over 12 passages of DPR's format.

    There are 3 questions to train on, and 4 to test on with answers alone; no passage contains the last
    answer.
    """

    def make(stages: dict, test: dict, **more):
        passages = [
            (f"p{n}", f"the year {1980 + n} and the {'apple' if n % 3 else 'stone'}", "title")
            for n in range(12)
        ]
        (tmp_path / "psgs.tsv").write_text("".join("\t".join(row) + "\n" for row in passages))
        judged = [
            {"question": f"query {n}", "answers": [str(1980 + n)], "positive_ctxs": [{"passage_id": f"p{n}"}]}
            for n in range(3)
        ]
        (tmp_path / "train.json").write_text(
            json.dumps([{**one, "hard_negative_ctxs": []} for one in judged])
        )
        (tmp_path / "test.qa.csv").write_text(
            "which year\t['1984', '1985']\nwhich thing\t['Stone']\nwhat\t['1991']\nwho\t['nobody']\n"
        )
        splits = {
            "train": {"questions": str(tmp_path / "train.json")},
            "test": {"questions": str(tmp_path / "test.qa.csv")},
        }
        data = {"kind": "dpr", "passages": str(tmp_path / "psgs.tsv"), "splits": splits}
        return small_recipe(stages, data=data, final_evaluation=test, cache=str(tmp_path / "cache"), **more)

    return make


@pytest.fixture(scope="module")
def train(recipe, server) -> Callable[..., dict]:
    """Run `train RECIPE --output FOLDER ...` with the module's `recipe` in a process; returns its exit code
    and stderr.
    """

    def run(folder: Path, *flags: str, **fault) -> dict:
        return server.run("train", [str(recipe), "--output", str(folder), *flags], **fault)

    return run


@pytest.fixture(scope="module")
def undisturbed(train, tmp_path_factory) -> Path:
    """The run directory of the module's `recipe`, trained without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = train(folder)
    assert done["code"] == 0, done["stderr"]
    return folder


@pytest.fixture
def ranked(small_recipe, tmp_path) -> RankingInput:
    return make_ranked_run(small_recipe, tmp_path)
