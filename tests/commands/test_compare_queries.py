import pytest
from helpers.asked_set import make_asked_recipe
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands.evaluate import main
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json

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


@pytest.fixture
def run(small_recipe, tmp_path) -> RunDir:
    """BM25 ranks answers to two of the four test questions second, the trained row to one of them first."""
    recipe = make_asked_recipe(small_recipe, tmp_path, {"only": ONE_STEP}, {"measures": ["Success@2"]})
    rankings = {
        "runs/bm25.test.trec": "0 Q0 p1 1 2.0 t\n0 Q0 p4 2 1.0 t\n1 Q0 p1 1 2.0 t\n1 Q0 p3 2 1.0 t\n",
        "runs/only.test.trec": "0 Q0 p4 1 2.0 t\n0 Q0 p1 2 1.0 t\n",
    }
    made = make_finished_run(tmp_path / "run", recipe, {}, rankings)
    figures = {"measures": ["Success@2"], "rows": [{"row": "bm25"}, {"row": "only"}]}
    write_json(made.measures, {"recipe": "small", "config_hash": "v", **figures})
    return made


def test_rows_of_the_results_table(run, capsys):
    main(["--answers", str(run.folder), "--measures", "Success@1", "Success@2"])
    assert capsys.readouterr().out == (
        "| row  | split | questions | Success@1 | Success@2 |\n"
        "| ---- | ----- | --------: | --------: | --------: |\n"
        "| bm25 | test  |         4 |    0.0000 |    0.5000 |\n"
        "| only | test  |         4 |    0.2500 |    0.2500 |\n"
        "\n"
        "- Success@k: share of the questions with an answer in one of the first k passages\n"
    )


def test_any_ranking_of_unjudged_questions(run, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("which year\t['1985']\nwho\t['Apple']\n")
    ranking = tmp_path / "other.trec"
    ranking.write_text("0 Q0 p4 1 2.0 t\n0 Q0 p5 2 1.0 t\n1 Q0 p1 1 1.0 t\n")
    asked = ["--run", str(ranking), "--questions", str(tmp_path / "other.csv")]
    main(["--answers", str(run.folder), *asked, "--measures", "Success@1", "Success@2"])
    last = capsys.readouterr().out.splitlines()[2]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == [str(ranking), "2", "0.5000", "1.0000"]


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        (["--questions", "q.csv"], SystemExit, "requires --run"),
        (["--measures", "RR@10"], SystemExit, "--answers measures Success@k, not RR@10"),
        (["--split", "train"], ValueError, "run has no ranking of split 'train'"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, capsys, flags, error, words):
    with pytest.raises(error) as raised:
        main(["--answers", str(run.folder), *flags])
    message = capsys.readouterr().err if error is SystemExit else str(raised.value)
    assert words in message


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        main(["--answers", str(tmp_path / "absent")])
