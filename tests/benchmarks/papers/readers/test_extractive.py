"""Extractive reading with random weights against a slow reader: one window at a time, every span tried."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from benchmarks.papers.readers.base import NO_ANSWER, Passage
from benchmarks.papers.readers.extractive import Extractive, best_span

QUESTIONS = ["which river of the title", "who and the horse of apple and stone", "?"]
SETTINGS = dict(length_tokens=60, overlap_tokens=12, question_tokens=16, answer_tokens=7, batch_windows=3)


@lru_cache
def loaded(folder: str):
    return AutoTokenizer.from_pretrained(folder), AutoModelForQuestionAnswering.from_pretrained(folder).eval()


@torch.inference_mode()
def slowly(folder: str, question: str, text: str) -> tuple[str, float] | None:
    """The best span of a passage."""
    tokenizer, model = loaded(folder)
    asked = tokenizer(question, add_special_tokens=False)["input_ids"][: SETTINGS["question_tokens"]]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    room = SETTINGS["length_tokens"] - len(asked) - 3
    best, begin = None, 0
    while ids:
        part = ids[begin : begin + room]
        row = [tokenizer.cls_token_id, *asked, tokenizer.sep_token_id, *part, tokenizer.sep_token_id]
        types = [0] * (len(asked) + 2) + [1] * (len(part) + 1)
        found = model(torch.tensor([row]), token_type_ids=torch.tensor([types]))
        starts, ends = (one[0, len(asked) + 2 :].tolist() for one in (found.start_logits, found.end_logits))
        for i in range(len(part)):
            for j in range(i, min(i + SETTINGS["answer_tokens"], len(part))):
                if best is None or starts[i] + ends[j] > best[1] + 1e-5:
                    best = text[offsets[begin + i][0] : offsets[begin + j][1]], starts[i] + ends[j]
        if begin + room >= len(ids):
            return best
        begin += room - SETTINGS["overlap_tokens"]
    return None


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_best_span_of_the_first_passages(tiny_reader, passages, question):
    each = [slowly(tiny_reader, question, passage.record["text"]) for passage in passages]
    reader = Extractive(model=tiny_reader, **SETTINGS).open("cpu")
    found = reader.answers(question, passages, [1, 2, 4, 7, 100])
    for depth, answer in zip([1, 2, 4, 7, 7], found, strict=True):
        place = max(range(depth), key=lambda p: each[p][1])
        assert (answer.text, answer.passage) == (each[place][0], place)
        assert answer.score == pytest.approx(each[place][1], abs=1e-5)
    assert len({answer.text for answer in found}) > 1


def test_nothing_to_read(tiny_reader):
    reader = Extractive(model=tiny_reader, **SETTINGS).open("cpu")
    assert reader.answers("who", [], [1, 5]) == [NO_ANSWER] * 2
    assert reader.answers("who", [Passage({"text": " "}, 1.0)], [1]) == [NO_ANSWER]


def test_a_span_by_hand():
    """The highest end comes before the highest start."""
    assert best_span(np.array([0, 1, 9], np.float32), np.array([9, 2, 0.5], np.float32), 3) == (2, 2, 9.5)
    assert best_span(np.array([5, 0, 0], np.float32), np.array([0, 0, 9], np.float32), 2) == (1, 2, 9)
