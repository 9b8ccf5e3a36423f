import json

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.commands.evaluate import main
from pyserini_ance.data.formats.dpr import Dpr
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json

PASSAGES = "id\ttext\ttitle\n1\tAaron is a prophet.\tA\n2\tThe year 1984.\tB\n3\tIt was 1985.\tC\n"


@pytest.fixture
def run(small_recipe, tmp_path) -> RunDir:
    """The dev question is relevant to passage 2; bm25 ranks it second, the trained row first."""
    (tmp_path / "psgs.tsv").write_text(PASSAGES)
    record = {
        "question": "which year",
        "answers": ["1984"],
        "positive_ctxs": [{"passage_id": "2"}],
        "hard_negative_ctxs": [],
    }
    (tmp_path / "dev.json").write_text(json.dumps([record]))
    splits = {name: {"questions": str(tmp_path / "dev.json")} for name in ("train", "dev")}
    data = {"kind": "dpr", "passages": str(tmp_path / "psgs.tsv"), "splits": splits}
    recipe = small_recipe(
        {"only": ONE_STEP},
        data=data,
        final_evaluation={"split": "dev", "measures": ["Success@2"]},
        cache=str(tmp_path / "cache"),
    )
    made = RunDir(tmp_path / "run")
    made.create(dump(recipe))
    write_json(made.environment, {"data": {"digest": Dpr.model_validate(data).read().digest}})
    made.run_files.mkdir()
    made.ranking("bm25", "dev").write_text("0 Q0 3 1 2.0 t\n0 Q0 2 2 1.0 t\n")
    made.ranking("only", "dev").write_text("0 Q0 2 1 2.0 t\n0 Q0 3 2 1.0 t\n")
    write_json(
        made.measures,
        {
            "recipe": "small",
            "config_hash": "v",
            "measures": ["Success@2"],
            "rows": [{"row": "bm25"}, {"row": "only"}],
        },
    )
    return made


def test_rows_of_the_results_table(run, capsys):
    main(["--answers", str(run.folder), "--measures", "Success@1", "Success@2"])
    assert capsys.readouterr().out == (
        "| row  | split | questions | Success@1 | Success@2 |\n"
        "| ---- | ----- | --------: | --------: | --------: |\n"
        "| bm25 | dev   |         1 |    0.0000 |    1.0000 |\n"
        "| only | dev   |         1 |    1.0000 |    1.0000 |\n"
        "\n"
        "- Success@k: share of the questions with an answer in one of the first k passages\n"
    )


def test_any_ranking_of_unjudged_questions(run, tmp_path, capsys):
    (tmp_path / "test.csv").write_text("which year\t['1985']\nwho\t['Aaron']\n")
    ranking = tmp_path / "test.trec"
    ranking.write_text("0 Q0 2 1 2.0 t\n0 Q0 3 2 1.0 t\n1 Q0 1 1 1.0 t\n")
    asked = ["--run", str(ranking), "--questions", str(tmp_path / "test.csv")]
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
