"""What run directories have measured, by split and measure."""

import pytest
from helpers.finished_run import finished

from benchmarks.papers.measured import read_measured


def figures(runs, **recipes):
    measured, notes = read_measured(runs, recipes, "set", ())
    kept = measured[["method", "run", "split", "measure", "value"]]
    return sorted(map(tuple, kept.values.tolist())), notes


def test_the_rows_of_a_run_that_a_table_has(base, tmp_path):
    rows = {"bm25": 0.4, "untrained": 0.1, "warm": 0.2, "only": 0.5}
    finished(tmp_path / "a", base, rows, ["final_evaluation.split=[dev,test]"])
    expected = {"bm25-search": 0.4, "untrained": 0.1, "ance": 0.5}
    assert figures(tmp_path)[0] == sorted(
        (method, "a", split, "RR@10", value)
        for method, value in expected.items()
        for split in ("dev", "test")
    )


def test_a_reranked_ranking_is_measured_as_its_own_split(base, tmp_path):
    rerank, beside = ["final_evaluation.rerank={test: {}}"], {"test-rerank nDCG@10": 0.7}
    finished(tmp_path / "a", base, {"bm25": 0.4, "only": 0.5}, rerank, beside=beside)
    assert ("ance", "a", "test-rerank", "nDCG@10", 0.7) in figures(tmp_path)[0]


def test_runs_are_found_in_a_folder_and_in_those_of_grids(base, tmp_path):
    runs = tmp_path / "runs"
    made = [finished(runs / name, base, {"only": 0.5}) for name in ("b", "a", "grid/seed=1", "half")]
    (made[-1] / "measures.json").unlink()
    finished(runs / "other", base, {"only": 0.5}, name="elsewhere/ance")
    (runs / "no-run").mkdir()
    (runs / "no-run" / "recipe.yaml").write_text("name: set/ance\n")
    found, notes = figures(runs)
    assert {run for _, run, *_ in found} == {"a", "b", "grid/seed=1"}
    assert len(notes) == 1 and notes[0].startswith(f"skipped: {runs / 'half'} holds")
    assert figures(tmp_path / "absent") == ([], [])


@pytest.mark.parametrize("lacking", ["config_hash", "rows"])
def test_a_run_whose_measures_lack_something_is_named(base, tmp_path, lacking):
    path = finished(tmp_path / "a", base, {"only": 0.5}) / "measures.json"
    path.write_text(path.read_text().replace(f'"{lacking}"', '"former"'))
    assert figures(tmp_path) == (
        [],
        [f"skipped: {path} has no '{lacking}'; evaluate again, or remove the run"],
    )
