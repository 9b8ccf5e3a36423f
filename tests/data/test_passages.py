import numpy as np
import pytest

from pyserini_ance.data.cut import cut
from pyserini_ance.data.passages import Passages, repeats
from pyserini_ance.data.token_store import Specials, TokenStore

SPECIALS = Specials((1,), (2,), 0)
TEXTS = [list(range(10, 10 + length)) for length in (7, 0, 3, 6, 1, 20)]


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("length", [5, 6])
def test_passages_agree_with_a_slow_cut(most, length):
    store, passages = cut(TokenStore.of_lists(TEXTS, SPECIALS), length, most)
    expected, room = [], length - 2
    for text in TEXTS:
        pieces = [text[start : start + room] for start in range(0, len(text), room)] or [[]]
        expected.append([[1, *piece, 2] for piece in pieces[:most]])
    found = []
    for document in range(len(TEXTS)):
        rows = np.arange(*passages.offsets[document : document + 2])
        ids, mask = store.batch(rows, length)
        assert store.lengths(length, rows).tolist() == mask.sum(1).tolist()
        found.append([row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)])
    assert found == expected and len(store) == sum(map(len, expected)) and passages.most == max(map(len, expected))


def test_one_passage_is_the_text_itself():
    whole = TokenStore.of_lists(TEXTS, SPECIALS)
    store, passages = cut(whole, 5, 1)
    assert passages.offsets.tolist() == list(range(7)) and store.offsets.tolist() == whole.offsets.tolist() and store.ids is whole.ids


def test_rows_of_documents_and_documents_of_rows():
    passages = Passages(np.array([0, 2, 3, 6]))
    rows, mask = passages.of(np.array([[2, 0], [1, 1]]))
    assert rows.tolist() == [[[3, 4, 5], [0, 1, 0]], [[2, 2, 2], [2, 2, 2]]]
    assert mask.tolist() == [[[True] * 3, [True, True, False]], [[True, False, False]] * 2]
    assert passages.documents(np.array([[0, 1, 2], [5, 3, 0]])).tolist() == [[0, 0, 1], [2, 2, 0]]


def test_the_best_documents_agree_with_a_slow_maximum():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, 60)
    passages = Passages(np.concatenate([[0], np.cumsum(counts)]))
    scores = rng.integers(0, 40, (20, counts.sum())).astype(np.float32)  # many tie
    order = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores), axis=-1)[:, : 7 * passages.most]
    found, documents = passages.best(np.take_along_axis(scores, order, 1), order, 7)
    for query in range(20):
        best = [scores[query, a:b].max() for a, b in zip(passages.offsets, passages.offsets[1:], strict=False)]
        ranked = sorted(range(60), key=lambda document: (-best[document], passage_of(scores[query], passages, document)))[:7]
        assert documents[query].tolist() == ranked and found[query].tolist() == [best[document] for document in ranked]


def passage_of(scores: np.ndarray, passages: Passages, document: int) -> int:
    """The first of its best passages."""
    start, stop = passages.offsets[document : document + 2]
    return int(start + scores[start:stop].argmax())


def test_too_shallow_a_ranking_is_refused():
    passages = Passages(np.array([0, 3, 4]))
    with pytest.raises(ValueError, match="1 rankings of 3 passages hold fewer than 2 documents"):
        passages.best(np.zeros((2, 3)), np.array([[0, 1, 2], [0, 1, 3]]), 2)


def test_repeats_marks_all_but_the_first():
    assert repeats(np.array([[3, 1, 3, 3], [5, 5, 0, 1]])).tolist() == [[False, False, True, True], [False, True, False, False]]
