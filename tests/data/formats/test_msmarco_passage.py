import pytest

from pyserini_ance.data.formats.msmarco_passage import MsmarcoPassage

FILES = {
    "collection.tsv": "0\tThe presence of communication.\n007\tA spy.\n7\tA number.\n",
    "queries.tsv": "1\twhich spy\n2\twhich number\n3\tnobody judged\n",
    "qrels.tsv": "2\t0\t7\t1\n1 0 007 1\n",
}


@pytest.fixture
def recipe(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    split = {"queries": tmp_path / "queries.tsv", "qrels": tmp_path / "qrels.tsv"}
    return {"collection": tmp_path / "collection.tsv", "splits": {"train": split}}


def test_the_tables_are_read(recipe):
    collection = MsmarcoPassage(**recipe).read()
    train = collection.split("train")
    assert collection.documents.ids == ["0", "007", "7"]
    assert collection.documents[1] == {"text": "A spy."}
    assert train.queries.ids == ["1", "2"]
    assert [train.known_positives("query").of(row).tolist() for row in range(2)] == [[1], [2]]
    assert collection.skipped == {"train queries without positives": 1}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("collection.tsv", "8\ttwo\ttexts", "line 4: 3 columns"),
        ("collection.tsv", "8\t ", "line 4: document '8' is empty; .* data.empty_documents=skip"),
        ("collection.tsv", "7\tagain", "line 4: document id '7' was already given in .* line 3"),
        ("queries.tsv", "4", "line 4: 1 columns"),
        ("queries.tsv", "2\tagain", "line 4: query id '2' was already given in .* line 2"),
        ("qrels.tsv", "1 0 99 1", r"1 judgments of split 'train' .*qrels\.tsv:3 1 99"),
        ("qrels.tsv", "1 0 007 2", "line 3: grade 2 .*which line 2 gave 1"),
    ],
)
def test_malformed_input_is_an_error(recipe, tmp_path, name, line, message):
    with (tmp_path / name).open("a") as file:
        file.write(line)
    with pytest.raises(ValueError, match=message):
        MsmarcoPassage(**recipe).read()


@pytest.fixture
def dl19(shared_data):
    folder = shared_data / "msmarco-passage-dl19-pool"
    split = {"queries": folder / "queries.dl19.tsv.gz", "qrels": folder / "qrels.dl19-passage.txt"}
    return {"collection": folder / "collection.tsv", "splits": {"test": split}, "relevance_threshold": 2}


def test_the_dl19_pool_lacks_judged_documents(dl19):
    with pytest.raises(ValueError, match=r"5277 judgments of split 'test' .*qrels\.dl19-passage\.txt:\d+ "):
        MsmarcoPassage(**dl19).read()


def test_the_dl19_pool(dl19):
    collection = MsmarcoPassage(**dl19, unknown_ids="skip").read()
    assert len(collection.documents) == 11843
    assert (collection.documents.ids[:2], collection.documents.ids[-1]) == (["421", "1722"], "8839920")
    assert collection.documents[11842]["text"].startswith(
        "Weather In Ocho Rios Jamaica - Spring (March, April And May) Spring is a good"
    )
    assert len(collection.split("test").queries) == 43
    assert len(collection.split("test").qrels.rows) == 3983
    assert collection.skipped == {"test judgments of unknown ids": 5277}
