"""The checks that all adapters share, on entries that are made in memory."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pyserini_ance.data import collection, collection_cache
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.data.formats import builder
from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.trec import Judgment


def entries(name: str, *rows: tuple[str, ...]) -> list[Entry]:
    """One entry for each row of an id, a text and optionally a title, one per line."""
    fields = ("text", "title")
    return [
        Entry(Line(Path(name), number, ""), id, dict(zip(fields, texts, strict=False)))
        for number, (id, *texts) in enumerate(rows, start=1)
    ]


def judgments(*rows: tuple[str, str, int]) -> list[Judgment]:
    return [Judgment(Line(Path("qrels"), number, ""), *row) for number, row in enumerate(rows, start=1)]


class Given(Format):
    """A format of given entries and judgments."""

    def __init__(self, documents, queries, rows, **settings):
        super().__init__(kind="any", **settings)
        object.__setattr__(self, "given", RawData(documents, {"dev": (queries, judgments(*rows))}))

    def raw_data(self) -> RawData:
        return self.given


DOCUMENTS = entries("corpus", ("d1", "one"), ("d2", "two"), ("007", "seven"))
QUERIES = entries("queries", ("q1", "first"), ("q2", "second"), ("q3", "third"))


def assembled(documents=DOCUMENTS, queries=QUERIES, rows=(("q1", "d1", 1),), **settings):
    """The collection in memory; documents in a file must give the same collection, or the same error."""
    data = Given(documents, queries, rows, **settings)
    with TemporaryDirectory() as folder:
        try:
            stored = data.read(Path(folder, "documents"))
        except ValueError as error:
            with pytest.raises(ValueError) as again:
                data.read()
            assert str(again.value) == str(error)
            raise
        read = data.read()
        assert (stored.digest, stored.skipped) == (read.digest, read.skipped)
        assert stored.documents.digest == Texts(stored.documents.ids, stored.documents.columns).digest
        assert list(stored.documents.ids) == list(read.documents.ids)
    return read


def test_rows_follow_the_files():
    split = assembled(rows=[("q3", "007", 1), ("q1", "d2", 1), ("q3", "d1", 2)]).split("dev")
    assert list(split.queries.ids) == ["q1", "q3"]
    assert [split.known_positives("query").of(row).tolist() for row in range(2)] == [[1], [2, 0]]


class Splits(Format):
    splits: dict[str, str]


def test_some_splits_are_selected():
    data = Splits(kind="any", splits={"train": "a", "dev": "b", "dl20": "c"}, relevance_threshold=2)
    assert data.of_splits({"dl20", "train"}) == Splits(
        kind="any", splits={"train": "a", "dl20": "c"}, relevance_threshold=2
    )
    with pytest.raises(ValueError, match="no split 'dl19'; splits: train, dev, dl20; use one of them"):
        data.of_splits(["dl19"])
    assert Format(kind="any").of_splits(["made-elsewhere"]) == Format(kind="any")


def test_a_split_without_judgments_keeps_all_its_queries():
    data = Given(DOCUMENTS, QUERIES, [], relevance_threshold=2)
    questions = [query._replace(answers=["an answer"]) for query in QUERIES]
    object.__setattr__(data, "given", RawData(DOCUMENTS, {"test": (questions, None)}))
    split = data.read().split("test")
    assert (
        list(split.queries.ids) == ["q1", "q2", "q3"] and not split.is_judged and split.qrels.threshold == 2
    )
    assert [split.known_positives("query").of(row).tolist() for row in range(3)] == [[], [], []]


def test_a_split_without_judgments_and_answers_is_an_error():
    data = Given(DOCUMENTS, QUERIES, [])
    object.__setattr__(data, "given", RawData(DOCUMENTS, {"test": (QUERIES, None)}))
    with pytest.raises(
        ValueError,
        match="split 'test' has neither `qrels` nor questions with answers; expected one of the two",
    ):
        data.read()


def test_queries_without_positives_are_skipped_with_a_count(caplog):
    with caplog.at_level(logging.WARNING):
        collection = assembled(rows=[("q1", "d1", 1), ("q2", "d1", 0)])
    assert collection.skipped == {
        "dev queries without positives": 2,
        "dev judgments of queries without positives": 1,
    }
    assert list(collection.split("dev").queries.ids) == ["q1"]
    assert "skipped: 2 dev queries without positives" in caplog.text
    assert "skipped: 1 dev judgments of queries without positives" in caplog.text


@pytest.mark.parametrize("rows", [2, 5])
def test_documents_of_several_blocks(monkeypatch, rows):
    for module in (builder, collection, collection_cache):
        monkeypatch.setattr(module, "ROWS_PER_BATCH", rows)
    given = entries("file", *((f"d{n}", f"text {n}") for n in range(5)))
    documents = assembled(given, rows=[("q1", "d4", 1)]).documents
    assert list(documents.ids) == [f"d{n}" for n in range(5)] and documents[4] == {"text": "text 4"}
    with pytest.raises(ValueError, match="file, line 1: document id 'd3' was already given in file, line 4"):
        assembled([*given, *entries("file", ("d3", "x"))])


def test_fields_may_come_in_any_order():
    given = [
        Entry(Line(Path("file"), 1, ""), "d1", {"title": "a", "text": "b"}),
        Entry(Line(Path("file"), 2, ""), "d2", {"text": "c", "title": "d"}),
    ]
    documents = assembled(given).documents
    assert documents.take([0, 1]) == [{"title": "a", "text": "b"}, {"title": "d", "text": "c"}]


def test_a_document_with_other_fields_is_an_error():
    with pytest.raises(
        ValueError,
        match="file, line 2: document 'b' has the fields text, title; expected text, like the entries before "
        "it",
    ):
        assembled(documents=entries("file", ("a", "x"), ("b", "y", "z")))


def test_the_threshold_keeps_judgments_that_are_not_relevant():
    split = assembled(rows=[("q1", "d1", 1), ("q1", "d2", 2)], relevance_threshold=2).split("dev")
    assert split.known_positives("query").of(0).tolist() == [1]
    assert [part.tolist() for part in split.qrels.judged(0)] == [[0, 1], [1, 2]]


def test_a_split_without_queries_is_an_error():
    with pytest.raises(
        ValueError,
        match=r"^split 'dev' has no query .* document: 3 queries and 1 judgments were read, the highest "
        r"grade is 1; expected a grade of at least 2 \(data.relevance_threshold=2\); correct the split$",
    ):
        assembled(relevance_threshold=2)


def test_documents_without_text_may_be_left_out_with_their_judgments(caplog):
    documents = entries("corpus", ("e1", "", ""), ("d1", "one", ""), ("e2", " \t", "\n"), ("d2", "", "two"))
    rows = [("q1", "e1", 1), ("q1", "d2", 1), ("q2", "e2", 1), ("q3", "d1", 1), ("q3", "e1", 0)]
    with caplog.at_level(logging.WARNING):
        collection = assembled(documents, rows=rows, empty_documents="skip")
    assert list(collection.documents.ids) == ["d1", "d2"]
    split = collection.split("dev")
    assert list(split.queries.ids) == ["q1", "q3"]
    assert [split.qrels.judged(row)[0].tolist() for row in range(2)] == [[1], [0]]
    assert collection.skipped == {
        "documents without text": 2,
        "dev judgments of documents without text": 3,
        "dev queries without positives": 1,
    }
    assert "skipped: 2 documents without text" in caplog.messages
    with pytest.raises(ValueError, match="or leave such documents out with data.empty_documents=skip"):
        assembled(documents, rows=rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("x", ""), ("d1", "one"), ("x", "two")], "corpus, line 1: document 'x' is empty"),
        ([("d1", "one"), ("x", "two"), ("x", " ")], "corpus, line 3: document 'x' is empty"),
        (
            [("x", ""), ("d1", "one"), ("x", "")],
            "corpus, line 3: document id 'x' was already given in corpus, line 1; expected each id once",
        ),
    ],
)
def test_an_id_of_a_document_without_text_is_given_once(rows, message):
    with pytest.raises(ValueError, match=message):
        assembled(entries("corpus", *rows), empty_documents="skip")


def test_documents_that_are_left_out_belong_to_the_collection(tmp_path):
    """Rankings may name them; without them it is another collection, as one stored in the cache tells."""
    documents = entries("corpus", ("d1", "one"), ("e1", ""))
    skipping = assembled(documents, empty_documents="skip")
    assert skipping.left_out == {"e1"}
    without = assembled(documents[:1])
    assert skipping.digest != without.digest and skipping.documents.digest == without.documents.digest
    store_collection(skipping, tmp_path)
    assert open_collection(tmp_path, skipping.digest).left_out == {"e1"}


def test_documents_of_which_none_has_a_text_are_an_error_even_if_they_may_be_left_out():
    with pytest.raises(ValueError, match=r"no document was read \(1 without text were left out\); expected"):
        assembled(entries("corpus", ("e1", "")), empty_documents="skip")


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (("q1", "7", 1), "document '007' exists: was '7' written as a number"),
        (("q1", "00007", 1), "document '007' exists"),
        (("q1", "70", 1), None),
        (("q1", "x7", 1), None),
        (("q1", "0", 1), None),
    ],
)
def test_an_unknown_id_that_lost_its_zeros_is_answered_by_a_hint(row, hint):
    with pytest.raises(ValueError) as error:
        assembled(rows=[row])
    assert hint is None or hint in str(error.value)
    assert ("without its leading zeros" in str(error.value)) == (hint is not None)


def test_queries_become_one_line_and_documents_do_not():
    collection = assembled(
        documents=entries("corpus", ("d1", " two\n\tlines ")),
        queries=entries("queries", ("q1", " a\n b\u2003\tc\r")),
    )
    assert collection.split("dev").queries[0] == {"text": "a b c"}
    assert collection.documents[0] == {"text": " two\n\tlines "}


@pytest.mark.parametrize(("side", "noun"), [("documents", "document"), ("queries", "query")])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "x"), ("b", "y"), ("a", "z")], "file, line 3: {noun} id 'a' was already given in file"),
        ([("a", " \n\t")], "file, line 1: {noun} 'a' is empty; expected a text in text"),
        ([("a", "", "  ")], "file, line 1: {noun} 'a' is empty; expected a text in text or title"),
        ([("a", "x\0y")], "file, line 1: {noun} 'a' holds a NUL character"),
        ([("a", "x\ud800")], "file, line 1: {noun} 'a' holds a NUL character or half a surrogate pair"),
        ([("a b", "x")], "file, line 1: {noun} id 'a b'; expected an id without blanks"),
        ([("", "x")], "file, line 1: {noun} id ''"),
        ([("a\n", "x")], "file, line 1: {noun} id 'a"),
        ([("a\0b", "x")], r"file, line 1: {noun} 'a\\x00b' holds a NUL character"),
        ([("\ud800", "x")], "file, line 1: {noun} .* holds a NUL character or half a surrogate pair"),
        ([("a" * 5000, "")], r"file, line 1: {noun} 'a{{79}}\.\.\. is empty"),
    ],
)
def test_a_malformed_entry_is_an_error(side, noun, rows, message):
    with pytest.raises(ValueError, match=message.format(noun=noun)):
        assembled(**{side: entries("file", *rows)})


def test_long_ids_are_shortened_in_messages():
    long = "x" * 5000
    with pytest.raises(ValueError, match=r"qrels:1 q1 x{77}, qrels:2"):
        assembled(rows=[("q1", long, 1), ("q1", long, 2)])
    with pytest.raises(
        ValueError, match=r"grade 2 for query 'q1' and document 'x{79}\.\.\., which line 1 gave 1"
    ):
        assembled(documents=entries("corpus", (long, "one")), rows=[("q1", long, 1), ("q1", long, 2)])


UNKNOWN = [("q1", "d1", 1), *((f"q{n}", f"x{n}", 0) for n in range(7))]


def test_unknown_ids_are_counted_and_the_first_five_shown():
    with pytest.raises(ValueError) as error:
        assembled(rows=UNKNOWN)
    message = str(error.value)
    assert message.startswith("7 judgments of split 'dev'")
    assert "qrels:2 q0 x0, qrels:3 q1 x1, qrels:4 q2 x2, qrels:5 q3 x3, qrels:6 q4 x4; " in message
    assert "x6" not in message and "data.unknown_ids=skip" in message


def test_unknown_ids_are_counted_by_side_beside_the_ids_there_are():
    """Qrels that count 1, 2, 3, ... where the queries have other numbers, as Cranfield's do."""
    queries = entries("queries", *((f"{number}", "text") for number in (1, 2, 4, 8, 9, 10)))
    rows = [(f"{number}", "d1", 1) for number in (1, 3, 5, 5, 6, 7, 11, 12)]
    with pytest.raises(ValueError) as error:
        assembled(queries=queries, rows=[*rows, ("5", "d2", 1), ("5", "gone", 1), ("1", "gone", 1)])
    sides = (
        "10 judgments of split 'dev' refer to a query or a document that does not exist; "
        "9 name an unknown query (3, 5, 6, 7, 11, ...), the queries are 1, 2, 4, 8, 9, ...; "
        "2 name an unknown document (gone), the documents are d1, d2, 007; the first: qrels:2 3 d1, "
    )
    assert str(error.value).startswith(sides)
    with pytest.raises(ValueError) as error:
        assembled(rows=[("q1", "d1", 1), ("q1", "gone", 1)])
    assert "unknown query" not in str(error.value)


