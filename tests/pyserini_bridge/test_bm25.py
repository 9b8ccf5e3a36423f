"""BM25 by Anserini on a collection that fits on the screen."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve

pytestmark = pytest.mark.long

CATS = "cats chase mice, and cats sleep"
DOCUMENTS = [("007", "a spy likes cats"), ("7", CATS), ("é", "the the"), ("9", "dogs 😀 bark")]
# `kitten` is only where `feline` is too, in the two that BM25 finds first; Anserini passes over words of
# more than a tenth of the documents.
KITTENS = [("both-1", "a kitten is a feline"), ("both-2", "feline or kitten"), ("third", "a feline sleeps")]
FILLING = [(f"other-{n}", f"number{n} of something") for n in range(40)]
QUERIES = [("01", "CATS"), ("1", "the of"), ("q", ""), ("x", "😀 bark"), ("y", '"( *:* \t lone \ud800 ~')]
QUERIES += [("long", "CATS " + " ".join(f"word{n}" for n in range(1100)))]  # Lucene reads 1,024 terms
BUILD = SimpleNamespace(k1=0.9, b=0.4, threads=2, index="build")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bm25")
    rankings = [
        Bm25Job(QUERIES, 10, folder / "out/run.trec"),
        Bm25Job(QUERIES[:1], 1, folder / "out/short.trec"),
        Bm25Job([("7", "CATS"), ("01", "CATS")], 1, folder / "out/others.trec", False, True),
    ]
    expanded = [("q", "kitten"), ("none", "absent")]
    names = ("before", "expanded", "after")
    rankings += [Bm25Job(expanded, 10, folder / "out" / name, name == "expanded") for name in names]
    retrieve(iter(DOCUMENTS + FILLING + KITTENS), rankings, BUILD, folder / "cache/index")
    return folder


def test_ids_stay_and_the_better_hit_is_first(found):
    lines = [line.split() for line in (found / "out/run.trec").read_text(encoding="utf-8").splitlines()]
    hits = ["01 Q0 7 1", "01 Q0 007 2", "x Q0 9 1", "long Q0 7 1", "long Q0 007 2"]
    assert [" ".join(line[:4]) for line in lines] == hits
    assert float(lines[0][4]) > float(lines[1][4]) > 0 and lines[0][5] == "bm25"


def test_nothing_else_is_left(found):
    assert [path.name for path in (found / "cache").iterdir()] == ["index"]
    names = ["after", "before", "expanded", "others.trec", "run.trec", "short.trec"]
    assert sorted(path.name for path in (found / "out").iterdir()) == names
    assert (found / "out/short.trec").read_text().split()[:4] == ["01", "Q0", "7", "1"]
    others = [line.split()[:4] for line in (found / "out/others.trec").read_text().splitlines()]
    assert others == [["7", "Q0", "007", "1"], ["01", "Q0", "7", "1"]]


def test_documents_are_counted_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")  # writes 1.000
    retrieve(((str(n), f"number{n}") for n in range(1000)), [], BUILD, tmp_path / "index")


def test_an_index_that_is_there_is_searched(found):
    for settings in (BUILD, SimpleNamespace(**{**vars(BUILD), "index": str(found / "cache/index")})):
        retrieve((), [Bm25Job(QUERIES, 10, found / "again.trec")], settings, found / "cache/index")
        assert (found / "again.trec").read_bytes() == (found / "out/run.trec").read_bytes()
        (found / "again.trec").unlink()


def test_a_ranking_without_a_hit_is_an_error(found, tmp_path):
    queries = [("q1", "wie man sortiert"), ("q2", "das")]
    message = "no document for any of the 2 queries, such as 'wie man sortiert': "
    with pytest.raises(ValueError, match=message):
        retrieve((), [Bm25Job(queries, 10, tmp_path / "run")], BUILD, found / "cache/index")
    own = Bm25Job([("both-1", "kitten"), ("both-2", "zzz")], 1, tmp_path / "run", False, True)
    retrieve((), [own], BUILD, found / "cache/index")
    assert (tmp_path / "run").read_text().startswith("both-1 Q0 both-2 1 ")


def unreadable():
    yield DOCUMENTS[0]
    raise ValueError("line 2 is not UTF-8")


@pytest.mark.parametrize(
    ("documents", "index", "error", "message"),
    [(unreadable(), "build", ValueError, "line 2"), ((), "no-such-index", RuntimeError, "no-such-index")],
)
def test_an_index_that_is_missing_or_fails_leaves_nothing(tmp_path, documents, index, error, message):
    settings = SimpleNamespace(**{**vars(BUILD), "index": index})
    with pytest.raises(error, match=message):
        folder = tmp_path / "index" if index == "build" else Path(index)
        retrieve(documents, [Bm25Job(QUERIES, 1, tmp_path / "run")], settings, folder)
    assert not list(tmp_path.iterdir())


def test_rm3_finds_by_the_words_of_the_first_documents_and_bm25_stays_as_it_is(found):
    texts = [(found / "out" / name).read_text() for name in ("before", "expanded", "after")]
    before, expanded, after = ([line.split() for line in text.splitlines()] for text in texts)
    assert [line[2] for line in before] == ["both-1", "both-2"] and before == after and before[0][5] == "bm25"
    ranked = zip(["both-1", "both-2", "third"], "123", strict=True)
    assert [line[:4] for line in expanded] == [["q", "Q0", id, rank] for id, rank in ranked]
    assert expanded[0][5] == "bm25+rm3"


def test_an_index_without_document_vectors_is_named(tmp_path):
    retrieve(iter(DOCUMENTS), [], BUILD, tmp_path / "index")
    settings = SimpleNamespace(**{**vars(BUILD), "index": str(tmp_path / "index")})
    with pytest.raises(RuntimeError, match="for RM3 one with -storeDocvectors"):
        retrieve((), [Bm25Job([("q", "cats")], 1, tmp_path / "run", True)], settings, tmp_path / "index")


def test_a_ranking_that_is_cut_short_is_no_ranking(found, tmp_path, monkeypatch):
    def cut(program, *flags):
        flags[flags.index("-output") + 1].write_text("0000000000 Q0 7 1 1.5 bm25\n0000000000 Q0 0")
        return []

    monkeypatch.setattr(bm25, "_run", cut)
    with pytest.raises(OSError, match="is cut short; is the disk full"):
        retrieve((), [Bm25Job(QUERIES, 2, tmp_path / "run")], BUILD, found / "cache/index")
    assert not list(tmp_path.iterdir())
