import gzip

import pytest

from pyserini_ance.data.formats.msmarco_doc import MsmarcoDoc
from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization
from pyserini_ance.recipe.components import component_class

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


def test_gz_tables_give_the_same_collection(recipe, tmp_path):
    plain = MsmarcoDoc(**recipe).read()
    for name, text in FILES.items():
        (tmp_path / name).unlink()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert MsmarcoDoc(**recipe).read().digest == plain.digest


def test_the_recipe_chooses_the_template(recipe):
    document = MsmarcoDoc(**recipe).read().documents[1]

    def text(template: str, **settings) -> str:
        return Tokenization.model_validate({"document": {"template": template}, **settings}).text(
            "document", document
        )

    assert text("{url} <sep> {title} <sep> {text}", lowercase=True) == "http://b.org/ <sep>  <sep> of b."
    assert text("{url}<sep>{title}<sep>{text}", max_characters=20) == "http://b.org/<sep><s"
    assert text("{title} {text}") == "Of B."


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


def test_a_truncated_gz_file_is_an_error(recipe, tmp_path):
    (tmp_path / "docs.tsv").unlink()
    (tmp_path / "docs.tsv.gz").write_bytes(gzip.compress(FILES["docs.tsv"].encode())[:-9])
    with pytest.raises(ValueError, match=r"docs\.tsv\.gz, line \d: damaged gzip file"):
        MsmarcoDoc(**recipe).read()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("docs.tsv", "data.documents"),
        ("queries.tsv", "data.splits.train.queries"),
        ("qrels.tsv", "data.splits.train.qrels"),
    ],
)
def test_the_error_for_a_missing_file_names_its_key(recipe, tmp_path, name, key):
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name}, nor .*set `{key}`"):
        MsmarcoDoc(**recipe).read()


def test_the_kind_is_registered_and_keeps_its_settings(recipe):
    loaded = component_class("data", "msmarco_doc").model_validate({"kind": "msmarco_doc", **recipe})
    assert MsmarcoDoc.model_validate(loaded.model_dump(mode="json")) == loaded == MsmarcoDoc(**recipe)


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


def test_real_documents_agree_with_the_lookup_file(shared_data):
    """msmarco-docs-lookup.tsv has each document's id, and its first byte in the .trec file and in the .tsv
    file.
    """
    folder = shared_data / "msmarco-doc"
    with gzip.open(folder / "msmarco-docs-lookup.tsv.gz", "rt") as file:
        starts = {id: int(start) for id, _, start in (line.rstrip("\n").split("\t") for line in file)}
    raw = gzip.decompress((folder / "msmarco-docs.tsv.gz").read_bytes())
    split = {
        "queries": folder / "msmarco-doctrain-queries.tsv",
        "qrels": folder / "msmarco-doctrain-qrels.tsv",
    }
    documents = MsmarcoDoc(documents=folder / "msmarco-docs.tsv", splits={"train": split}).read().documents
    assert list(starts) == list(documents.ids)
    for row, (id, start) in enumerate(starts.items()):
        line = raw[start : raw.index(b"\n", start)].decode()
        assert line == "\t".join([id, *documents[row].values()])


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


def test_splits_may_come_from_several_data_sets(shared_data, tmp_path):
    """MS MARCO's development queries (qrels with tabs) and TREC's (with blanks, Q0 or 0) refer to one
    collection.
    """
    folder = shared_data / "msmarco-topics-qrels"
    (tmp_path / "docs.tsv").write_text(
        "".join(f"{id}\turl\ttitle\tbody\n" for id in ("D1650436", "D109633", "D1884223"))
    )
    names = {
        "dev": ("msmarco-doc.dev", "msmarco-doc.dev"),
        "dl19": ("dl19-doc", "dl19-doc"),
        "dl20": ("dl20", "dl20-doc"),
    }
    splits = {
        name: {"queries": folder / f"topics.{t}.txt", "qrels": folder / f"qrels.{q}.txt"}
        for name, (t, q) in names.items()
    }
    collection = MsmarcoDoc(documents=tmp_path / "docs.tsv", splits=splits, unknown_ids="skip").read()
    assert {name: split.queries.ids for name, split in collection.splits.items()} == {
        "dev": ["2"],
        "dl19": ["19335"],
        "dl20": ["42255"],
    }
    assert [collection.skipped[f"{name} queries without positives"] for name in names] == [5192, 42, 199]


