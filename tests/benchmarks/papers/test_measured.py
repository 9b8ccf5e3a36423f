"""What run directories have measured, by split and measure."""

import json
from pathlib import Path

import pytest
from helpers.finished_run import finished

from benchmarks.papers.measured import MeasuredRow, find_runs, group_alike, read_measured, values_by_column

BOTH = ("dev", "RR@10"), ("test", "RR@10")


def test_the_rows_of_a_run_that_a_table_has(base, tmp_path):
    run = finished(
        tmp_path / "run",
        base,
        {"bm25": 0.4, "untrained": 0.1, "warm": 0.2, "only": 0.5},
        overrides=["final_evaluation.split=[dev,test]"],
    )
    recorded = json.loads((run / "measures.json").read_text())["config_hash"]
    assert read_measured(run, "here") == [
        MeasuredRow("bm25", "", "here", dict.fromkeys(BOTH, 0.4)),
        MeasuredRow("untrained", "", "here", dict.fromkeys(BOTH, 0.1)),
        MeasuredRow("set/ance", recorded, "here", dict.fromkeys(BOTH, 0.5)),
    ]


def test_a_reranked_ranking_is_measured_as_its_own_split(base, tmp_path):
    run = finished(
        tmp_path / "run",
        base,
        {"bm25": 0.4, "only": 0.5},
        overrides=["final_evaluation.rerank={test: {}}"],
        beside={"test-rerank nDCG@10": 0.7},
    )
    bm25, ance = read_measured(run, "here")
    assert bm25.figures == {("test", "RR@10"): 0.4}
    assert ance.figures == {("test", "RR@10"): 0.5, ("test-rerank", "nDCG@10"): 0.7}


def test_runs_are_found_in_a_folder_and_in_those_of_grids(base, tmp_path):
    runs = tmp_path / "runs"
    made = [finished(runs / name, base, {"only": 0.5}) for name in ("b", "a", "grid/seed=1", "half")]
    (made[-1] / "measures.json").unlink()
    other = finished(runs / "other", base, {"only": 0.5}, name="elsewhere/ance")
    (runs / "no-run").mkdir()
    (runs / "no-run" / "recipe.yaml").write_text("name: set/ance\n")
    wanted = [runs / "a", runs / "b", runs / "grid" / "seed=1"]
    assert find_runs(runs, lambda name: name == "set/ance") == (wanted, [runs / "half"])
    assert find_runs(other, lambda name: True) == ([other], [])
    assert find_runs(tmp_path / "absent", lambda name: True) == ([], [])


def measured(recipe: str, config_hash: str, **figures: float) -> MeasuredRow:
    return MeasuredRow(recipe, config_hash, "run", {(split, "AP"): value for split, value in figures.items()})


def test_seeds_share_a_group_and_other_settings_do_not():
    one, two, other = measured("a", "v", dev=0.1), measured("a", "v", dev=0.2), measured("a", "w", dev=0.1)
    assert group_alike([one, other, two]) == [[one, two], [other]]
    assert values_by_column([one, two]) == {("dev", "AP"): [0.1, 0.2]}


def test_untrained_rows_share_a_group_if_they_agree():
    dev, test, both, other = (
        measured("bm25", "", **figures)
        for figures in ({"dev": 0.1}, {"test": 0.3}, {"dev": 0.1, "test": 0.3}, {"dev": 0.2})
    )
    assert group_alike([dev, test, both, other]) == [[dev, test, both], [other]]
    assert values_by_column([dev, test, both]) == {("dev", "AP"): [0.1, 0.1], ("test", "AP"): [0.3, 0.3]}


def test_a_folder_without_a_recipe_is_not_a_run(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_measured(tmp_path, "here")
    assert find_runs(Path(tmp_path), lambda name: True) == ([], [])
