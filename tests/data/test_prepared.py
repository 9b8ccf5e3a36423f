from dataclasses import replace

import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import AnchorSet, PreparedData, merge_splits, merged_split

DOCUMENTS = Texts([f"d{i}" for i in range(9)], {"text": ["!"] * 9})
JUDGED = {
    "nq": {"0": [(3, 2), (1, 0)], "1": [(8, 1)], "2": [(0, 2), (4, 2), (5, 1)]},
    "trivia": {"0": [(8, 2)], "5": [(3, 1), (2, 2)]},
    "web": {"w": [(7, 2)]},
}
QUERIES = ["a", "b", "a", "c", "a", "b"]
COPIES = ["x", "y", "x", "z", "z", "w", "x", "v"]
RELEVANT = [[0], [3, 5], [1], [], [7], [2]]


def split(name: str, threshold: int = 1, **columns) -> Split:
    judged = JUDGED[name]
    pairs = [(query, *pair) for query, of_query in enumerate(judged.values()) for pair in of_query]
    texts = {"text": [f"{name} {id}?" for id in judged]}
    texts |= {column: [value] * len(judged) for column, value in columns.items()}
    qrels = Qrels.of(*zip(*pairs, strict=True), len(judged), threshold)
    return Split(name, Texts(list(judged), texts), qrels)


def collection(*names: str) -> Collection:
    return Collection(DOCUMENTS, {name: split(name) for name in names})


@pytest.mark.parametrize("names", [("nq", "trivia"), ("trivia", "nq", "web"), ("web", "nq")])
@pytest.mark.parametrize("threshold", [1, 2])
def test_merged_splits_agree_with_a_slow_loop(names, threshold):
    merged = merged_split("all", [split(name, threshold) for name in names])
    expected = [(f"{name} {id}?", of_query) for name in names for id, of_query in JUDGED[name].items()]
    assert merged.queries.columns == {"text": [text for text, _ in expected]} and merged.name == "all"
    for row, (_, of_query) in enumerate(expected):
        documents, grades = merged.qrels.judged(row)
        assert list(zip(documents.tolist(), grades.tolist(), strict=True)) == of_query
        assert merged.qrels.relevant(row).tolist() == [d for d, grade in of_query if grade >= threshold]


def test_ids_are_prefixed_only_if_two_splits_share_one():
    assert merged_split("both", [split("nq"), split("web")]).queries.ids == ["0", "1", "2", "w"]
    merged = merged_split("all", [split("nq", title="t"), split("trivia"), split("web", answers="[]")])
    assert list(merged.queries.columns) == ["text"]  # which all splits have
    assert merged.queries.ids == ["nq:0", "nq:1", "nq:2", "trivia:0", "trivia:5", "web:w"]


def test_unknown_splits_and_taken_names_are_errors():
    with pytest.raises(ValueError, match="no split 'webb'; splits: nq, trivia; use one of them"):
        merge_splits(collection("nq", "trivia"), "nq+webb", ("nq", "webb"))
    named = Collection(DOCUMENTS, {"nq+trivia": split("nq"), "nq": split("nq"), "trivia": split("trivia")})
    with pytest.raises(ValueError, match=r"split 'nq\+trivia' already exists, .* merged; rename"):
        merge_splits(named, "nq+trivia", ("nq", "trivia"))


POSITIVES = [[0, 7], [2], [7, 5], [3]]
PAIRS = [(query, document) for query, rows in enumerate(POSITIVES) for document in rows]
TRAIN_QRELS = Qrels.of(*zip(*PAIRS, strict=True), [1] * len(PAIRS), 4)
TRAIN_SPLIT = Split("train", Texts([f"q{i}" for i in range(4)], {"text": ["?"] * 4}), TRAIN_QRELS)


@pytest.mark.parametrize("chunk, documents", [([0, 1, 2, 3], [0, 2, 3, 5, 7]), ([1, 2], [2, 5, 7])])
def test_anchors_are_those_of_all_queries_or_of_a_chunk(chunk, documents):
    for side, expected in (("query", chunk), ("document", documents)):
        anchors = AnchorSet(TRAIN_SPLIT, side, 10, None if len(chunk) == 4 else np.array(chunk)).anchors
        assert anchors.tolist() == expected and anchors.dtype == np.int32


