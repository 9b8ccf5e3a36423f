"""Passages of words that the tiny tokenizer splits into letters, and questions."""

import random

import pytest
from helpers.small_set import PASSAGE_WORDS as WORDS

from benchmarks.papers.readers.base import Passage


@pytest.fixture(scope="session")
def passages() -> list[Passage]:
    """Seven, from one word to some 150 tokens; the fourth has no title."""
    chosen = random.Random(5)
    drawn = [(chosen.choices(WORDS, k=2), chosen.choices(WORDS, k=k)) for k in (6, 1, 40, 9, 22, 3, 14)]
    records = [{"title": " ".join(title), "text": " ".join(text)} for title, text in drawn]
    records[3]["title"] = ""
    return [Passage(record, 9.0 - place / 4) for place, record in enumerate(records)]
