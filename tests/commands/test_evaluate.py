import json
import sys

import pytest

from pyserini_ance.commands import evaluate

RUN = "q1 Q0 d2 1 2.0 t\nq1 Q0 d1 2 1.0 t\nq9 Q0 d1 1 1.0 t\n"
QRELS = "q1 0 d1 1\nq2 0 d2 1\n"


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return f"--run {tmp_path}/run.txt --qrels {tmp_path}/qrels.txt --measures RR@10 R@100".split()


def test_totals(flags, capsys):
    evaluate.main(flags)
    assert capsys.readouterr().out == (
        "| run     |  RR@10 |  R@100 |\n"
        "| ------- | -----: | -----: |\n"
        "| run.txt | 0.2500 | 0.5000 |\n"
        "\n"
        "- 2 judged queries, 1 of them without any hit (they count as 0); 1 queries of the run are "
        "not judged and not counted\n"
    )


def test_each_query_is_in_json(flags, tmp_path):
    evaluate.main([*flags, "--output", str(tmp_path / "new" / "figures.json")])
    by_query = {"q1": {"RR@10": 0.5, "R@100": 1.0}, "q2": {"RR@10": 0.0, "R@100": 0.0}}
    run = {"run": flags[1], "measures": {"RR@10": 0.25, "R@100": 0.5}, "per_query": by_query}
    written = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert written == {"qrels": flags[3], "queries": 2, "runs": [run]}


@pytest.mark.parametrize("output", ["/dev/stdout", "-"])
def test_measures_go_to_standard_output_and_the_table_to_standard_error(flags, capfd, monkeypatch, output):
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    evaluate.main([*flags, "--output", output])
    said = capfd.readouterr()
    assert json.loads(said.out)["queries"] == 2 and "| 0.2500 |" in said.err


def test_several_runs_are_rows_with_holes_and_overlap(flags, capsys, tmp_path):
    """`other` has q1's two documents and a third, the only judged one of its first two."""
    other = tmp_path / "other.txt"
    other.write_text("q1 Q0 d3 1 3.0 t\nq1 Q0 d1 2 2.0 t\nq1 Q0 d2 3 1.0 t\nq2 Q0 d2 1 1.0 t\n")
    options = ["--measures", "Hole@1", "Hole@2", "Overlap@2", "--overlap", str(other)]
    options += ["--output", str(tmp_path / "figures.json")]
    evaluate.main(["--run", flags[1], str(other), *flags[2:], *options])
    assert capsys.readouterr().out == (
        "| run       |  RR@10 |  R@100 | Hole@1 | Hole@2 | Overlap@2 |\n"
        "| --------- | -----: | -----: | -----: | -----: | --------: |\n"
        "| run.txt   | 0.2500 | 0.5000 | 1.0000 | 0.5000 |    0.5000 |\n"
        "| other.txt | 0.7500 | 1.0000 | 0.5000 | 0.2500 |    1.0000 |\n"
        "\n"
        "- Hole@k: share of the first k documents that are not judged\n"
        "- Overlap@k: share of the first k documents that the other run has in its first k\n"
        "- run.txt: 2 judged queries, 1 of them without any hit (they count as 0); 1 queries of the "
        "run are not judged and not counted\n"
        "- other.txt: 2 judged queries, 0 of them without any hit (they count as 0)\n"
    )
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["overlap"] == str(other)
    assert [run["measures"]["Hole@2"] for run in written["runs"]] == [0.5, 0.25]


def test_runs_of_one_name_go_by_their_paths_and_queries_without_hits_have_no_holes(flags, capsys, tmp_path):
    (tmp_path / "b").mkdir()
    again = tmp_path / "b" / "run.txt"
    again.write_text(RUN)
    options = ["--measures", "Hole@1", "--output", str(tmp_path / "figures.json")]
    evaluate.main(["--run", flags[1], str(again), *flags[2:4], *options])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [str(again), "1.0000"]
    *_, written = json.loads((tmp_path / "figures.json").read_text())["runs"]
    first, second = written["per_query"].values()
    assert first["Hole@1"] == 1.0 and "Hole@1" not in second


def test_options_that_lack_another_are_refused(flags, capsys):
    refused = {
        "pass --run with --qrels": flags[:2],
        "by --qrels; remove --questions": [*flags, "--questions", "q.csv"],
        "by --qrels; remove --split": [*flags, "--split", "dev"],
        "--answers measures Success@k; remove --qrels": [*flags, "--answers", "run"],
        "or --answers; a run directory has": [],
    }
    for message, arguments in refused.items():
        with pytest.raises(SystemExit):
            evaluate.main(arguments)
        assert message in capsys.readouterr().err


def test_no_input_is_replaced(flags, tmp_path):
    qrels = tmp_path / "qrels.json"
    qrels.write_text(QRELS)
    with pytest.raises(FileExistsError, match="qrels.json is an input, which would be replaced"):
        evaluate.main([*flags[:3], str(qrels), "--output", str(qrels)])
    assert qrels.read_text() == QRELS
