import json

import pytest

from pyserini_ance import evaluate

RUN = "q1 Q0 d2 1 2.0 t\nq1 Q0 d1 2 1.0 t\nq9 Q0 d1 1 1.0 t\n"
QRELS = "q1 0 d1 1\nq2 0 d2 1\n"


@pytest.fixture
def flags(tmp_path):
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return ["--run", str(tmp_path / "run.txt"), "--qrels", str(tmp_path / "qrels.txt"), "--measures", "RR@10", "R@100"]


def test_totals(flags, capsys):
    evaluate.main(flags)
    assert capsys.readouterr().out == (
        "| query |  RR@10 |  R@100 |\n"
        "| ----- | -----: | -----: |\n"
        "| all   | 0.2500 | 0.5000 |\n"
        "2 judged queries, 1 of them without any hit (they count as 0); 1 queries of the run are not judged and left out\n"
    )


def test_each_query_and_json(flags, capsys, tmp_path):
    evaluate.main([*flags, "--per-query", "--output", str(tmp_path / "figures.json")])
    assert "| q1    | 0.5000 | 1.0000 |\n| q2    | 0.0000 | 0.0000 |\n| all   |" in capsys.readouterr().out
    assert json.loads((tmp_path / "figures.json").read_text()) == {
        "run": flags[1],
        "qrels": flags[3],
        "queries": 2,
        "measures": {"RR@10": 0.25, "R@100": 0.5},
        "per_query": {"q1": {"RR@10": 0.5, "R@100": 1.0}, "q2": {"RR@10": 0.0, "R@100": 0.0}},
    }


def test_measures_are_checked_before_files_are_read(flags):
    with pytest.raises(ValueError, match="unknown measure 'rr_10'"):
        evaluate.main(["--run", "absent", "--qrels", "absent", "--measures", "rr_10"])
