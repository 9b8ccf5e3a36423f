import numpy as np
import pytest
import torch
from transformers import RobertaModel

from pyserini_ance.data.passages import Passages, pad_passages, split_passages
from pyserini_ance.data.token_store import Specials, TokenStore

SPECIALS = Specials((1,), (2,), 0)
TEXTS = [list(range(10, 10 + length)) for length in (7, 0, 3, 6, 1, 20)]


def read(store: TokenStore, passages: Passages, length: int) -> list[list[list[int]]]:
    """The tokens of each passage of each document."""
    result = []
    for start, stop in zip(passages.offsets, passages.offsets[1:], strict=False):
        rows = np.arange(start, stop)
        ids, mask = store.batch(rows, length)
        lengths = mask.sum(1).tolist()
        assert store.lengths(length, rows).tolist() == store.lengths(length)[
            start:stop
        ].tolist() == lengths and ids.shape[1] == max(lengths)
        assert (
            mask.tolist() == [[1] * own + [0] * (max(lengths) - own) for own in lengths]
            and not ids[mask == 0].any()
        )
        result.append([row[:own].tolist() for row, own in zip(ids, lengths, strict=True)])
    assert len(store) == passages.offsets[-1] and passages.max_passages == max(map(len, result))
    mixed = np.random.default_rng(0).permutation(len(store))
    ids, mask = store.batch(mixed, length)
    flat = [passage for document in result for passage in document]
    assert [row[is_token == 1].tolist() for row, is_token in zip(ids, mask, strict=True)] == [
        flat[row] for row in mixed
    ]
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


def test_one_passage_is_the_text_itself():
    whole = TokenStore.of_lists(TEXTS, SPECIALS)
    store, passages = split_passages(whole, 5, 1)
    assert (
        passages.offsets.tolist() == list(range(7))
        and store.offsets.tolist() == whole.offsets.tolist()
        and store.ids is whole.ids
    )


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


WRITTEN_OUT = {
    "per_passage": [
        [[1, 10, 11, 12, 2], [1, 13, 14, 15, 2]],  # of 20; what is left over is not read
        [[1, 10, 11, 12, 2], [1, 13, 2]],
        [[1, 10, 2]],
    ],
    "per_document": [
        [[1, 10, 11, 12, 13], [14, 15, 16, 17, 2]],
        [[1, 10, 11, 12, 13], [2]],  # of 4: the end alone
        [[1, 10, 2]],
    ],
}


@pytest.mark.parametrize("around", WRITTEN_OUT)
@pytest.mark.parametrize("filled", [False, True])
def test_special_tokens_and_padding(around, filled):
    expected = WRITTEN_OUT[around]
    store, passages = split_passages(
        TokenStore.of_lists([list(range(10, 10 + length)) for length in (20, 4, 1)], SPECIALS), 5, 2, around
    )
    if filled:
        store, passages = pad_passages(store, passages, 2)
        expected = [*expected[:2], [[1, 10, 2], [0]]]
        assert passages.filled.tolist() == [2, 2, 1] and passages.empty == 1
    assert read(store, passages, 5) == expected


def test_padding_gives_every_document_the_same_number_of_passages():
    """Even beyond the longest document: the number of rows does not depend on the data."""
    store, passages = pad_passages(*split_passages(TokenStore.of_lists(TEXTS[:3], SPECIALS), 6, 4), 4)
    assert passages.offsets.tolist() == [0, 4, 8, 12] and passages.filled.tolist() == [2, 1, 1]
    assert store.lengths(6).tolist() == [6, 5, 1, 1, 2, 1, 1, 1, 5, 1, 1, 1]
    ids, mask = store.batch(np.array([7, 2]), 6)
    assert ids.tolist() == [[0], [0]] and mask.tolist() == [[1], [1]]


def test_an_empty_passage_equals_a_fully_padded_one_for_roberta(tiny_roberta):
    """microsoft/ANCE encodes a passage that is fully masked.

    Eager attention adds the same to all scores and then attends to all tokens.
    """
    model = RobertaModel.from_pretrained(tiny_roberta, attn_implementation="eager").eval()
    pad = model.config.pad_token_id
    with torch.inference_mode():
        one = model(
            input_ids=torch.tensor([[pad]]), attention_mask=torch.ones(1, 1, dtype=torch.long)
        ).last_hidden_state[:, 0]
        many = model(
            input_ids=torch.full((1, 40), pad), attention_mask=torch.zeros(1, 40, dtype=torch.long)
        ).last_hidden_state[:, 0]
    torch.testing.assert_close(one, many, atol=1e-5, rtol=1e-5)
