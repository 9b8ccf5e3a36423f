import pytest
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands.evaluate import main

QRELS = "test-0 0 red-horse 1\ntest-1 0 green-horse 1\n"


@pytest.fixture
def make_run(small_recipe, tmp_path):
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path / "cache"))

    def make(name: str, first: dict[str, str], qrels: str = QRELS) -> str:
        """A run with `first` at rank 1 of each test query, and a row bm25 without the right document."""
        final = "".join(f"{query} Q0 {document} 1 1.0 t\n" for query, document in first.items())
        rankings = {"run.test.trec": final, "runs/bm25.test.trec": "test-0 Q0 blue-river 1 1.0 t\n"}
        run = make_finished_run(tmp_path / name, recipe, {"test": qrels}, rankings)
        return str(run.folder)

    return make


def test_two_runs(make_run, capsys):
    good = make_run("good", {"test-0": "pink-river", "test-1": "green-horse"})
    bad = make_run("bad", {"test-0": "pink-river"})
    main(["--compare-queries", good, bad, "--measures", "RR@5"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"# RR@5: {good} against {bad}"
    assert lines[2].startswith("1 wins, 1 ties, 0 losses of 2 queries; mean difference +0.500")
    assert "### test-1: query of green horse" in lines
    cells = [cell.strip() for cell in lines[-2].split("|")[1:-1]]
    assert cells == [good, "1.0000", "green-horse", "1", "the horse is green very very very"]


def test_a_row_of_a_run_and_an_unfinished_run(make_run, tmp_path, capsys):
    run = make_run("good", {"test-1": "green-horse"})
    main(["--compare-queries", run, f"{run}:bm25"])
    assert "1 wins, 1 ties, 0 losses" in capsys.readouterr().out
    for file in ("run.test.trec", "runs/bm25.test.trec"):
        (tmp_path / "good" / file).unlink()
    with pytest.raises(ValueError, match="final evaluation has not finished: .* train .*--resume$"):
        main(["--compare-queries", run, f"{run}:bm25"])


@pytest.mark.parametrize(
    ("rankings", "error", "message"),
    [
        (["good", "good:bm52"], ValueError, r"no ranking of split 'test' .*; rows that have one: bm25"),
        (["good", "good:bm25", "--split", "dev"], ValueError, r"final_evaluation.split=\[test,dev\]"),
        (["goood", "good"], FileNotFoundError, r"no such folder \(did you mean 'good'\?\)"),
        (["good", "other"], ValueError, "other was evaluated on other queries or judgments of split 'test'"),
        (["good", "good"], SystemExit, "2"),
    ],
)
def test_rankings_that_cannot_be_compared(make_run, tmp_path, monkeypatch, rankings, error, message):
    make_run("good", {"test-1": "green-horse"})
    make_run("other", {"test-1": "green-horse"}, QRELS.replace(" 1\n", " 2\n"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        main(["--compare-queries", *rankings])