LOOKUP = "D3\t0\t66\nD1\t0\t0\nD2\t9\t42\n"


@pytest.fixture
def looked_up(recipe, tmp_path):
    (tmp_path / "lookup.tsv").write_text(LOOKUP)
    return {**recipe, "lookup": tmp_path / "lookup.tsv"}


def test_the_lookup_file_agrees_in_any_order(looked_up):
    assert MsmarcoDoc(**looked_up).read().documents.ids == ["D1", "D2", "D3"]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "docs.tsv",
            "A title",
            "A  title",
            r"docs\.tsv, line 2: document 'D2' at byte 43; expected it at byte 42, as .*lookup\.tsv says; "
            r"download",
        ),
        (
            "docs.tsv",
            "D2",
            "D7",
            r"docs\.tsv, line 2: document 'D7' at byte 42; expected no such document, as .*lookup\.tsv says",
        ),
        (
            "docs.tsv",
            "D3\thttp://c.org/\t.\t\n",
            "",
            "lookup.tsv lists 3 documents, but only 2 were read; download both files again",
        ),
        ("lookup.tsv", "D3\t0\t66\n", "", "line 3: document 'D3' at byte 66; expected no such document"),
        ("lookup.tsv", "66", "6_6", "lookup.tsv, line 1: byte '6_6'; expected a whole number"),
        ("lookup.tsv", "\t66", "", "lookup.tsv, line 1: 2 columns"),
    ],
)
def test_documents_that_differ_from_the_lookup_file_are_errors(looked_up, tmp_path, name, old, new, message):
    text = (tmp_path / name).read_text()
    assert text.count(old) == 1
    (tmp_path / name).write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        MsmarcoDoc(**looked_up).read()


@pytest.fixture(scope="module")
def real(shared_data):
    folder = shared_data / "msmarco-doc"
    split = {
        "queries": folder / "msmarco-doctrain-queries.tsv",
        "qrels": folder / "msmarco-doctrain-qrels.tsv",
    }
    return MsmarcoDoc(
        documents=folder / "msmarco-docs.tsv",
        lookup=folder / "msmarco-docs-lookup.tsv",
        splits={"train": split},
    ).read()


def test_the_real_lookup_file_agrees_with_the_real_documents(real, shared_data):
    """It also locates a document without reading those before it."""
    with gzip.open(shared_data / "msmarco-doc" / "msmarco-docs-lookup.tsv.gz", "rt") as file:
        starts = {id: int(byte) for id, _, byte in (line.rstrip("\n").split("\t") for line in file)}
    with gzip.open(shared_data / "msmarco-doc" / "msmarco-docs.tsv.gz", "rb") as file:
        for id in (real.documents.ids[-1], "D2268823"):
            file.seek(starts[id])
            assert file.readline().decode().rstrip("\n").split("\t") == [
                id,
                *real.documents[real.documents.rows[id]].values(),
            ]
    assert len(starts) == len(real.documents) == 1000


# What the templates of recipes/msmarco-doc make of documents; <s>, </s> and <pad> are 0, 2 and 1.
TEMPLATES = {
    "{url}<sep>{title}<sep>{text}": 0,
    "{url} <sep> {title} <sep> {text}": 0,
    "{url}</s>{title}</s>{text}": 2,
    "{title} {text}": 0,
}


@pytest.mark.parametrize(("template", "separators"), TEMPLATES.items())
def test_templates_of_real_documents(real, tiny_roberta, template, separators):
    """`<sep>` is text, as in the released checkpoints.

    `</s>` is RoBERTa's separator. Only the first 10,000 characters count.
    """
    settings = Tokenization.model_validate(
        {
            "lowercase": True,
            "prefix_space": False,
            "max_characters": 10_000,
            "document": {"template": template},
        }
    )
    from transformers import AutoTokenizer

    tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(tiny_roberta), settings)
    records = real.documents.take(range(40))
    for record, ids in zip(records, tokenizer.ids("document", records), strict=True):
        whole = template.format(**record).strip()
        assert settings.text("document", record) == whole[:10_000].lower()
        assert ids.count(2) == separators and not {0, 1} & set(ids)
        assert tokenizer.tokenizer.decode(ids) == whole[:10_000].lower()
    assert max(len(template.format(**record)) for record in records) > 10_000
