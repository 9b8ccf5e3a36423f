from pathlib import Path
from typing import Annotated

import pytest
from typer import Argument, Option

from pyserini_ance.commands import parsing
from pyserini_ance.runs.rundir import RunDir

SEEN = {}


@parsing.command("pyserini-ance test-parsing a --name b c", "Details:\n  kept   as they are")
def main(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    names: Annotated[list[str] | None, Option("--name")] = None,
    top_k: Annotated[int, Option(min=1)] = 3,
) -> int:
    """Try the parser."""
    SEEN.update(runs=runs, names=names, top_k=top_k)
    return 4


def test_a_list_option_takes_several_values_and_the_code_is_returned():
    assert main(["a", "b", "--name", "x", "y", "--top-k", "5", "--name=z"]) == 4
    assert SEEN == {"runs": [Path("a"), Path("b")], "names": ["x", "y", "z"], "top_k": 5}


def test_help_has_details_and_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "Try the parser." in shown and "Details:\n    kept   as they are\n" in shown
    assert "Example:\n    pyserini-ance test-parsing a --name b c\n" in shown


def test_options_without_effect_are_named_with_the_reason():
    parsing.refuse_options("no reason", top_k=None, split=None, per_query=False, holes=[])
    with pytest.raises(Exception, match="no search; remove --top-k, --split"):
        parsing.refuse_options("no search", top_k=4, split="dev")


def test_a_file_of_a_run_directory_is_no_output(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create("")
    own = ["measures.json", "run.test.trec", "qrels.dev.txt", "runs/x.trec", "model/config.json"]
    for name in own:
        with pytest.raises(FileExistsError, match=f"{name} is a name for the own files of the run directory"):
            parsing.check_output(run.folder / name)
    for name in ("fused.trec", "analysis/x.json", "report.html"):
        assert parsing.check_output(run.folder / name)
