import numpy as np
import pytest

from pyserini_ance.data.passages import Passages, pad_passages, split_passages
from pyserini_ance.data.token_store import Specials, TokenStore

SPECIALS = Specials((1,), (2,), 0)
TEXTS = [list(range(10, 10 + length)) for length in (7, 0, 3, 6, 1, 20)]


def test_filled_rows_skip_empty_passages():
    passages = Passages(np.array([0, 3, 6, 9]), np.array([2, 3, 1]))
    rows, of = passages.rows(np.array([2, 0]))
    assert rows.tolist() == [6, 7, 8, 0, 1, 2] and of.offsets.tolist() == [0, 3, 6]
    rows, of = passages.rows(np.array([2, 0]), filled=True)
    assert rows.tolist() == [6, 0, 1] and of.offsets.tolist() == [0, 1, 3] and of.filled is None
    assert passages.empty == 3 and Passages(passages.offsets).empty == 0


def test_the_best_documents_agree_with_a_slow_maximum():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 60)
    passages = Passages(np.concatenate([[0], np.cumsum(counts)]))
    scores = rng.integers(0, 40, (20, counts.sum())).astype(np.float32)  # many tie
    ties = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.lexsort((ties, -scores), axis=-1)[:, : 7 * passages.max_passages]
    result, documents = passages.search(
        lambda own, k: (np.take_along_axis(own, order, 1), order[:, :k]), scores, 7
    )
    for query, own in enumerate(scores):
        ranges = zip(passages.offsets, passages.offsets[1:], strict=False)
        # by the first of a document's best passages, where documents tie
        best = sorted((-own[a:b].max(), a + own[a:b].argmax(), row) for row, (a, b) in enumerate(ranges))
        assert documents[query].tolist() == [document for _, _, document in best[:7]]
        assert result[query].tolist() == [-score for score, _, _ in best[:7]]


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


def test_a_ranking_that_ends_early_gives_fewer_documents():
    passages = Passages(np.array([0, 3, 4, 6]))
    scores = np.array([[9, 8, 7, -99], [9, 6, -99, -99]], np.float32)
    result, documents = passages.of_ranking(scores, np.array([[4, 5, 1, -1], [0, 3, -1, -1]]))
    assert documents.tolist() == [[2, 0, -1, -1], [0, 1, -1, -1]] and documents.dtype == np.int32
    assert result.tolist() == [[9, 7, *[-np.inf] * 2], [9, 6, *[-np.inf] * 2]] and result.dtype == np.float32


def read(store: TokenStore, passages: Passages, length: int) -> list[list[list[int]]]:
    """The tokens of each passage of each document."""
    result = []
    for start, stop in zip(passages.offsets, passages.offsets[1:], strict=False):
        rows = np.arange(start, stop)
        ids, mask = store.batch(rows, length)
        lengths = mask.sum(1).tolist()
        whole = store.lengths(length)[start:stop].tolist()
        assert store.lengths(length, rows).tolist() == whole == lengths and ids.shape[1] == max(lengths)
        assert mask.tolist() == [[1] * own + [0] * (max(lengths) - own) for own in lengths]
        assert not ids[mask == 0].any()
        result.append([row[:own].tolist() for row, own in zip(ids, lengths, strict=True)])
    assert len(store) == passages.offsets[-1] and passages.max_passages == max(map(len, result))
    mixed = np.random.default_rng(0).permutation(len(store))
    ids, mask = store.batch(mixed, length)
    flat = [passage for document in result for passage in document]
    found = [row[is_token == 1].tolist() for row, is_token in zip(ids, mask, strict=True)]
    assert found == [flat[row] for row in mixed]
    return result


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("length", [5, 6])
def test_passages_agree_with_a_slow_split(most, length):
    store, passages = split_passages(TokenStore.of_lists(TEXTS, SPECIALS), length, most)
    expected, text_tokens = [], length - 2
    for text in TEXTS:
        pieces = [text[start : start + text_tokens] for start in range(0, len(text), text_tokens)] or [[]]
        expected.append([[1, *piece, 2] for piece in pieces[:most]])
    assert read(store, passages, length) == expected


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("specials", [SPECIALS, Specials((), (), 0), Specials((1,), (2, 3), 0)])
def test_passages_with_special_tokens_per_document_agree_with_a_slow_split(most, specials):
    texts = [text or [9] for text in TEXTS]
    store, passages = split_passages(TokenStore.of_lists(texts, specials), 5, most, "per_document")
    expected = []
    for text in texts:
        before, after = list(specials.before), list(specials.after)
        whole = [*before, *text[: 5 * most - len(before) - len(after)], *after]
        expected.append([whole[start : start + 5] for start in range(0, len(whole), 5)])
    assert read(store, passages, 5) == expected


def test_padding_gives_every_document_the_same_number_of_passages():
    """Even beyond the longest document: the number of rows does not depend on the data."""
    store, passages = pad_passages(*split_passages(TokenStore.of_lists(TEXTS[:3], SPECIALS), 6, 4), 4)
    assert passages.offsets.tolist() == [0, 4, 8, 12] and passages.filled.tolist() == [2, 1, 1]
    assert store.lengths(6).tolist() == [6, 5, 1, 1, 2, 1, 1, 1, 5, 1, 1, 1]
    ids, mask = store.batch(np.array([7, 2]), 6)
    assert ids.tolist() == [[0], [0]] and mask.tolist() == [[1], [1]]
