import pytest

from pyserini_ance.data.formats.msmarco_doc import MsmarcoDoc

FILES = {
    "docs.tsv": 'D1\thttp://a.org/\tA title\t"Body of ""A"" "\nD2\thttp://b.org/\t\tOf B.\n'
    "D3\thttp://c.org/\t.\t\n",
    "queries.tsv": "10\twhat is b\n2\t which a\n3\tnobody judged\n",
    "qrels.tsv": "10\t0\tD2\t1\n2 Q0 D1 3\n2 0 D3 0\n",
}


@pytest.fixture
def recipe(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    split = {"queries": tmp_path / "queries.tsv", "qrels": tmp_path / "qrels.tsv"}
    return {"documents": tmp_path / "docs.tsv", "splits": {"train": split}}


def test_the_tables_are_read(recipe):
    collection = MsmarcoDoc(**recipe).read()
    train = collection.split("train")
    assert collection.documents.ids == ["D1", "D2", "D3"]
    assert collection.documents.take([0, 1, 2]) == [
        {"url": "http://a.org/", "title": "A title", "text": '"Body of ""A"" "'},
        {"url": "http://b.org/", "title": "", "text": "Of B."},
        {"url": "http://c.org/", "title": ".", "text": ""},
    ]
    assert (train.queries.ids, train.queries[1]) == (["10", "2"], {"text": "which a"})
    assert [train.known_positives("query").of(row).tolist() for row in range(2)] == [[1], [0]]
    assert collection.skipped == {"train queries without positives": 1}


def test_real_documents(shared_data):
    folder = shared_data / "msmarco-doc"
    split = {
        "queries": folder / "msmarco-doctrain-queries.tsv",
        "qrels": folder / "msmarco-doctrain-qrels.tsv",
    }
    collection = MsmarcoDoc(documents=folder / "msmarco-docs.tsv", splits={"train": split}).read()
    documents, train = collection.documents, collection.split("train")
    assert (len(documents), documents.ids[0], documents.ids[-1]) == (1000, "D1098819", "D1848131")
    assert (documents[0]["title"], documents[0]["url"]) == (
        "Aspen, Colorado",
        "https://en.wikipedia.org/wiki/Aspen,_Colorado",
    )
    assert documents[0]["text"].startswith('"Aspen, ColoradoFrom Wikipedia')
    assert documents[999]["text"].endswith("Median age of residents - 47 years old")
    assert documents[225] == {"url": "https://www.maritimetrainingschool.com/#!", "title": ".", "text": ""}
    assert (len(train.queries), len(train.qrels.rows), collection.skipped) == (100, 100, {})
    assert train.queries.ids[0] == "181490"
    assert train.queries[0] == {"text": "esol training definition"}
