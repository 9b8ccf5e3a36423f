"""The runs of a comparison: repetitions of a seed, rows by folder, and variants of a recipe."""

import pytest
from helpers.finished_run import finished

from pyserini_ance.reports.compared_runs import read_distinct, row_named, variant_legend
from pyserini_ance.reports.run_comparison import compare


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


def test_a_legend_says_what_variants_differ_in(make_run):
    """Seeds are no variants, and a variant has the keys in which any other differs."""
    runs = [
        make_run("one", 0.4, "stages.only.steps=20"),
        make_run("43", 0.5, "stages.only.steps=20", "seed=43"),
        make_run("two", 0.6, "stages.only.steps=30"),
        make_run("three", 0.7, "stages.only.steps=20", "stages.only.batch_queries=8"),
    ]
    _, results = read_distinct(runs)
    tags = {run.name: f"[{result['config_hash'][:6]}]" for run, result in zip(runs, results, strict=True)}
    rows = [row["recipe"] for row in compare(results)[0]]
    assert f"set/ance {tags['one']}" in rows
    assert variant_legend(results, rows) == [
        f"{tags['one']}: stages.only.steps=20; stages.only.batch_queries=4",
        f"{tags['two']}: stages.only.steps=30; stages.only.batch_queries=4",
        f"{tags['three']}: stages.only.steps=20; stages.only.batch_queries=8",
    ]
    assert variant_legend(results, [f"set/ance {tags['two']}"]) == variant_legend(results, rows)[1:2]
    assert variant_legend(results[:2], ["bm25", "set/ance"]) == []


def test_a_legend_shows_some_keys(make_run):
    keys = ["stages.only.steps=30", "stages.only.batch_queries=8", "bm25.k1=0.5", "bm25.b=0.5"]
    runs = [make_run("one", 0.4), make_run("two", 0.4, *keys)]
    lines = variant_legend(results := read_distinct(runs)[1], [row["recipe"] for row in compare(results)[0]])
    assert len(lines) == 2 and all(line.endswith("; and 1 more") and line.count("=") == 3 for line in lines)


def test_a_folder_names_the_row_of_its_runs(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        make_run("grid/42", 0.4),
        make_run("grid/43", 0.5, "seed=43"),
        make_run("other", 0.6, "bm25.k1=0.5"),
    ]
    _, results = read_distinct(runs)
    rows = [row["recipe"] for row in compare(results)[0]]
    tagged = f"set/ance [{results[0]['config_hash'][:6]}]"
    assert row_named("grid/42", results) == row_named(str(tmp_path / "grid"), results) == tagged
    assert row_named("other/", results) in rows and row_named("other/", results) != tagged
    assert row_named("bm25", results) == "bm25" and row_named("absent", results) == "absent"
    with pytest.raises(ValueError, match=r"^\. has runs in several rows: set/ance \[.*; pass one of them"):
        row_named(".", results)
