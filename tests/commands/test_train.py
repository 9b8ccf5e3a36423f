import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.commands import train
from pyserini_ance.recipe.load import dump

STAGE = {**ONE_STEP, "steps": 6}


@pytest.fixture
def recipe(small_recipe, tmp_path, monkeypatch) -> str:
    """A recipe file, and an empty working directory beside it."""
    (tmp_path / "small.yaml").write_text(dump(small_recipe({"a": STAGE})))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return str(tmp_path / "small.yaml")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dry-steps", "0"], "greater than or equal to 1"),
        (["--plan", "--resume"], "train no run; remove --resume"),
        (["--print", "--dry-steps", "2"], "measures one recipe; remove --dry-steps"),
        (["--output", "../small.yaml"], "'../small.yaml' is a file"),
        (["--jobs", "2"], "are for the runs of a --grid; remove --jobs"),
    ],
)
def test_flags_that_make_no_sense(recipe, capsys, flags, message):
    with pytest.raises(SystemExit, match="2"):
        train.main([recipe, *flags])
    assert message in capsys.readouterr().err


def test_print_shows_the_recipe_and_the_plan_and_trains_nothing(recipe, capsys, tmp_path):
    train.main([recipe, "stages.a.steps=9", "--print"])
    shown = capsys.readouterr().out
    assert {"steps: 9", "batch_queries: 1"} <= {line.strip() for line in shown.splitlines()}
    assert "| a " in shown and "documents: 30 of " in shown
    assert list((tmp_path / "here").iterdir()) == []


def test_the_recipe_of_a_run_in_a_grid_is_a_file(recipe, capsys, tmp_path):
    (tmp_path / "here" / "seed=1").mkdir()
    (copy := tmp_path / "here" / "seed=1" / "recipe.yaml").write_text((tmp_path / "small.yaml").read_text())
    train.main([str(copy), "stages.a.steps=9", "--print"])
    assert "    steps: 9" in capsys.readouterr().out.splitlines()


def test_print_says_what_must_be_trained_before_where_there_is_no_data_yet(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="collection.tsv"):
        train.main(["msmarco-passage/ance", "--print"])
    shown = capsys.readouterr().out
    assert "init_from: missing: runs/msmarco-passage-bm25 holds no run; make it with: pyserini" in shown


def test_dry_steps_measure_and_leave_nothing(recipe, capsys, tmp_path):
    """The command is one that trains, with an option at its end."""
    train.main([recipe, "--output", "run", "--overwrite", "--dry-steps", "2"])
    assert "measured over 2 steps and the first mining of each stage" in capsys.readouterr().out
    assert list((tmp_path / "here").iterdir()) == []


def test_two_processes_measure_together(run_processes, recipe):
    train_two = "helpers/process_functions.py:train_together"
    first, second = run_processes.ends(2, train_two, [recipe, "--dry-steps", "2"], join=False)
    assert (first["code"], second["code"]) == (0, 0), first["output"] + second["output"]
    assert "measured over 2 steps" in first["output"] and second["output"] == ""


def test_bad_data_leaves_no_run_directory(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match="data.corpus"):
        train.main([recipe, f"data.corpus={tmp_path}/nowhere.jsonl"])
    assert list((tmp_path / "here").iterdir()) == []