def test_a_chunk_is_of_rows_of_queries_of_which_some_have_no_positive():
    split = Split("train", Texts(["a", "b", "c"], {"text": ["?"] * 3}), Qrels.of([0, 2], [1, 2], [1, 1], 3))
    for chunk, expected in (([0, 1], [0]), ([2], [2]), ([1], [])):
        assert AnchorSet(split, "query", 10, np.array(chunk)).anchors.tolist() == expected


@pytest.mark.parametrize("threshold", [1, 2])
def test_more_positives_come_after_the_judged_ones_on_both_sides(threshold):
    judged = split("nq", threshold)
    pairs = np.array([[0, 7], [0, 1], [2, 6], [1, 8]], np.int32)  # document 1 has grade 0, 8 is judged
    anchor_set = AnchorSet(judged, "query", 9)
    more = anchor_set.with_positives(pairs)
    expected = {}
    for query, of_query in enumerate(JUDGED["nq"].values()):
        known = {document: grade for document, grade in of_query if grade >= threshold}
        added = {document: threshold for row, document in pairs.tolist() if row == query}
        expected[query] = [*known.items(), *((d, g) for d, g in added.items() if d not in known)]
    found = more.known_positives
    for query, known in expected.items():
        of_query = slice(found.offsets[query], found.offsets[query + 1])
        listed = dict(zip(found.rows[of_query].tolist(), found.grades[of_query].tolist(), strict=True))
        assert list(listed.items()) == known
    of_documents = replace(more, anchor="document").known_positives
    asking = {d: {q for q, known in expected.items() if d in dict(known)} for d in range(9)}
    assert {d: set(of_documents.of(d).tolist()) for d in range(9)} == asking
    assert more.judged is judged and anchor_set.judged is None
    again = more.with_positives(pairs[:1])  # in place of the others
    assert again.known_positives.of(2).tolist() == anchor_set.known_positives.of(2).tolist()
    assert anchor_set.with_positives(pairs[:0]) is anchor_set


def test_the_last_positive_alone_is_known_on_both_sides():
    """As microsoft/ANCE keeps `training_query_positive_id[topicid] = docid`, line by line."""
    judged = [(0, 4, 1), (1, 2, 0), (0, 1, 2), (1, 3, 1), (0, 2, 0), (1, 4, 1), (2, 0, 3)]
    qrels = Qrels.of(*zip(*judged, strict=True), 3)
    split = Split("train", Texts(["a", "b", "c"], {"text": ["", "", ""]}), qrels)
    slowly = {query: document for query, document, grade in judged if grade >= 1}
    last = split.with_last_positive()
    known = last.known_positives("query")
    assert {query: known.of(query).tolist() for query in range(3)} == {q: [d] for q, d in slowly.items()}
    assert known.grades.tolist() == [2, 1, 3] and last.queries is split.queries
    whole = Collection(Texts([*"01234"], {"text": [""] * 5}), {"train": split})
    data = PreparedData(whole, None, {}, "train", "", last_positive_alone=True)
    of_documents = data.anchor_sets["document"].known_positives
    found = {document: of_documents.of(document).tolist() for document in of_documents.anchors}
    assert found == {document: [query] for query, document in slowly.items()}
    assert data.collection.split("train").known_positives("query").counts.tolist() == [2, 2, 1]


def texts_of(texts: list[str]) -> Texts:
    return Texts([str(row) for row in range(len(texts))], {"text": texts})


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize("documents", [COPIES, [*"abcdefgh"]])
@pytest.mark.parametrize("queries", [QUERIES, [*"abcdef"]])
def test_what_is_never_negative_agrees_with_a_slow_loop(side, queries, documents, ignored):
    pairs = [(query, document) for query, rows in enumerate(RELEVANT) for document in rows]
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
    plain = queries == [*"abcdef"] and documents == [*"abcdefgh"] and not ignored
    assert (anchor_set.never_negative(anchors, candidates, known) is known) == plain
