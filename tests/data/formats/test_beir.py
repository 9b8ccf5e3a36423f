import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.beir import Beir

CORPUS = """\
{"_id": "007", "title": "Bond", "text": "A spy.", "metadata": {}}
{"_id": "7", "title": null, "text": "A number."}
{"_id": "d3", "title": "Only a title"}
"""
QUERIES = """\
{"_id": "q1", "text": "which  number?\\n", "answers": ["7", "seven  \\u00e9"]}
{"_id": "q2", "text": "which spy?"}
{"_id": "q3", "text": "judged, not relevant"}
{"_id": "q4", "text": "in another split"}
"""
TRAIN = "query-id\tcorpus-id\tscore\nq2\t007\t2\nq1\t7\t1\nq1\td3\t1\nq3\t7\t0\n"
DEV = "q4\td3\t1\n"
FILES = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/train.tsv": TRAIN, "qrels/dev.tsv": DEV}
SPLITS = {"train": "qrels/train.tsv", "dev": "qrels/dev.tsv"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "qrels").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_layout_is_read(folder):
    collection = Beir(folder=folder, splits=SPLITS).read()
    assert collection.documents.ids == ["007", "7", "d3"]
    texts = ["A spy.", "A number.", ""]
    assert collection.documents.columns == {"title": ["Bond", "", "Only a title"], "text": texts}
    train, dev = collection.split("train"), collection.split("dev")
    assert (train.queries.ids, dev.queries.ids) == (["q1", "q2"], ["q4"])
    assert train.queries[0]["text"] == "which number?"
    assert [read_answers(train.queries, row) for row in range(2)] == [["7", "seven  é"], []]
    assert list(dev.queries.columns) == ["text"]
    assert [train.known_positives("query").of(row).tolist() for row in range(2)] == [[1, 2], [0]]
    assert collection.skipped == {
        "train queries without positives": 1,
        "train judgments of queries without positives": 1,
    }


def sizes(collection) -> dict[str, tuple[int, int]]:
    """Queries and judgments of every split."""
    return {name: (len(split.queries), len(split.qrels.rows)) for name, split in collection.splits.items()}


def test_nfcorpus(shared_data):
    collection = Beir(folder=shared_data / "nfcorpus").read()
    assert len(collection.documents) == 3633
    assert sizes(collection) == {"train": (2590, 110575), "dev": (324, 11385), "test": (323, 12334)}
    assert (collection.documents.ids[:2], collection.documents.ids[-1]) == (["MED-10", "MED-14"], "MED-961")
    assert collection.documents[3632]["title"] == "Vitamin D(3) is more potent than vitamin D(2) in humans."
    assert collection.documents[0]["title"].startswith(
        "Statin Use and Breast Cancer Survival: A Nationwide Cohort"
    )
    assert collection.skipped == {}
