"""A dev split that is cut from the training queries."""

import hashlib
import json

import pytest

from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.topics import PyseriniJsonl

QUERIES = 12


@pytest.fixture
def folder(tmp_path):
    """BEIR's layout without a dev split; query q11 has no relevant document."""
    (tmp_path / "qrels").mkdir()
    lines = {
        "corpus.jsonl": [{"_id": f"d{n}", "title": "", "text": f"document {n}"} for n in range(QUERIES)],
        "queries.jsonl": [{"_id": f"q{n}", "text": f"query {n}"} for n in range(QUERIES)],
    }
    for name, records in lines.items():
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = [f"q{n}\td{n}\t{int(n < 11)}\nq{n}\td{(n + 1) % QUERIES}\t0\n" for n in range(QUERIES)]
    (tmp_path / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    (tmp_path / "qrels/test.tsv").write_text("q0\td0\t1\n")
    return tmp_path


@pytest.mark.parametrize("count", [1, 4, 10])
def test_the_queries_are_those_of_the_slow_reference(folder, count):
    collection = Beir(folder=folder, hold_out=count).read()
    assert list(collection.splits) == ["train", "dev", "test"]
    dev, train = collection.split("dev"), collection.split("train")
    hashes = {f"q{n}": hashlib.sha256(f"0 d{n}".encode()).hexdigest() for n in range(11)}
    assert set(dev.queries.ids) == set(sorted(hashes, key=lambda id: hashes[id])[:count])
    assert sorted([*dev.queries.ids, *train.queries.ids]) == sorted(f"q{n}" for n in range(QUERIES))
    for split in (dev, train):
        for row, id in enumerate(split.queries.ids):
            number = int(id[1:])
            assert split.queries[row] == {"text": f"query {number}"}
            assert sorted(split.qrels.judged(row)[0].tolist()) == sorted([number, (number + 1) % QUERIES])
            assert split.qrels.relevant(row).tolist() == [number] * (number < 11)


@pytest.mark.parametrize(("count", "documents"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_no_document_is_relevant_to_queries_of_both_splits(folder, count, documents):
    """Each of three has two queries; whole groups are taken, in the order of hashes."""
    order = sorted(["d0", "d3", "d7"], key=lambda id: hashlib.sha256(f"0 {id}".encode()).digest())
    rows = [f"q{n}\t{order[n // 2 % 3]}\t1\n" for n in range(6)] + ["q6\td11\t0\n"]
    (folder / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    collection = Beir(folder=folder, hold_out=count).read()
    ids = collection.documents.ids
    asked = {
        name: {ids[row] for query in range(len(split.queries)) for row in split.qrels.relevant(query)}
        for name, split in collection.splits.items()
        if name != "test"
    }
    assert asked["dev"] == {*order[:documents]} and asked["train"] == {*order[documents:]}
    with pytest.raises(ValueError, match="each document or text of split 'train' has 2 queries or more"):
        Beir(folder=folder, hold_out=1).read()


def test_queries_of_one_text_stay_together_with_those_of_their_documents(folder):
    """q0 to q3: by the text of q1 and q2, and by two documents; the others are alone."""
    texts = ["a", "Who  was it", "who was IT", *map(str, range(3, QUERIES))]
    lines = [json.dumps({"_id": f"q{n}", "text": text}) + "\n" for n, text in enumerate(texts)]
    (folder / "queries.jsonl").write_text("".join(lines))
    documents = ["d0", "d0", "d1", "d1", *(f"d{n}" for n in range(4, QUERIES))]
    rows = [f"q{n}\t{document}\t1\n" for n, document in enumerate(documents)]
    (folder / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    together = {f"q{n}" for n in range(4)}
    for count in range(1, QUERIES):
        dev = Beir(folder=folder, hold_out=count).read().split("dev")
        assert len(together.intersection(dev.queries.ids)) in (0, 4) and len(dev.queries) <= count
    assert together < set(dev.queries.ids)


@pytest.mark.parametrize(
    ("wanted", "splits"), [(["train"], ["train", "dev"]), (["dev"], ["train", "dev"]), (["test"], ["test"])]
)
def test_the_cut_is_the_same_whichever_splits_are_wanted_and_no_dev_is_read(folder, wanted, splits):
    data = Beir(folder=folder, hold_out=4)
    (folder / "qrels/dev.tsv").write_text("not qrels at all\n")
    assert "dev.tsv" not in {path.name for path in data.of_splits(["train", "dev", "test"]).input_files()}
    whole, part = data.read(), data.of_splits(wanted).read()
    assert list(part.splits) == splits
    for name in splits:
        assert part.split(name).queries.digest == whole.split(name).queries.digest
        assert part.split(name).qrels.digest == whole.split(name).qrels.digest


def test_published_counts_do_not_hold_for_what_is_cut(folder):
    counts = {f"{name} queries": 12 for name in ("train", "dev", "test")}
    both = Beir(folder=folder, official=counts, hold_out=2)
    assert [both.published("queries", name) for name in ("train", "dev", "test")] == [None, None, 12]


@pytest.mark.parametrize(("name", "splits"), [("train", "train"), ("test", "test")])
def test_a_split_that_does_not_exist_or_has_no_judgments(folder, name, splits):
    topics = folder / "topics.jsonl"
    topics.write_text('{"id": "1", "title": "who", "answers": ["x"]}\n')
    data = PyseriniJsonl(corpus=folder / "corpus.jsonl", splits={name: {"topics": topics}}, hold_out=1)
    with pytest.raises(ValueError, match=f"hold_out is 1, but split 'train' has 0 .*; splits: {splits};"):
        data.read()
