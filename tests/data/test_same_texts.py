import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.texts import SameTexts

QUERIES = ["a", "b", "a", "c", "a", "b"]
DOCUMENTS = ["x", "y", "x", "z", "z", "w", "x", "v"]
POSITIVES = [[0], [3, 5], [1], [], [7], [2]]


def texts_of(texts: list[str], **columns: list[str]) -> Texts:
    return Texts([str(row) for row in range(len(texts))], {**columns, "text": texts})


@pytest.mark.parametrize("hashes", [None, np.array([7, 9, 7, 8, 9, 9, 7]), np.zeros(7, np.int64)])
@pytest.mark.parametrize(
    "columns", [{}, {"title": [*"ttTtttt"]}, {"title": [*"ttttttt"], "url": [*"abcdefg"]}]
)
def test_texts_with_equal_title_and_text_have_the_first_row_of_it(hashes, columns):
    texts = texts_of(["a", "b", "a", "b ", "B", "b", "a"], **columns)
    same, fields = (
        SameTexts.among(texts, hashes),
        [(one.get("title"), one["text"]) for one in texts.take(range(7))],
    )
    firsts = np.array([fields.index(one) for one in fields])
    assert same.rows.tolist() == [row for row in range(7) if fields.count(fields[row]) > 1]
    assert same.firsts.tolist() == firsts[same.rows].tolist()
    rows = np.array([[6, -1], [0, 3]])
    assert same.first_of(rows).tolist() == [[firsts[6], -1], [0, 3]]
    assert same.counts(firsts).tolist() == [fields.count(one) for one in fields]


def test_texts_without_a_text_are_compared_by_all_their_fields():
    same = SameTexts.among(Texts([*"abc"], {"title": [*"ttt"], "body": [*"xyx"]}))
    assert (same.rows.tolist(), same.firsts.tolist()) == ([0, 2], [0, 0])
    assert not len(SameTexts.among(Texts([], {})))


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize("documents", [DOCUMENTS, [*"abcdefgh"]])
@pytest.mark.parametrize("queries", [QUERIES, [*"abcdef"]])
def test_what_is_never_negative_agrees_with_a_slow_loop(side, queries, documents, ignored):
    pairs = [(query, document) for query, rows in enumerate(POSITIVES) for document in rows]
    split = Split("train", texts_of(queries), Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), 6))
    collection = Collection(texts_of(documents), {"train": split}, ignore_identical_ids=ignored)
    anchor_set = AnchorSet.of(collection, split, side)
    related = {(queries[query], documents[document]) for query, document in pairs}
    slowly = np.array([[(query, document) in related for document in documents] for query in queries])
    if ignored:  # the first queries have the ids of the first documents
        slowly |= np.eye(*slowly.shape, dtype=bool)
    slowly = slowly if side == "query" else slowly.T
    anchors = anchor_set.anchors
    candidates = np.tile(np.append(np.arange(anchor_set.candidates), -1), (len(anchors), 1))
    found = anchor_set.never_negative(anchors, candidates)
    assert found[:, :-1].tolist() == slowly[anchors].tolist() and not found[:, -1].any()
    row, most = anchor_set.most_excluded
    without = slowly.sum(1) if not ignored else slowly[anchors].sum(1)
    assert most - without.max() in ([0, 1] if ignored else [0])
    assert ignored or most == slowly[row].sum()
    known = np.zeros(found.shape, bool)
    assert (anchor_set.never_negative(anchors, candidates, known) is known) == (
        queries == [*"abcdef"] and documents == [*"abcdefgh"] and not ignored
    )
