"""All studies on runs of different kinds, as a user makes them."""

import json
import logging
import re
from xml.etree import ElementTree

import pytest

from benchmarks.papers import analyze
from benchmarks.papers.studies import STUDIES
from pyserini_ance.pipeline import experiment

from .conftest import stage

FINAL = {"hits": 20, "measures": ["RR@10"], "query_measures": ["RR@10"], "indexes": ["SQ8"]}
MINED = stage("ann", 6, refresh={"every_steps": 4}, evaluate={"every_steps": 2})  # two generations
MINED["terms"]["query"]["negatives"][0]["top_k"] = 27  # of 30 documents: ranks for RR@100
# Six generations, and rankings that change so much that negatives swing.
SWINGING = {**MINED, "optimizer": {"learning_rate": 0.1}, "refresh": {"every_steps": 1}}
LIVE = {**stage("live", 4), "trainable": "query_tower"}
LIVE["terms"]["query"]["negatives"] = [{"kind": "live", "top_k": 9, "index": "SQ8"}]
PASSAGES = {"length_tokens": 12, "template": "{text}", "passages": 3}
RUNS = {
    "ance": (MINED, {}, {"negative-swing"}),
    "maxp": (SWINGING, {"document": PASSAGES}, {"forgetting"}),
    "ltre": (LIVE, {}, {"async-gap", "composition", "forgetting", "negative-swing", "positive-neighbors"}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", RUNS)
def test_every_study_of_a_run_writes_files_that_open(kind, small_recipe, tmp_path, caplog, capsys):
    of_stage, tokenization, left_out = RUNS[kind]
    recipe = small_recipe({"main": of_stage}, final_evaluation=FINAL, retention={"save_total_limit": 9})
    settings = recipe.model_dump(mode="json")
    settings["encoder"]["tokenization"] |= tokenization
    experiment.train(type(recipe).model_validate(settings), tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        analyze.main(["all", str(tmp_path / "run"), "--queries", "8", "--top-k", "5", "--device", "cpu"])
    named = {found[1] for text in caplog.messages if (found := re.match(r"left out: ([\w-]+): ", text))}
    assert named == left_out
    written, made = tmp_path / "run" / "analysis", STUDIES.keys() - left_out
    for name in made:
        numbers = json.loads((written / f"{name}.json").read_text())
        assert numbers["study"] == name and numbers["rows"]
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.fromstring((written / f"{name}.svg").read_text()).tag.endswith("svg")
    assert len(list(written.iterdir())) == 3 * len(made)
    assert capsys.readouterr().out.count("written: ") == len(made)
