import json

import pytest

from pyserini_ance.commands import compare


@pytest.fixture
def runs(tmp_path) -> list[str]:
    for name, recipe, value in [("1", "demo/ance", 0.5), ("2", "demo/ance", 0.6), ("3", "demo/rand", 0.4)]:
        rows = [{"row": "ance", "RR@10": value, "train seconds": 60, "refresh seconds": 3, "test seconds": 1}]
        measured = {"recipe": recipe, "config_hash": "abc", "measures": ["RR@10"], "rows": rows}
        (tmp_path / name).mkdir()
        (tmp_path / name / "measures.json").write_text(json.dumps(measured))
    return [str(tmp_path / name) for name in "123"]


def test_one_table_of_runs(runs, capsys):
    compare.main(runs)
    assert capsys.readouterr().out == (
        "| recipe    | runs | RR@10               | seconds |\n"
        "| --------- | ---: | ------------------- | ------: |\n"
        "| demo/ance |    2 | 0.550 (0.500-0.600) |      64 |\n"
        "| demo/rand |    1 | 0.400               |      64 |\n"
        "\n"
        "- seconds: steps, refreshes, dev and final evaluation of all stages\n"
        "- runs: more than one are the seeds of a row, as mean (lowest-highest)\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--forgetting", "--rows", "demo/ance"], "remove --rows"),
        (["--within", "0.01"], "--within is an option of --significance; remove --within"),
        (["--significance", "demo/ance", "--within", "0"], "--within 0 is not above 0: pass the largest"),
        (["--significance", "demo/ance", "--forgetting"], "pass one of --significance, --improvement-over"),
    ],
)
def test_options_of_another_table_are_refused(runs, capsys, flags, message):
    with pytest.raises(SystemExit, match="2"):
        compare.main([*runs, *flags])
    assert message in capsys.readouterr().err
