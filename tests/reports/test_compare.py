import json

import pytest
from helpers.finished_run import finished

from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.reports.compare import compare, read_distinct, runs_in, variant_legend

AGAIN = [(0.4, ["threads=1"], 0), (0.41, [], 1), (0.4, ["seed=43"], 1), (0.4, ["bm25.k1=0.5"], 1)]


def result(recipe: str, value: float, config_hash: str = "a1b2c3d4", bm25: float = 0.4, **more) -> dict:
    """A run of 21 seconds; `more` are further rows by name: their RR@10."""
    rows = [
        {"row": "bm25", "RR@10": bm25, "test seconds": 2.0},
        {"row": "warm-up", "RR@10": 0.1, "train seconds": 5.0, "refresh seconds": 1.0, "test seconds": 1.0},
        {"row": "last", "RR@10": value, "train seconds": 10.0, "refresh seconds": 3.0, "test seconds": 1.0},
        *({"row": name, "RR@10": value, "test seconds": 0.5} for name, value in more.items()),
    ]
    head = {"run": f"runs/{recipe}", "recipe": recipe, "config_hash": config_hash, "measures": ["RR@10"]}
    return {**head, "rows": rows, "commits": ()}


@pytest.mark.parametrize(
    ("results", "rows"),
    [
        # Rows by another index are no results of their run.
        ([result("a", 0.5, **{"last+OPQ6": 0.2})], [("a", 1, "0.500")]),
        # A result fused with BM25 comes after that of its recipe.
        (
            [result("a", 0.5, hybrid=0.6), result("a", 0.5, hybrid=0.7), result("b", 0.4)],
            [("a", 2, "0.500"), ("a hybrid", 2, "0.650 (0.600-0.700)"), ("b", 1, "0.400")],
        ),
        # Where BM25 measures the same the data does not differ, so that RM3's settings do.
        (
            [result("a", 0.5, **{"bm25+rm3": 0.41}), result("b", 0.5, **{"bm25+rm3": 0.42})],
            [
                ("bm25+rm3 of a [a1b2c3]", None, "0.410"),
                ("bm25+rm3 of b [a1b2c3]", None, "0.420"),
                ("a", 1, "0.500"),
                ("b", 1, "0.500"),
            ],
        ),
        # Recipes, or a grid, may start from several encoders.
        (
            [*[result("a", 0.5, untrained=0.1)] * 2, result("a", 0.6, "ffffffff", untrained=0.2)],
            [
                ("untrained of a [a1b2c3]", None, "0.100"),
                ("untrained of a [ffffff]", None, "0.200"),
                ("a [a1b2c3]", 2, "0.500"),
                ("a [ffffff]", 1, "0.600"),
            ],
        ),
    ],
)
def test_rows(results, rows):
    """A recipe with other settings has a separate row."""
    found = [(row["recipe"], row["runs"], row["RR@10"]) for row in compare(results)[0]]
    assert found == [("bm25", None, "0.400"), *rows]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (result("b", 0.5, bm25=0.3), "^BM25 measures RR@10 0.4000 in runs/a, but RR@10 0.3000 in runs/b: "),
        ({**result("b", 0.5), "measures": ["AP"]}, "with the same measures"),
        ({**result("a", 0.5), "run": "runs/b", "data": "1"}, "^runs/a and runs/b .* but read other data; "),
    ],
)
def test_runs_on_other_data_or_by_other_measures_are_not_compared(other, message):
    with pytest.raises(ValueError, match=message):
        compare([result("a", 0.5), {**result("a", 0.5), "data": "2"}, other])
    assert len(compare([result("bm25", 0.5)])[0]) == 2  # a recipe of that name is another row


def test_recorded_commits_are_shown():
    made = [{**result("a", 0.5), "commits": commits} for commits in (("1111111",), ("1111111", "2222222+"))]
    rows, columns = compare([*made, result("b", 0.5)])
    assert columns[-1] == "commit" and [row["commit"] for row in rows] == [None, "1111111, 2222222+", None]


@pytest.fixture
def make_run(base, tmp_path):
    return lambda name, value, *more: finished(tmp_path / name, base, {"bm25": 0.5, "only": value}, more)


