from pyserini_ance.evaluation.tables import table


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
