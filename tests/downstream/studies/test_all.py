"""All studies on one run, as a user makes them."""

import json
import logging
from xml.etree import ElementTree

import pytest

from pyserini_ance.commands import analyze
from pyserini_ance.downstream.studies import STUDIES
from pyserini_ance.pipeline import experiment

from .conftest import stage


@pytest.mark.long
def test_every_study_of_one_run_writes_files_that_open(small_recipe, tmp_path, caplog, capsys):
    mined = stage("ann", 6, refresh={"every_steps": 2}, evaluate={"every_steps": 2})
    mined["terms"]["query"]["negatives"][0]["top_k"] = 28  # of 30 documents: ranks for RR@100
    final = {"hits": 20, "measures": ["RR@10"], "query_measures": ["RR@10"], "indexes": ["SQ8"]}
    recipe = small_recipe({"ance": mined}, final_evaluation=final, retention={"save_total_limit": 9})
    experiment.train(recipe, tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        analyze.main(["all", str(tmp_path / "run"), "--queries", "8", "--top-k", "5", "--device", "cpu"])
    assert not [message for message in caplog.messages if message.startswith("left out")]
    written = tmp_path / "run" / "analysis"
    for name in STUDIES:
        numbers = json.loads((written / f"{name}.json").read_text())
        assert numbers["study"] == name and numbers["rows"]
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.fromstring((written / f"{name}.svg").read_text()).tag.endswith("svg")
    assert len(list(written.iterdir())) == 3 * len(STUDIES)
    assert capsys.readouterr().out.count("written: ") == len(STUDIES)
