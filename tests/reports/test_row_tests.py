import json

import numpy as np
import pytest
from helpers.finished_run import ranked

from pyserini_ance.commands import compare as command
from pyserini_ance.evaluation.metrics import t_test
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.reports.row_tests import significance
from pyserini_ance.runs.rundir import RunDir


@pytest.fixture
def ranked_run(base, tmp_path):
    """A finished run that ranks the relevant document at the given place for each of four queries."""
    return lambda name, recipe, of: ranked(tmp_path / name, base, recipe, dict(zip("abcd", of, strict=True)))


def differ_from(runs: list, baseline: str) -> dict[str, dict[str, str]]:
    """The cells of the table of tests by row, as `MEAN, p P (WON/TIED/LOST)`."""
    (rows, columns), _ = significance([read_results(run) for run in runs], baseline)
    return {row["recipe"]: {column: row.get(column) for column in columns[1:]} for row in rows}


def test_seeds_are_one_system_and_queries_are_pairs(ranked_run):
    ranks = [("1", "good", [1, 1, 1, 2]), ("2", "good", [1, 1, 2, 4]), ("3", "bad", [4, 4, 4, 3])]
    found = differ_from([ranked_run(*of) for of in ranks], "bm25")
    # good: (0.5 + 0.5 + 0.25 - 0.125) / 4; bad: (3 x -0.25 + 1/3 - 0.5) / 4
    assert list(found) == ["bad", "good"]
    assert found["good"]["RR@10 against bm25"].startswith("+0.281, p 0.")
    assert found["good"]["RR@10 against bm25"].endswith(" (3/0/1)")
    assert found["bad"]["RR@10 against bm25"].startswith("-0.229, p 0.00")


def test_p_values_are_corrected_for_the_rows_that_are_shown(ranked_run, capsys):
    runs = [ranked_run("1", "good", [1, 1, 1, 2]), ranked_run("2", "bad", [4, 4, 4, 3])]
    p = t_test(np.array([-1 / 4, -1 / 4, -1 / 4, -1 / 6]))
    arguments = [*map(str, runs), "--significance", "bm25", "--rows"]
    command.main([*arguments, "bad"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bm25", "bad"]
    assert f"p {p:.3f}" in lines[3]
    assert f"p {2 * p:.3f}" in differ_from(runs, "bm25")["bad"]["RR@10 against bm25"]
    with pytest.raises(ValueError, match=r"'god' is not a row of the table \(did you mean 'good'\?\)"):
        command.main([*arguments, "god"])


def test_rows_that_are_as_good_within_a_margin(ranked_run, capsys):
    """`same` ranks as the baseline does, `bad` is 0.229 below; Holm doubles the smaller p."""
    runs = [ranked_run("1", "same", [2, 2, 2, 2]), ranked_run("2", "bad", [4, 4, 4, 3])]
    command.main([*map(str, runs), "--significance", "bm25", "--within", "0.3"])
    out = capsys.readouterr().out
    rows = [line.split("|") for line in out.splitlines() if line.startswith("|")]
    found = {cells[1].strip(): cells[-2].strip() for cells in rows}
    one_sided = t_test(np.array([-1 / 4, -1 / 4, -1 / 4, -1 / 6]) + 0.3) / 2
    assert found["bad"] == f"-0.229, p {2 * one_sided:.3f} (0/0/4)"
    assert found["same"].startswith(f"+0.000, p {2**-4:.3f}")
    assert "p value of two one-sided paired t tests for a difference within 0.3 (Holm over" in out


def test_a_split_judged_by_answers_is_skipped(ranked_run, capsys, caplog):
    folder = ranked_run("1", "good", [1, 1, 1, 2])
    run, results = RunDir(folder), read_results(folder)
    run.recipe.write_text(run.recipe.read_text().replace("  split: test\n", "  split: [test, asked]\n"))
    rows = [{**row, "test RR@10": row["RR@10"], "asked RR@10": 0.5} for row in results["rows"]]
    run.measures.write_text(json.dumps({**results, "measures": ["test RR@10", "asked RR@10"], "rows": rows}))
    command.main([str(folder), "--significance", "bm25"])
    last = capsys.readouterr().out.split("\n\n")[0].splitlines()[-1]
    assert [cell.strip() for cell in last.split("|")][-3:-1] == ["+0.375, p 0.058 (3/1/0)", "-"]
    assert set(caplog.messages) == {f"{folder} has no judgments of asked: --significance skips it"}


def test_what_cannot_be_tested_is_refused(ranked_run):
    runs = [ranked_run("1", "good", [1, 1, 1, 2]), ranked_run("2", "other", [1, 1, 2, 4])]
    with pytest.raises(ValueError, match=r"'god' is not a row .* \(did you mean 'good'\?\); rows: bm25"):
        differ_from(runs, "god")
    path = RunDir(runs[1]).qrels("test")
    path.write_text(path.read_text().replace("d 0 x", "e 0 x"))  # as many queries
    with pytest.raises(ValueError, match=f"{runs[1]} was evaluated on other queries .* than {runs[0]}"):
        differ_from(runs, "bm25")
    path.unlink()
    with pytest.raises(ValueError, match=f"{runs[1]} has no judgments of test, .* needs judged queries"):
        differ_from(runs[1:], "bm25")
