"""The checks that all adapters share, on entries that are made in memory."""

from pathlib import Path

import pytest

from pyserini_ance.data import texts
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.data.formats import builder
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.records import Entry
from pyserini_ance.data.trec import Judgment

WITHOUT_POSITIVES = ("dev queries without positives", "dev judgments of queries without positives")


def entries(name: str, *rows: tuple[str, ...]) -> list[Entry]:
    """One entry for each row of an id, a text and optionally a title, one per line."""
    fields = ("text", "title")
    lines = [Line(Path(name), number, "") for number in range(1, len(rows) + 1)]
    return [Entry(at, id, dict(zip(fields, texts))) for at, (id, *texts) in zip(lines, rows)]


class Given(Format):
    """A format of given entries and judgments."""

    def __init__(self, documents, queries, rows, **settings):
        super().__init__(kind="any", **settings)
        judgments = [Judgment(Line(Path("qrels"), n, ""), *row) for n, row in enumerate(rows, start=1)]
        object.__setattr__(self, "given", RawData(documents, {"dev": (queries, judgments)}))

    def raw_data(self) -> RawData:
        return self.given


DOCUMENTS = entries("corpus", ("d1", "one"), ("d2", "two"), ("007", "seven"))
QUERIES = entries("queries", ("q1", "first"), ("q2", "second"), ("q3", "third"))


def assembled(documents=DOCUMENTS, queries=QUERIES, rows=(("q1", "d1", 1),), **settings):
    return Given(documents, queries, rows, **settings).read()


class Splits(Format):
    splits: dict[str, str]


def test_a_field_of_documents_may_be_called_answers():
    document = Entry(Line(Path("corpus"), 1, ""), "d1", {"answers": "42", "text": "one"})
    assert dict(assembled([document]).documents[0]) == {"answers": "42", "text": "one"}


def test_some_splits_are_selected():
    data = Splits(kind="any", splits={"train": "a", "dev": "b", "dl20": "c"}, relevance_threshold=2)
    expected = Splits(kind="any", splits={"train": "a", "dl20": "c"}, relevance_threshold=2)
    assert data.of_splits({"dl20", "train"}) == expected
    with pytest.raises(ValueError, match="no split 'dl19'; splits: train, dev, dl20; use one of them"):
        data.of_splits(["dl19"])
    assert Format(kind="any").of_splits(["made-elsewhere"]) == Format(kind="any")


def test_a_split_without_judgments_keeps_all_its_queries():
    data = Given(DOCUMENTS, QUERIES, [], relevance_threshold=2)
    questions = [query._replace(answers=["an answer"]) for query in QUERIES]
    object.__setattr__(data, "given", RawData(DOCUMENTS, {"test": (questions, None)}))
    split = data.read().split("test")
    assert list(split.queries.ids) == ["q1", "q2", "q3"]
    assert not split.is_judged and split.qrels.threshold == 2
    assert [split.known_positives("query").of(row).tolist() for row in range(3)] == [[], [], []]
    object.__setattr__(data, "given", RawData(DOCUMENTS, {"test": (QUERIES, None)}))
    with pytest.raises(ValueError, match="split 'test' has neither `qrels` nor questions with answers; exp"):
        data.read()


@pytest.mark.parametrize(
    ("settings", "trained_on", "queries", "skipped"),
    [
        ({}, {}, ["q1", "q2"], {"dev queries without judgments": 1}),
        ({}, {"dev"}, ["q1"], dict(zip(WITHOUT_POSITIVES, (2, 1), strict=True))),
        ({"relevance_threshold": 2}, {}, ["q1", "q2"], {"dev queries without judgments": 1}),
    ],
)
def test_judged_queries_count_where_something_is_measured(settings, trained_on, queries, skipped):
    rows = [("q2", "d1", settings.get("relevance_threshold", 1) - 1), ("q1", "d2", 2)]
    collection = Given(DOCUMENTS, QUERIES, rows, **settings).read(trained_on=trained_on)
    split = collection.split("dev")
    assert list(split.queries.ids) == queries and split.known_positives("query").anchors.tolist() == [0]
    assert collection.skipped == skipped


