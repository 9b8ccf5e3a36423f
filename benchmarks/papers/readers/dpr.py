"""DPR's reader: one model chooses the passage and the span.

Karpukhin et al. 2020, arXiv:2004.04906, Section 6.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import PositiveInt

from benchmarks.papers.readers.base import Answer, Passage, Reader, best_answers, load_model, read_in_batches
from benchmarks.papers.readers.extractive import best_span


class DprReaderSettings(Reader):
    """Settings of DPR's reader, with the defaults of facebookresearch/DPR.

    The input is `[CLS] question [SEP] title [SEP] text`, truncated after `length_tokens`. The answer is the
    best span of at most `answer_tokens` in the most relevant passage, extended to whole words.

    Differs from `decode_best_spans` of transformers 5.23, which searches after the first [SEP] and so takes
    answers from titles, as facebookresearch/DPR does not, and which joins tokens (`u. s.`): the answer here
    is the text itself.
    """

    kind: Literal["dpr"] = "dpr"
    length_tokens: PositiveInt = 350
    """The maximum length of an input, after which it is truncated."""
    answer_tokens: PositiveInt = 10
    """The maximum length of an answer."""
    batch_passages: PositiveInt = 16
    """Passages that are read at once."""

    def open(self, device: str) -> "DprReader":
        return DprReader(self, device)


class DprPassage(NamedTuple):
    """One passage as input of the reader.

    offset: the position of the text's first token in `ids`. characters (T, 2), words (T,): the spans and word
    numbers of all tokens of the text, so that a word truncated by `length_tokens` is still known completely.
    """

    ids: list[int]
    offset: int
    characters: list[tuple[int, int]]
    words: list[int]


class DprReader:
    """An `OpenReader` with DPR's model."""

    def __init__(self, settings: DprReaderSettings, device: str):
        from transformers import DPRReader, DPRReaderTokenizer

        self.settings, self.device = settings, device
        self.tokenizer = DPRReaderTokenizer.from_pretrained(settings.model)
        self.model = load_model(DPRReader, settings.model, device)
        positions = self.model.config.max_position_embeddings
        if settings.length_tokens > positions:
            raise ValueError(
                f"length_tokens is {settings.length_tokens}, but {settings.model} has {positions} "
                "positions; lower it"
            )

    def answers(self, question: str, passages: Sequence[Passage], cutoffs: Sequence[int]) -> list[Answer]:
        """See `OpenReader.answers`; the score of an answer is the relevance of its passage."""
        records = [passage.record for passage in passages[: max(cutoffs)]]
        inputs = [self._input(question, record.get("title", ""), record["text"]) for record in records]
        given = [{"input_ids": each.ids, "attention_mask": [1] * len(each.ids)} for each in inputs]
        names = ("start_logits", "end_logits", "relevance_logits")
        outputs = read_in_batches(self, given, self.settings.batch_passages, names)
        found: list[Answer] = []
        for index, (passage, (starts, ends, relevance)) in enumerate(zip(inputs, outputs, strict=True)):
            if len(passage.ids) > passage.offset:
                text = self._answer_text(passage, records[index]["text"], starts, ends)
                found.append(Answer(text, float(relevance), index))
        return best_answers(found, cutoffs)

    def _input(self, question: str, title: str, text: str) -> DprPassage:
        # Lists: given as two strings, a blank title would lose its [SEP].
        (before,) = self.tokenizer([question], [title])["input_ids"]
        of_text = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = (before + of_text["input_ids"])[: self.settings.length_tokens]
        return DprPassage(ids, len(before), of_text["offset_mapping"], of_text.word_ids(0))

    def _answer_text(self, passage: DprPassage, text: str, starts: np.ndarray, ends: np.ndarray) -> str:
        """The best span of the passage's text, extended to whole words; `starts`, `ends`: (T,) logits."""
        offset, words = passage.offset, passage.words
        first, last, _ = best_span(starts[offset:], ends[offset:], self.settings.answer_tokens)
        while first > 0 and words[first - 1] == words[first]:
            first -= 1
        while last + 1 < len(words) and words[last + 1] == words[last]:
            last += 1
        return text[passage.characters[first][0] : passage.characters[last][1]]
