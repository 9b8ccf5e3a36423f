"""A collection of a Lucene index that Pyserini built, with topics and qrels that it knows by name."""

import json
from pathlib import Path

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.pyserini_index import PyseriniIndex, named_topics, stored_documents

# Pyserini looks for topics and qrels in the home folder before it downloads them.
BUILD = """
import sys
from pathlib import Path
from pyserini_ance.pyserini_bridge.java import import_pyserini
indexer = import_pyserini("pyserini.index.lucene").LuceneIndexer
documents = [
    '{"id": "007", "contents": "A spy.\\\\nIn two lines \\\\ud83d\\\\ude00"}',
    '{"id": "7", "title": "Seven", "text": "A number", "contents": "{x} and y"}',
]
for name in ("raw", "contents"):
    index = indexer(args=["-index", f"{sys.argv[1]}/{name}", f"-store{name.title()}"])
    index.add_batch_raw(documents)
    index.close()
(folder := Path(sys.argv[1], "files")).mkdir()
(folder / "twice.jsonl").write_text("\\n".join(documents * 2))
flags = f"-collection JsonCollection -input {folder} -index {sys.argv[1]}/updated -storeRaw -uniqueDocid"
import_pyserini("pyserini.pyclass").autoclass("io.anserini.index.IndexCollection").main(flags.split())
"""

DOCUMENTS = """
import json, sys
from pyserini_ance.pyserini_bridge.text_worker import documents
print(json.dumps(list(documents(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def folder(in_java, tmp_path_factory):
    made = tmp_path_factory.mktemp("indexes")
    in_java(BUILD, made)
    known = made / "home" / ".cache" / "pyserini" / "topics-and-qrels"
    known.mkdir(parents=True)
    (known / "topics.dl19-passage.txt").write_text("19335\twhich number\n47923\twhich spy\n")
    (known / "qrels.dl19-passage.txt").write_text("19335 Q0 7 2\n47923 Q0 007 3\n47923 Q0 7 0\n")
    topics = known / "topics.dpr.curated.test.txt"
    topics.write_text('{"question": "who spies", "answer": ["James Bond", "007"]}\n')
    (made / "topics.tsv").write_text("01\ta spy\n")
    (made / "qrels.txt").write_text("01 0 007 1\n")
    return made


def test_an_index_with_its_raw_documents_and_names(folder, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={folder / 'home'}")
    own = {"topics": str(folder / "topics.tsv"), "qrels": str(folder / "qrels.txt")}
    dl19 = {"topics": "dl19-passage", "qrels": "dl19-passage"}
    splits = {"own": own, "asked": {"topics": "dpr-curated-test"}, "dl19": dl19}
    collection = PyseriniIndex(index=str(folder / "raw"), splits=splits).read(folder / "documents")
    assert dict(zip(collection.documents.ids, collection.documents.take([0, 1]), strict=True)) == {
        "007": {"title": "", "text": "A spy.\nIn two lines 😀"}, "7": {"title": "Seven", "text": "A number"},
    }  # fmt: skip
    dl19, own, asked = (collection.split(name) for name in ("dl19", "own", "asked"))
    assert asked.queries[0]["text"] == "who spies" and not asked.is_judged
    assert read_answers(asked.queries, 0) == ["James Bond", "007"]
    assert sorted(dl19.queries.ids) == ["19335", "47923"] and own.queries.ids == ["01"]
    spy = dl19.queries.rows["47923"]
    assert dl19.queries[spy] == {"text": "which spy"} and dl19.qrels.judged(spy)[1].tolist() == [3, 0]


def test_an_index_with_contents_alone(folder, in_java):
    records = json.loads(in_java(DOCUMENTS, folder / "contents"))
    found = sorted((entry.id, entry.fields["text"]) for entry in stored_documents(folder, records))
    assert found == [("007", "A spy.\nIn two lines 😀"), ("7", "{x} and y")]
    assert sorted(one["id"] for one in json.loads(in_java(DOCUMENTS, folder / "updated"))) == ["007", "7"]
    trec = {"id": "d", "raw": "<TEXT>\nA text\n</TEXT>", "contents": "A text"}
    assert next(stored_documents(folder, [trec])).fields["text"] == "A text"


def test_a_folder_without_an_index_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    message = (
        r"index '.*empty': JavaException: .*no segments.* \(exit status 1\); expected the folder of a whole"
    )
    with pytest.raises(RuntimeError, match=message):
        PyseriniIndex(index=str(tmp_path / "empty")).read(tmp_path / "documents")


@pytest.mark.parametrize("key", ["raw", "contents"])
def test_documents_of_several_fields(key):
    contents = "http://a.org/\nA title\nBody of A"
    raw = json.dumps({"id": "D1", "contents": contents}) if key == "raw" else None
    stored = {"raw": raw, "contents": contents}
    (entry,) = stored_documents(Path("msmarco-v1-doc"), [{"id": "D1", **stored}], ("url", "title", "text"))
    assert entry.fields == {"url": "http://a.org/", "title": "A title", "text": "Body of A"}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda: list(named_topics(Path("covid"), iter([{"id": "1", "query": "masks"}]))),
            "covid, line 1: .*write the topics",
        ),
        (
            lambda: list(stored_documents(Path("i"), [{"id": "d", "raw": None, "contents": None}])),
            r"i, line 1: document 'd' of this index has no text; expected .*--storeRaw",
        ),
    ],
)
def test_what_cannot_be_read_is_named(read, message):
    with pytest.raises(ValueError, match=message):
        read()
