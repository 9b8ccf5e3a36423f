"""The runs of a comparison: repetitions of a seed."""

import pytest
from helpers.finished_run import finished

from pyserini_ance.analysis.compared_runs import read_distinct
from pyserini_ance.analysis.run_comparison import compare


@pytest.fixture
def make_run(base, tmp_path):
    """A finished run with that RR@10."""

    def make(name: str, value: float, *overrides: str):
        return finished(tmp_path / name, base, {"bm25": 0.5, "only": value}, overrides)

    return make


def test_a_repeated_seed_counts_once(make_run, caplog):
    runs = [make_run("42", 0.4), make_run("43", 0.6, "seed=43"), make_run("again", 0.4, "threads=1")]
    distinct, results = read_distinct(runs)
    assert distinct == runs[:2]
    assert compare(results)[0][1]["RR@10"] == "0.500 (0.400-0.600)"
    assert caplog.messages == [
        f"{runs[2]} repeats {runs[0]}: the same recipe, settings, seed and measures; it is not counted"
    ]


def test_a_seed_that_measured_otherwise_stays(make_run, caplog):
    runs = [make_run("42", 0.4), make_run("other", 0.41)]
    assert read_distinct(runs)[0] == runs
    (message,) = caplog.messages
    assert message.startswith(f"{runs[0]} and {runs[1]} have the same recipe, settings and seed, but other")


def test_equal_measures_of_other_seeds_or_settings_are_no_repetition(make_run, caplog):
    runs = [make_run("42", 0.4), make_run("43", 0.4, "seed=43"), make_run("8", 0.4, "bm25.k1=0.5")]
    assert read_distinct(runs)[0] == runs and not caplog.messages


def test_runs_that_start_from_other_seeds_are_no_repetition(make_run, caplog):
    starts = [make_run("warm", 0.1), make_run("warm-43", 0.1, "seed=43")]
    runs = [
        make_run(f"from-{run.name}", 0.4, f"stages.only.init_from={{run: {run}, stage: only}}")
        for run in starts
    ]
    assert read_distinct(runs)[0] == runs and not caplog.messages
