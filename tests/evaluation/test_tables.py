import json

import pytest

from pyserini_ance.evaluation.tables import read_results, table


def test_columns_align_and_are_markdown():
    rows = [
        {"ranking": "BM25", "nDCG@10": 0.41237, "queries": 730, "seconds": 3.14159},
        {"ranking": "ance|2", "nDCG@10": 1.0, "queries": 5, "seconds": 312.0},
        {"ranking": "untrained"},
    ]
    assert table(rows, ["ranking", "nDCG@10", "queries", "seconds"]) == (
        "| ranking   | nDCG@10 | queries | seconds |\n"
        "| --------- | ------: | ------: | ------: |\n"
        "| BM25      |  0.4124 |     730 |     3.1 |\n"
        "| ance\\|2   |  1.0000 |       5 |   312.0 |\n"
        "| untrained |       - |       - |       - |"
    )


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a finished run"):
        read_results(tmp_path)
    (tmp_path / "measures.json").write_text('{"recipe": "a", ')
    with pytest.raises(RuntimeError, match=f"{tmp_path}/measures.json was damaged"):
        read_results(tmp_path)


def test_commits_are_recorded_at_start_and_at_each_resume(tmp_path):
    (tmp_path / "measures.json").write_text(json.dumps({"rows": []}))
    assert read_results(tmp_path) == {"run": str(tmp_path), "rows": [], "commits": []}
    first, second = (
        {"commit": {"hash": digit * 40, "changed": changed}} for digit, changed in (("1", False), ("2", True))
    )
    (tmp_path / "environment.json").write_text(json.dumps(first))
    resumed = [
        {"event": "resume", "environment": made} for made in (first, second, {"commit": None}, {})
    ]  # the last of an older version
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in resumed))
    assert read_results(tmp_path)["commits"] == ["1111111", "2222222+"]
