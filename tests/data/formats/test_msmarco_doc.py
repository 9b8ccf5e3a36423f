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


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "docs.tsv",
            "D4\thttp://d.org/\tno body",
            "line 4: 3 columns in .*; expected 4 columns separated by one tab: docid, url, title, body",
        ),
        ("docs.tsv", "D4\thttp://d.org/\ttitle\ttwo\ttexts", "line 4: 5 columns"),
        ("docs.tsv", "\thttp://d.org/\ttitle\tbody", "line 4: document id ''; expected an id without blanks"),
        ("docs.tsv", "D4\t \t\t", "line 4: document 'D4' is empty; expected a text in url or title or text"),
        ("docs.tsv", "D2\tu\tt\tagain", "line 4: document id 'D2' was already given in .* line 2"),
        ("queries.tsv", "4", "line 4: 1 columns"),
        ("queries.tsv", "2\tagain", "line 4: query id '2' was already given in .* line 2"),
        ("qrels.tsv", "2 0 D9 1", r"1 judgments of split 'train' .*qrels\.tsv:4 2 D9"),
        ("qrels.tsv", "2 0 D2", "line 4: 3 columns in '2 0 D2'; expected 4 columns"),
        ("qrels.tsv", "2 0 D1 1", "line 4: grade 1 .*which line 2 gave 3"),
    ],
)
def test_malformed_input_is_an_error(recipe, tmp_path, name, line, message):
    with (tmp_path / name).open("a") as file:
        file.write(line)
    with pytest.raises(ValueError, match=message):
        MsmarcoDoc(**recipe).read()


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


@pytest.mark.parametrize(("threshold", "relevant"), [(1, [1, 2, 3]), (2, [2, 3])])
def test_real_graded_judgments(shared_data, tmp_path, threshold, relevant):
    """The sample has one document of each grade for the first query of TREC DL 2019."""
    folder = shared_data / "msmarco-topics-qrels"
    (tmp_path / "docs.tsv").write_text(
        "".join(f"D{n}\turl\ttitle\tbody\n" for n in (1035833, 109633, 109632, 3264593))
    )
    split = {"queries": folder / "topics.dl19-doc.txt", "qrels": folder / "qrels.dl19-doc.txt"}
    recipe = {"documents": tmp_path / "docs.tsv", "splits": {"test": split}, "relevance_threshold": threshold}
    with pytest.raises(
        ValueError, match=r"16254 judgments of split 'test' .*qrels\.dl19-doc\.txt\.gz:2 19335 D1068065"
    ):
        MsmarcoDoc(**recipe).read()
    collection = MsmarcoDoc(**recipe, unknown_ids="skip").read()
    test = collection.split("test")
    assert (test.queries.ids, test.queries[0]) == (
        ["19335"],
        {"text": "anthropological definition of environment"},
    )
    rows, grades = test.qrels.judged(0)
    assert dict(zip(rows.tolist(), grades.tolist(), strict=True)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert sorted(test.known_positives("query").of(0).tolist()) == relevant
    assert collection.skipped == {
        "test judgments of unknown ids": 16254,
        "test queries without positives": 42,
    }


# What the templates of recipes/msmarco-doc make of documents; <s>, </s> and <pad> are 0, 2 and 1.
TEMPLATES = {
    "{url}<sep>{title}<sep>{text}": 0,
    "{url} <sep> {title} <sep> {text}": 0,
    "{url}</s>{title}</s>{text}": 2,
    "{title} {text}": 0,
}