def test_a_large_share_of_skipped_judgments_is_warned_of(caplog):
    known = [(f"q{query}", document, 1) for query in (1, 2, 3) for document in ("d1", "d2", "007")]
    Given(DOCUMENTS, QUERIES, [*known, ("q4", "d1", 1)], unknown_ids="skip").read()
    assert not [record for record in caplog.messages if "same ones" in record]  # a tenth
    Given(DOCUMENTS, QUERIES, [*known[1:], ("q4", "d1", 1)], unknown_ids="skip").read()
    (warning,) = [record for record in caplog.messages if "same ones" in record]
    assert warning.startswith(
        "split dev: 1 of its 9 judgments are skipped; 1 name an unknown query (q4), "
        "the queries are q1, q2, q3. Are the ids of these files the same ones?"
    )


def test_unknown_ids_can_be_skipped_with_a_count():
    collection = assembled(rows=UNKNOWN, unknown_ids="skip")
    assert collection.skipped == {"dev judgments of unknown ids": 7, "dev queries without positives": 2}
    assert collection.split("dev").known_positives("query").of(0).tolist() == [0]


def test_a_pair_has_one_grade():
    again = [("q1", "d1", 1), ("q1", "d2", 1), ("q1", "d1", 1)]
    assert assembled(rows=again).split("dev").known_positives("query").of(0).tolist() == [0, 1]
    with pytest.raises(
        ValueError, match="line 4: grade 2 for query 'q1' and document 'd1', which line 1 gave 1"
    ):
        assembled(rows=[*again, ("q1", "d1", 2)])
