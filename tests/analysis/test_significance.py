"""Rows of a table against one of them, from rankings whose differences are counted by hand."""

import json

import pytest

from pyserini_ance.analysis.run_comparison import significance
from pyserini_ance.commands import compare
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.rundir import RunDir

STAGE = {
    "steps": 1,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "random"}]}},
}
QUERIES = "abcd"  # the relevant document of each is `x`


def hits(query: str, place: int) -> list[str]:
    """Four, the relevant one at rank `place`."""
    return [
        f"{query} Q0 {'x' if rank == place else f'y{rank}'} {rank} {9 - rank} t\n" for rank in (1, 2, 3, 4)
    ]


@pytest.fixture
def make_run(small_recipe, tmp_path):
    """A finished run whose last row ranks `x` at the given place for each query, and BM25 at the second."""

    def make(name: str, recipe: str, ranks: list[int]):
        run = RunDir(tmp_path / name)
        run.create(dump(small_recipe({"only": STAGE})))
        run.run_files.mkdir()
        for row, places in (("only", ranks), ("bm25", [2] * len(QUERIES))):
            run.ranking(row, "test").write_text(
                "".join(
                    line for query, place in zip(QUERIES, places, strict=True) for line in hits(query, place)
                )
            )
        run.qrels("test").write_text("".join(f"{q} 0 x 1\n" for q in QUERIES))
        rows = [
            {"row": "bm25", "RR@10": 0.5},
            {"row": "only", "RR@10": sum(1 / rank for rank in ranks) / 4, "train seconds": 1.0},
        ]
        run.measures.write_text(
            json.dumps({"recipe": recipe, "config_hash": "v", "measures": ["RR@10"], "rows": rows})
        )
        return run.folder

    return make


def differ_from(runs: list, baseline: str, test: str = "t") -> dict:
    return significance(runs, [read_results(run) for run in runs], baseline, test)


def test_seeds_are_one_system_and_queries_are_pairs(make_run):
    runs = [
        make_run("1", "good", [1, 1, 1, 2]),
        make_run("2", "good", [1, 1, 2, 4]),
        make_run("3", "bad", [4, 4, 4, 3]),
    ]
    found = differ_from(runs, "bm25")
    assert list(found) == ["bad", "good"]
    good = found["good"]["RR@10"]
    assert good.mean == pytest.approx((0.5 + 0.5 + 0.25 - 0.125) / 4) and (
        good.wins,
        good.ties,
        good.losses,
    ) == (3, 0, 1)
    bad = found["bad"]["RR@10"]
    assert bad.mean == pytest.approx((3 * -0.25 + 1 / 3 - 0.5) / 4) and bad.p < 0.01
    assert differ_from(runs, "bm25", "permutation")["bad"]["RR@10"].p == pytest.approx(
        2 * 2 / 16
    )  # of two signs each, and two tests


def test_p_values_are_corrected_for_the_rows_that_are_shown(make_run, capsys):
    runs = [make_run("1", "good", [1, 1, 1, 2]), make_run("2", "bad", [4, 4, 4, 3])]
    p = 2 / 16  # every query differs in one direction: two of the sixteen changes of sign are as extreme
    assert differ_from(runs, "bm25", "permutation")["bad"]["RR@10"].p == pytest.approx(2 * p)
    arguments = [*map(str, runs), "--significance", "bm25", "--test", "permutation", "--rows"]
    compare.main([*arguments, "bad"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bm25", "bad"]
    assert f"p {p:.3f}" in lines[3]
    with pytest.raises(ValueError, match=r"'god' is not a row of the table \(did you mean 'good'\?\)"):
        compare.main([*arguments, "god"])


def test_a_split_judged_by_answers_is_skipped(make_run, capsys, caplog):
    folder = make_run("1", "good", [1, 1, 1, 2])
    run, results = RunDir(folder), read_results(folder)
    run.recipe.write_text(run.recipe.read_text().replace("  split: test\n", "  split: [test, asked]\n"))
    rows = [{**row, "test RR@10": row["RR@10"], "asked RR@10": 0.5} for row in results["rows"]]
    run.measures.write_text(json.dumps({**results, "measures": ["test RR@10", "asked RR@10"], "rows": rows}))
    assert {name: list(found) for name, found in differ_from([folder], "bm25").items()} == {
        "good": ["test RR@10"]
    }
    compare.main([str(folder), "--significance", "bm25"])
    assert [cell.strip() for cell in capsys.readouterr().out.split("\n\n")[0].splitlines()[-1].split("|")][
        -3:-1
    ] == ["+0.375, p 0.058 (3/1/0)", "-"]
    message = (
        f"{folder} has no judgments of asked, whose passages are judged by the answers they contain: "
        "--significance skips them"
    )
    assert set(caplog.messages) == {message}


def test_runs_whose_splits_are_all_judged_by_answers_are_refused(make_run):
    folder = make_run("1", "good", [1, 1, 1, 2])
    RunDir(folder).qrels("test").unlink()
    with pytest.raises(
        ValueError,
        match=f"{folder} has no judgments of test, .*: --significance needs judged queries; remove it",
    ):
        differ_from([folder], "bm25")


def test_the_table_has_a_column_more_for_each_measure(make_run, capsys):
    compare.main(
        [str(make_run("1", "good", [1, 1, 1, 2])), "--significance", "bm25", "--test", "permutation"]
    )
    header, _, bm25, good, _, *lines = capsys.readouterr().out.splitlines()
    assert header.endswith("| RR@10 against bm25      |") and bm25.endswith("| -                       |")
    assert good.endswith("| +0.375, p 0.250 (3/1/0) |")
    assert lines[-1] == (
        "- against bm25: mean difference over the test queries, p value of a paired permutation test with "
        "Holm's correction for the number of rows, and queries (won/tied/lost) against bm25"
    )


def test_a_baseline_that_is_not_a_row_is_rejected(make_run):
    with pytest.raises(
        ValueError,
        match=r"--significance 'god' is not a row of the table \(did you mean 'good'\?\); rows: bm25, good",
    ):
        differ_from([make_run("1", "good", [1, 1, 1, 1])], "god")


def test_runs_with_other_judgments_are_refused(make_run):
    """As many queries, so that pairing them would go unnoticed."""
    runs = [make_run("1", "good", [1, 1, 1, 2]), make_run("2", "other", [1, 1, 2, 4])]
    path = RunDir(runs[1]).qrels("test")
    path.write_text(path.read_text().replace("d 0 x", "e 0 x"))
    with pytest.raises(
        ValueError,
        match=f"{runs[1]} was evaluated on other queries or judgments than {runs[0]}: "
        "compare runs on the same data",
    ):
        differ_from(runs, "bm25")