def test_other_splits_are_not_compared_though_bm25_ranks_them_alike(make_run):
    runs = [make_run(split, 0.5, f"final_evaluation.split={split}") for split in ("dev", "test")]
    for run in runs:
        for split in (run.name, "dev"):  # that of the dev measure, too
            (run / f"qrels.{split}.txt").write_text("q 0 d 1\n")
    with pytest.raises(ValueError, match="on other queries or judgments of split 'test' than"):
        compare([read_results(run) for run in runs])


def test_other_questions_with_answers_are_not_compared(make_run):
    runs = [make_run(name, 0.5) for name in ("one", "other")]
    for run in runs:
        (run / "topics.test.json").write_text(json.dumps({run.name: {"title": "who"}}))
    with pytest.raises(ValueError, match="on other queries or judgments of split 'test' than"):
        compare([read_results(run) for run in runs])


def names(results: list) -> list[str]:
    return [result["run"] for result in results]


@pytest.mark.parametrize("value, overrides, counts", AGAIN)
def test_a_repeated_seed_counts_once(make_run, caplog, value, overrides, counts):
    runs = [make_run("first", 0.4), make_run("again", value, *overrides)]
    assert names(read_distinct(runs)) == [str(run) for run in runs[: 1 + counts]]
    message = f"{runs[1]} repeats {runs[0]}: the same recipe, settings, seed and measures; it is not counted"
    assert caplog.messages == [message] * (not counts)


def test_an_adaptation_is_its_run(make_run):
    run = make_run("adapted/run", 0.4, "seed=7")
    (run.parent / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace("seed: 7", "seed: 42"))
    assert len(read_distinct([run.parent, run])) == 1


def test_runs_that_start_from_other_seeds_are_no_repetition(make_run, caplog):
    starts = [make_run("warm", 0.1), make_run("warm-43", 0.1, "seed=43")]
    changes = [f"stages.only.init_from={{folder: {run}, stage: only}}" for run in starts]
    runs = [make_run(f"from-{run.name}", 0.4, change) for run, change in zip(starts, changes)]
    assert names(read_distinct(runs)) == [str(run) for run in runs] and not caplog.messages


def test_a_legend_says_what_variants_differ_in(make_run):
    """Seeds are no variants, and a variant has the keys in which any other differs."""
    runs = [
        make_run("one", 0.4, "stages.only.steps=20"),
        make_run("43", 0.5, "stages.only.steps=20", "seed=43"),
        make_run("two", 0.6, "stages.only.steps=30"),
        make_run("three", 0.7, "stages.only.steps=20", "stages.only.batch_queries=8"),
    ]
    results = read_distinct(runs)
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
    keys = ["stages.only.steps=30", "stages.only.batch_queries=8", "bm25.k1=0.5", "bm25.b=0.5"]
    results = read_distinct([make_run("four", 0.4), make_run("five", 0.4, *keys)])
    lines = variant_legend(results, [row["recipe"] for row in compare(results)[0]])
    assert all(line.endswith("; and 1 more") and line.count("=") == 3 for line in lines)


def test_a_grids_folder_selects_its_finished_runs(tmp_path, caplog):
    assert runs_in([tmp_path]) == [tmp_path]
    statuses = {"a": "finished", "b": "failed", "c": "waiting"}
    runs = [{"run": name, "status": status} for name, status in statuses.items()]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs}))
    (tmp_path / "fused.trec").touch()  # a shell's `runs/*` names files too
    listed = [tmp_path, tmp_path / "fused.trec", tmp_path / "b", tmp_path / "a"]
    assert runs_in(listed) == [tmp_path / "a", tmp_path / "b"]
    assert caplog.messages == [f"{tmp_path}: 1 of 3 runs have finished; the others are skipped"]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs[1:]}))
    with pytest.raises(ValueError, match="no run of this grid has finished yet"):
        runs_in([tmp_path])
    with pytest.raises(FileNotFoundError, match="fused.trec is a file; pass a run directory"):
        runs_in(listed[1:2])
