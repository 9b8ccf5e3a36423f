import numpy as np
import pytest
import torch
from transformers import RobertaModel

from pyserini_ance.data.cut import cut, fill_up
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.token_store import Specials, TokenStore

SPECIALS = Specials((1,), (2,), 0)
TEXTS = [list(range(10, 10 + length)) for length in (7, 0, 3, 6, 1, 20)]


def read(store: TokenStore, passages: Passages, length: int) -> list[list[list[int]]]:
    """The tokens of each passage of each document."""
    found = []
    for start, stop in zip(passages.offsets, passages.offsets[1:], strict=False):
        rows = np.arange(start, stop)
        ids, mask = store.batch(rows, length)
        lengths = mask.sum(1).tolist()
        assert store.lengths(length, rows).tolist() == store.lengths(length)[start:stop].tolist() == lengths and ids.shape[1] == max(lengths)
        assert mask.tolist() == [[1] * own + [0] * (max(lengths) - own) for own in lengths] and not ids[mask == 0].any()
        found.append([row[:own].tolist() for row, own in zip(ids, lengths, strict=True)])
    assert len(store) == passages.offsets[-1] and passages.most == max(map(len, found))
    mixed = np.random.default_rng(0).permutation(len(store))
    ids, mask = store.batch(mixed, length)
    flat = [passage for document in found for passage in document]
    assert [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)] == [flat[row] for row in mixed]
    return found


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("length", [5, 6])
def test_passages_agree_with_a_slow_cut(most, length):
    store, passages = cut(TokenStore.of_lists(TEXTS, SPECIALS), length, most)
    expected, room = [], length - 2
    for text in TEXTS:
        pieces = [text[start : start + room] for start in range(0, len(text), room)] or [[]]
        expected.append([[1, *piece, 2] for piece in pieces[:most]])
    assert read(store, passages, length) == expected


def test_one_passage_is_the_text_itself():
    whole = TokenStore.of_lists(TEXTS, SPECIALS)
    store, passages = cut(whole, 5, 1)
    assert passages.offsets.tolist() == list(range(7)) and store.offsets.tolist() == whole.offsets.tolist() and store.ids is whole.ids


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("specials", [SPECIALS, Specials((), (), 0), Specials((1,), (2, 3), 0)])
def test_passages_of_a_document_with_its_special_tokens_agree_with_a_slow_cut(most, specials):
    texts = [text or [9] for text in TEXTS]
    store, passages = cut(TokenStore.of_lists(texts, specials), 5, most, "document")
    expected = []
    for text in texts:
        before, after = list(specials.before), list(specials.after)
        whole = [*before, *text[: 5 * most - len(before) - len(after)], *after]
        expected.append([whole[start : start + 5] for start in range(0, len(whole), 5)])
    assert read(store, passages, 5) == expected


WRITTEN_OUT = {
    "passage": [
        [[1, 10, 11, 12, 2], [1, 13, 14, 15, 2]],  # of 20; what is left over is not read
        [[1, 10, 11, 12, 2], [1, 13, 2]],
        [[1, 10, 2]],
    ],
    "document": [
        [[1, 10, 11, 12, 13], [14, 15, 16, 17, 2]],
        [[1, 10, 11, 12, 13], [2]],  # of 4: the end alone
        [[1, 10, 2]],
    ],
}


@pytest.mark.parametrize("around", WRITTEN_OUT)
@pytest.mark.parametrize("filled", [False, True])
def test_the_four_choices(around, filled):
    expected = WRITTEN_OUT[around]
    store, passages = cut(TokenStore.of_lists([list(range(10, 10 + length)) for length in (20, 4, 1)], SPECIALS), 5, 2, around)
    if filled:
        store, passages = fill_up(store, passages, 2)
        expected = [*expected[:2], [[1, 10, 2], [0]]]
        assert passages.filled.tolist() == [2, 2, 1] and passages.empty == 1
    assert read(store, passages, 5) == expected


def test_all_are_filled_up_to_the_same_number():
    """Beyond what the longest document has, too: the number of rows is no property of the data."""
    store, passages = fill_up(*cut(TokenStore.of_lists(TEXTS[:3], SPECIALS), 6, 4), 4)
    assert passages.offsets.tolist() == [0, 4, 8, 12] and passages.filled.tolist() == [2, 1, 1]
    assert store.lengths(6).tolist() == [6, 5, 1, 1, 2, 1, 1, 1, 5, 1, 1, 1]
    ids, mask = store.batch(np.array([7, 2]), 6)
    assert ids.tolist() == [[0], [0]] and mask.tolist() == [[1], [1]]


def test_an_empty_passage_is_to_roberta_what_a_length_of_padding_is(tiny_roberta):
    """All of it masked, as microsoft/ANCE encodes it: eager attention, which adds the same to all, then sees all."""
    model = RobertaModel.from_pretrained(tiny_roberta, attn_implementation="eager").eval()
    pad = model.config.pad_token_id
    with torch.inference_mode():
        one = model(input_ids=torch.tensor([[pad]]), attention_mask=torch.ones(1, 1, dtype=torch.long)).last_hidden_state[:, 0]
        many = model(input_ids=torch.full((1, 40), pad), attention_mask=torch.zeros(1, 40, dtype=torch.long)).last_hidden_state[:, 0]
    torch.testing.assert_close(one, many, atol=1e-5, rtol=1e-5)
