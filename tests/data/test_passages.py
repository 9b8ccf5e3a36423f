import numpy as np
import pytest

from pyserini_ance.data.passages import Passages, repeats


def test_rows_of_documents_and_documents_of_rows():
    passages = Passages(np.array([0, 2, 3, 6]))
    rows, mask = passages.of(np.array([[2, 0], [1, 1]]))
    assert rows.tolist() == [[[3, 4, 5], [0, 1, 0]], [[2, 2, 2], [2, 2, 2]]]
    assert mask.tolist() == [[[True] * 3, [True, True, False]], [[True, False, False]] * 2]
    assert passages.documents(np.array([[0, 1, 2], [5, 3, 0]])).tolist() == [[0, 0, 1], [2, 2, 0]]


def test_filled_rows_skip_empty_passages():
    passages = Passages(np.array([0, 3, 6, 9]), np.array([2, 3, 1]))
    rows, of = passages.rows(np.array([2, 0]))
    assert rows.tolist() == [6, 7, 8, 0, 1, 2] and of.offsets.tolist() == [0, 3, 6]
    rows, of = passages.filled_rows(np.array([2, 0]))
    assert rows.tolist() == [6, 0, 1] and of.offsets.tolist() == [0, 1, 3] and of.filled is None
    assert passages.empty == 3 and Passages(passages.offsets).empty == 0


def test_the_best_documents_agree_with_a_slow_maximum():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 60)
    passages = Passages(np.concatenate([[0], np.cumsum(counts)]))
    scores = rng.integers(0, 40, (20, counts.sum())).astype(np.float32)  # many tie
    order = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores), axis=-1)[
        :, : 7 * passages.max_passages
    ]
    result, documents = passages.best(np.take_along_axis(scores, order, 1), order, 7)
    for query in range(20):
        best = [
            scores[query, a:b].max() for a, b in zip(passages.offsets, passages.offsets[1:], strict=False)
        ]
        ranked = sorted(
            range(60), key=lambda document: (-best[document], passage_of(scores[query], passages, document))
        )[:7]
        assert documents[query].tolist() == ranked and result[query].tolist() == [
            best[document] for document in ranked
        ]


def passage_of(scores: np.ndarray, passages: Passages, document: int) -> int:
    """The first of the document's best passages."""
    start, stop = passages.offsets[document : document + 2]
    return int(start + scores[start:stop].argmax())


def test_documents_of_a_ranking_agree_with_a_slow_loop():
    rng = np.random.default_rng(2)
    passages = Passages.of_counts(rng.integers(1, 5, 20))
    scores = rng.integers(0, 40, (9, passages.offsets[-1])).astype(np.float32)  # many tie
    order = np.argsort(-scores, axis=1, kind="stable")[:, :12]
    order[0, 7:] = -1  # an approximate index may end early
    ranked = np.where(order >= 0, np.take_along_axis(scores, order, 1), -np.inf)
    found_scores, found = passages.of_ranking(ranked, order)
    for query in range(9):
        slow: dict[int, float] = {}
        for passage, score in zip(order[query].tolist(), ranked[query].tolist(), strict=True):
            if passage >= 0:
                document = next(d for d in range(20) if passage < passages.offsets[d + 1])
                slow.setdefault(document, score)
        missing = 12 - len(slow)
        assert missing and found[query].tolist() == [*slow, *[-1] * missing]
        assert found_scores[query].tolist() == [*slow.values(), *[-np.inf] * missing]


def test_merged_rankings_agree_with_a_slow_maximum(monkeypatch):
    monkeypatch.setattr("pyserini_ance.data.passages.DOCUMENTS_PER_BLOCK", 8)
    rng = np.random.default_rng(1)
    passages = Passages.of_counts(rng.integers(1, 5, 20))
    for queries, k in ((60, 7), (5, 5), (40, 1)):
        scores = rng.integers(0, 40, (passages.offsets[-1], queries)).astype(np.float32)  # many tie
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        result, rows = passages.merge(np.take_along_axis(scores, order, 1), order)
        assert result.shape == rows.shape == (20, k)
        for document, (a, b) in enumerate(zip(passages.offsets, passages.offsets[1:], strict=False)):
            best = scores[a:b].max(0)
            ranked = sorted(range(queries), key=lambda query: (-best[query], query))[:k]
            assert rows[document].tolist() == ranked and result[document].tolist() == best[ranked].tolist()


def test_a_ranking_of_too_few_documents_is_an_error():
    passages = Passages(np.array([0, 3, 4]))
    with pytest.raises(ValueError, match="1 rankings of 3 passages hold fewer than 2 documents"):
        passages.best(np.zeros((2, 3)), np.array([[0, 1, 2], [0, 1, 3]]), 2)


def test_a_ranking_that_ends_early_gives_fewer_documents():
    passages = Passages(np.array([0, 3, 4, 6]))
    scores = np.array([[9, 8, 7, -99], [9, 6, -99, -99]], np.float32)
    result, documents = passages.best(scores, np.array([[4, 5, 1, -1], [0, 3, -1, -1]]), 3)
    assert documents.tolist() == [[2, 0, -1], [0, 1, -1]] and documents.dtype == np.int32
    assert result.tolist() == [[9, 7, -np.inf], [9, 6, -np.inf]] and result.dtype == np.float32


def test_repeats_marks_all_but_the_first():
    assert repeats(np.array([[3, 1, 3, 3], [5, 5, 0, 1]])).tolist() == [
        [False, False, True, True],
        [False, True, False, False],
    ]
