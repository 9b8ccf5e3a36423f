import pytest
from helpers.asked_set import make_asked_recipe
from helpers.small_set import ONE_STEP, make_finished_run

from pyserini_ance.commands.evaluate import main
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json


@pytest.fixture
def run(small_recipe, tmp_path) -> RunDir:
    """BM25 ranks answers to two of the four test questions second, the trained row to one of them first."""
    recipe = make_asked_recipe(small_recipe, tmp_path, {"only": ONE_STEP}, {"measures": ["Success@2"]})
    rankings = {"runs/only.test.trec": "0 Q0 p4 1 2.0 t\n0 Q0 p1 2 1.0 t\n"}
    ranked = ("0 Q0 p1 1 2.0", "0 Q0 p4 2 1.0", "1 Q0 p1 1 2.0", "1 Q0 p3 2 1.0")
    rankings["runs/bm25.test.trec"] = "".join(f"{line} t\n" for line in ranked)
    made = make_finished_run(tmp_path / "run", recipe, {}, rankings)
    figures = {"measures": ["Success@2"], "rows": [{"row": "bm25"}, {"row": "only"}]}
    write_json(made.measures, {"recipe": "small", "config_hash": "v", **figures})
    return made


def test_rows_of_the_results_table(run, capsys):
    main(["--answers", str(run.folder), "--measures", "Success@1", "Success@2", "Success@3"])  # of two hits
    assert capsys.readouterr().out == (
        "| row  | split | questions | Success@1 | Success@2 | Success@3 |\n"
        "| ---- | ----- | --------: | --------: | --------: | --------: |\n"
        "| bm25 | test  |         4 |    0.0000 |    0.5000 |    0.5000 |\n"
        "| only | test  |         4 |    0.2500 |    0.2500 |    0.2500 |\n"
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


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        main(["--answers", str(tmp_path / "absent")])


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        (["--questions", "q.csv"], SystemExit, "requires --run"),
        (["--measures", "RR@10"], SystemExit, "--answers measures Success@k, not RR@10"),
        (["--measures", "Success@101"], ValueError, "the run has at most 2 hits a question, so Success@101"),
        (["--split", "train"], ValueError, "run has no ranking of split 'train'"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, capsys, flags, error, words):
    with pytest.raises(error) as raised:
        main(["--answers", str(run.folder), *flags])
    assert words in (capsys.readouterr().err if error is SystemExit else str(raised.value))
