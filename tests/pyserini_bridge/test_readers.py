"""Real topics and corpora as Pyserini's readers have them."""

import ast
import gzip
import json

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.data.formats.lines import read_lines
from pyserini_ance.data.formats.topics import PyseriniJsonl, tsv_entry

READERS = {
    "msmarco-topics-qrels/topics.msmarco-passage.dev-subset.txt": "TsvIntTopicReader",
    "msmarco-topics-qrels/topics.dl20.txt": "TsvIntTopicReader",
    "openqa-topics/topics.dpr.nq.test.txt": "DprNqTopicReader",
    "openqa-topics/topics.dpr.curated.test.txt": "DprJsonlTopicReader",
}
CORPORA = {"dpr/psgs_w100_pyserini_100.jsonl": ["text"], "squad-beir/corpus.jsonl": ["title", "text"]}
PYSERINI = """
import json, sys
from pathlib import Path
from pyserini_ance.pyserini_bridge.java import import_pyserini
folder, files = Path(sys.argv[1]), json.loads(sys.argv[2])
search = import_pyserini("pyserini.search")
for name, reader in files.items():
    reader = f"io.anserini.search.topicreader.{reader}"
    found = search.get_topics_with_reader(reader, str(folder / Path(name).name))
    (folder / f"{Path(name).name}.json").write_text(json.dumps(found))
for name, fields in json.loads(sys.argv[3]).items():
    found = import_pyserini("pyserini.encode").JsonlCollectionIterator(str(folder / name), fields).all_info
    (folder / f"{name}.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def theirs(in_java, shared_data, tmp_path_factory):
    """The folder with what Pyserini read."""
    folder = tmp_path_factory.mktemp("pyserini")
    for name in [*READERS, *CORPORA]:
        with gzip.open(shared_data / f"{name}.gz") as file:
            lines = file.readlines()
        if name in READERS:  # each topic costs Pyserini some ten calls of Java
            lines = lines[:100] + [line for line in lines[100:] if b'"' in line][:200]
        (folder / name.split("/")[1]).write_bytes(b"".join(lines))
    corpora = {name.split("/")[1]: fields for name, fields in CORPORA.items()}
    in_java(PYSERINI, folder, json.dumps(READERS), json.dumps(corpora))
    return folder


def read_by_pyserini(theirs, name: str) -> dict[str, dict]:
    return json.loads((theirs / f"{name.split('/')[1]}.json").read_text())


@pytest.mark.parametrize("name", [name for name in READERS if "msmarco" in name])
def test_topics_of_msmarco_and_trec(theirs, name):
    entries = map(tsv_entry, read_lines(theirs / name.split("/")[1]))
    expected = {id: topic["title"] for id, topic in read_by_pyserini(theirs, name).items()}
    assert {entry.id: entry.fields["text"].strip() for entry in entries} == expected


@pytest.mark.parametrize("name", [name for name in READERS if "openqa" in name])
def test_questions_and_answers(theirs, name):
    """Answers are a Python list there, which `convert_trec_run_to_dpr_retrieval_run` evaluates."""
    ours = read_questions(theirs / name.split("/")[1])
    found = read_by_pyserini(theirs, name)
    assert list(ours.ids) == sorted(found, key=int)
    for row, id in enumerate(ours.ids):
        assert ours.columns["text"][row] == " ".join(found[id]["title"].split())
        assert read_answers(ours, row) == ast.literal_eval(found[id]["answers"])


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus(theirs, name):
    """As `python -m pyserini.encode` reads it, which strips texts."""
    file = theirs / name.split("/")[1]
    documents, found = PyseriniJsonl(corpus=file).read().documents, read_by_pyserini(theirs, name)
    assert list(documents.ids) == found.pop("id")
    for field, values in found.items():
        assert [text.strip() for text in documents.columns[field]] == [value or "" for value in values]