def test_rows_follow_the_files_and_a_pair_has_one_grade():
    rows = [("q3", "007", 2), ("q1", "d2", 2), ("q3", "d1", 3), ("q3", "d2", 1), ("q3", "007", 2)]
    split = assembled(rows=rows, relevance_threshold=2).split("dev")
    assert list(split.queries.ids) == ["q1", "q3"]
    assert [split.known_positives("query").of(row).tolist() for row in range(2)] == [[1], [2, 0]]
    assert [part.tolist() for part in split.qrels.judged(1)] == [[2, 0, 1], [2, 3, 1]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"relevance_threshold": 2}, r"^split 'dev' has no query .*: 3 queries and 1 judgments .* grade"),
        ({"documents": entries("c", ("e1", "")), "skip": ["empty_documents"]}, "no document was read; expec"),
        ({"rows": [("q1", "d1", 1), ("q1", "d1", 2)]}, "line 2: grade 2 for .*'d1', which line 1 gave 1"),
        (
            {"rows": [("q1", "d1", 1), *((f"q{n}", f"x{n}", 0) for n in range(7))]},
            r"^7 judgments .*: qrels, line 2: query 'q0' document 'x0'; .*'x4'; .* are \['q1', .*unknown_ids",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(given, message):
    with pytest.raises(ValueError, match=message):
        assembled(**given)


@pytest.mark.parametrize("rows", [2, 5])
def test_documents_of_several_blocks(monkeypatch, tmp_path, rows):
    for module in (builder, texts):
        monkeypatch.setattr(module, "ROWS_PER_BATCH", rows)
    given = entries("file", *((f"d{n}", f"text {n}") for n in range(5)))
    data = Given(given, QUERIES, [("q1", "d4", 1)])
    mapped, read = data.read(tmp_path / "documents"), data.read()
    documents = mapped.documents
    assert mapped.digest == read.digest and documents.digest == Texts(documents.ids, documents.columns).digest
    assert list(documents.ids) == [f"d{n}" for n in range(5)] and documents[4] == {"text": "text 4"}
    with pytest.raises(ValueError, match="file, line 1: document id 'd3' was already given in file, line 4"):
        assembled([*given, *entries("file", ("d3", "x"))])


def test_documents_without_text_and_unknown_ids_may_be_left_out_with_their_judgments():
    documents = entries("corpus", ("e1", "", ""), ("d1", "one", ""), ("e2", " \t", "\n"), ("d2", "", "two"))
    rows = [("q1", "e1", 1), ("q1", "d2", 1), ("q2", "e2", 1), ("q3", "d1", 1), ("q3", "e1", 0)]
    more = [("q1", "x", 1), ("q9", "d1", 0)]
    collection = assembled(documents, rows=[*rows, *more], skip=["empty_documents", "unknown_ids"])
    assert list(collection.documents.ids) == ["d1", "d2"]
    split = collection.split("dev")
    assert list(split.queries.ids) == ["q1", "q3"]
    assert [split.qrels.judged(row)[0].tolist() for row in range(2)] == [[1], [0]]
    assert collection.skipped == {
        "documents without text": 2,
        "dev judgments of documents without text": 3,
        "dev judgments of unknown ids": 2,
        "dev queries without judgments": 1,
    }
    with pytest.raises(ValueError, match="or skip it: empty_documents in data.skip"):
        assembled(documents, rows=rows)


def test_documents_that_are_left_out_belong_to_the_collection(tmp_path):
    """Rankings may name them; without them it is another collection, as one stored in the cache tells."""
    documents = entries("corpus", ("d1", "one"), ("e1", ""))
    skipping = assembled(documents, skip=["empty_documents"])
    assert skipping.left_out == {"e1"}
    without = assembled(documents[:1])
    assert skipping.digest != without.digest and skipping.documents.digest == without.documents.digest
    store_collection(skipping, tmp_path)
    assert open_collection(tmp_path, skipping.digest).left_out == {"e1"}


@pytest.mark.parametrize(("side", "noun"), [("documents", "document"), ("queries", "query")])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "x"), ("b", "y"), ("a", "z")], "file, line 3: {noun} id 'a' was already given in file"),
        ([("a", "", "  ")], "file, line 1: {noun} 'a' is empty; expected a text in text or title"),
        ([("a", "x\0y")], "file, line 1: {noun} 'a' holds a NUL character"),
        ([("a", "x\ud800")], "file, line 1: {noun} 'a' holds a NUL character or half a surrogate pair"),
        ([("a b", "x")], "file, line 1: {noun} id 'a b'; expected an id without blanks"),
        ([("a" * 5000, "")], r"file, line 1: {noun} 'a{{79}}\.\.\. is empty"),
    ],
)
def test_a_malformed_entry_is_an_error(side, noun, rows, message):
    with pytest.raises(ValueError, match=message.format(noun=noun)):
        assembled(**{side: entries("file", *rows)})
