import hashlib
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.texts import SameTexts, Strings

# query 0: documents 3 (grade 2), 1 (grade 0), 0 (grade 1); query 1: none; query 2: document 3 (grade 1)
QRELS = Qrels.of([0, 2, 0, 0], [3, 3, 1, 0], [2, 1, 0, 1], queries=3)


def texts(ids: str, **columns: str) -> Texts:
    return Texts(ids.split(), {name: values.split() for name, values in columns.items()})


def test_texts_are_looked_up_by_row_and_by_id():
    result = texts("007 7", title="A B", text="a b")
    assert len(result) == 2
    assert result[0] == {"title": "A", "text": "a"}
    assert result.take(np.array([1, 0, 1])) == [result[1], result[0], result[1]]
    assert (result.rows["007"], result.rows["7"]) == (0, 1)
    assert result.subset([1]).ids == ["7"] and result.subset([1])[0] == result[1]
    assert "07" not in result.rows


def test_the_digest_of_texts_is_sha256_of_the_fields_then_of_each_column_with_lengths():
    names = [part.encode() for part in ["2", "title", "text"]]
    written = b"".join(len(name).to_bytes(8, "little") + name for name in names)
    for column in (["007", "7"], ["A", "B"], ["é", "b"]):
        written += b"".join(len(text.encode()).to_bytes(8, "little") for text in column)
        written += "".join(column).encode()
    assert texts("007 7", title="A B", text="é b").digest == hashlib.sha256(written).hexdigest()


@pytest.mark.parametrize("ids", [["a", "b", "é", "a b"], Strings.of(["a", "b", "é", "a b"])])
def test_rows_are_found_for_many_ids_at_once(ids):
    found = Texts(ids, {}).rows_of(["é", "x", "a", "\ud800", "é", "a b"])
    assert found.tolist() == [2, -1, 0, -1, 2, 3] and Texts(ids, {}).rows_of([]).tolist() == []


def test_strings_are_a_sequence():
    strings = Strings(pa.chunked_array([["x", "a"], [], ["a", "x", "\0"]], pa.large_string()))
    assert strings == ["x", "a", "a", "x", "\0"] and strings[-1] == "\0" and strings[1:3] == ["a", "a"]
    assert strings.first_repeat() == (0, 3) and Strings.of(["a", "b"]).first_repeat() is None
    with pytest.raises(IndexError):
        strings[5]


def test_a_subset_of_qrels_renumbers_the_queries():
    subset = QRELS.subset(np.array([2, 0]))
    assert subset.relevant(0).tolist() == [3]
    assert [part.tolist() for part in subset.judged(1)] == [[3, 1, 0], [2, 0, 1]]


def test_the_digest_of_qrels_depends_on_grades_and_threshold():
    settings = product(([1, 1], [1, 2]), (1, 2))
    assert len({Qrels.of([0, 0], [1, 2], grades, 1, threshold).digest for grades, threshold in settings}) == 4


def test_the_collection_digest_covers_documents_and_splits():
    split = Split("train", texts("a b c", text="x y z"), QRELS)
    other = Split("train", texts("a b c", text="x y w"), QRELS)
    documents = texts("d", text="t")
    digest = Collection(documents, {"train": split}).digest
    assert len({digest, *(Collection(documents, splits).digest for splits in ({"train": other}, {}))}) == 3
    assert Collection(documents, {"train": split}, {"train queries without positives": 3}).digest == digest


@pytest.mark.parametrize("hashes", [None, np.array([7, 9, 7, 8, 9, 9, 7]), np.zeros(7, np.int64)])
@pytest.mark.parametrize("columns", [{}, {"title": [*"ttTtttt"]}, {"title": ["t"] * 7, "url": [*"abcdefg"]}])
def test_texts_with_equal_title_and_text_have_the_first_row_of_it(hashes, columns):
    texts = Texts([*"1234567"], {**columns, "text": ["a", "b", "a", "b ", "B", "b", "a"]})
    same = SameTexts.among(texts, hashes)
    fields = [(one.get("title"), one["text"]) for one in texts.take(range(7))]
    firsts = np.array([fields.index(one) for one in fields])
    assert same.rows.tolist() == [row for row in range(7) if fields.count(fields[row]) > 1]
    assert same.firsts.tolist() == firsts[same.rows].tolist()
    assert same.first_of(np.array([[6, -1], [0, 3]])).tolist() == [[firsts[6], -1], [0, 3]]
    assert same.counts(firsts).tolist() == [fields.count(one) for one in fields]


def test_texts_without_a_text_are_compared_by_all_their_fields():
    same = SameTexts.among(Texts([*"abc"], {"title": [*"ttt"], "body": [*"xyx"]}))
    assert (same.rows.tolist(), same.firsts.tolist()) == ([0, 2], [0, 0])
    assert not len(SameTexts.among(Texts([], {})))
