"""The share of texts that the encoder cuts, against what it encodes."""

import numpy as np
import pytest

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.tokenization import (
    DocumentTokenization,
    QueryTokenization,
    Tokenization,
    split_into_passages,
)
from pyserini_ance.encoders.truncation import Truncation

SPECIALS = Specials((1,), (2, 3), 0)
LENGTHS = [0, 1, 7, 8, 9, 10, 14, 15, 16, 17, 18, 27, 28, 40]


def encoded_tokens(store: TokenStore, settings: Tokenization) -> list[int]:
    """The number of text tokens that are encoded of each document."""
    rows, passages = split_into_passages(store, settings)
    ids, mask = rows.batch(np.arange(len(rows)), settings.document.length_tokens)
    counts = ((ids >= 100) & (mask == 1)).sum(1)
    if passages is None:
        return counts.tolist()
    return np.add.reduceat(counts, passages.offsets[:-1]).tolist()


@pytest.mark.parametrize("length", [8, 11, 30])
@pytest.mark.parametrize(
    "passages", [{}, {"passages": 2}, {"passages": 2, "special_tokens": "per_document"}], ids=str
)
def test_a_text_counts_as_cut_if_some_of_its_tokens_are_not_encoded(length, passages):
    store = TokenStore.of_lists([range(100, 100 + n) for n in LENGTHS], SPECIALS)
    document = DocumentTokenization(length_tokens=length, template="{text}", **passages)
    encoded = encoded_tokens(store, Tokenization(document=document))
    truncation = Truncation.of(np.array(LENGTHS), SPECIALS, document)
    assert truncation.cut == sum(a < b for a, b in zip(encoded, LENGTHS, strict=True))
    assert truncation.median_tokens == 14 + 3  # of 14 texts, the middle two have 14 and 15 tokens


@pytest.mark.parametrize(
    ("lengths", "share"),
    [([5] * 8, "0.0 %"), ([5] * 7 + [6], "12.5 %"), ([6], "100.0 %"), ([5] * 9999 + [6], "below 0.1 %")],
)
def test_what_is_said(lengths, share):
    truncation = Truncation.of(np.array(lengths), SPECIALS, QueryTokenization(length_tokens=8))
    assert truncation.share == share
    expected = f"{share} of the train queries are cut at 8 tokens, median {8 + (share == '100.0 %')} tokens"
    assert truncation.describe("train queries") == expected


def test_passages_are_part_of_the_limit():
    document = DocumentTokenization(length_tokens=8, passages=4)
    assert Truncation.of(np.array([21]), SPECIALS, document).describe("documents") == (
        "100.0 % of the documents are cut at 4 passages of 8 tokens, median 24 tokens"
    )
