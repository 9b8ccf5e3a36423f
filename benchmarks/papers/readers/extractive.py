"""Extractive reading with any SQuAD model (AutoModelForQuestionAnswering): the answer is the span of highest
score."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import PositiveInt, model_validator

from benchmarks.papers.readers.base import Answer, Passage, Reader, best_answers, load_model, read_in_batches
from pyserini_ance.encoders.tokenization import SideTokenization, fill_template
from pyserini_ance.encoders.towers import longest_input
from pyserini_ance.pipeline.data_checks import check_template

SPECIAL_TOKENS = 8  # more than any tokenizer adds to a pair


def best_span(starts: np.ndarray, ends: np.ndarray, max_tokens: int) -> tuple[int, int, float]:
    """The best span of at most `max_tokens` tokens; the first of equal ones.

    starts, ends: (T,) float32 logits. Returns the first and the last token, and the sum of their logits
    (float32).
    """
    sums = starts[:, None] + ends[None, :]
    lengths = 1 + np.arange(len(ends))[None, :] - np.arange(len(starts))[:, None]
    sums = np.where((lengths >= 1) & (lengths <= max_tokens), sums, -np.inf)
    start, end = np.unravel_index(np.argmax(sums), sums.shape)
    return int(start), int(end), float(sums[start, end])


class Extractive(Reader):
    """Settings of an extractive reader, with the defaults of the usual SQuAD scripts.

    A passage is read in windows of `length_tokens`, which include the question and special tokens; neighbours
    overlap by `overlap_tokens`. The answer is the span of highest score (sum of start and end logit) over all
    windows and passages, outside the question and without normalization: a softmax within each passage would
    make passages incomparable (Clark and Gardner 2018, arXiv:1710.10723).
    """

    kind: Literal["extractive"] = "extractive"
    template: str = "{text}"
    """The text of a passage, with the document's fields in braces."""
    length_tokens: PositiveInt = 384
    """The length of a window, including the question and special tokens."""
    overlap_tokens: PositiveInt = 128
    """The overlap of neighbouring windows."""
    question_tokens: PositiveInt = 64
    """The maximum length of a question."""
    answer_tokens: PositiveInt = 30
    """The maximum length of an answer."""
    batch_windows: PositiveInt = 32
    """Windows that are read at once."""

    @model_validator(mode="after")
    def check_windows(self) -> "Extractive":
        self.check_length(self.length_tokens, "length_tokens is")
        return self

    def check_length(self, length: int, subject: str) -> None:
        """Raise ValueError if windows of that length might not advance; `subject` begins the message."""
        if self.question_tokens + self.overlap_tokens + SPECIAL_TOKENS > length:
            raise ValueError(
                f"{subject} {length}, which a question of {self.question_tokens} tokens and an overlap of "
                f"{self.overlap_tokens} fill; raise it, or lower question_tokens and overlap_tokens"
            )

    def check_documents(self, fields: Iterable[str]) -> None:
        check_template("template", SideTokenization(template=self.template), "document", fields)

    def open(self, device: str) -> "ExtractiveReader":
        return ExtractiveReader(self, device)


class Window(NamedTuple):
    """A part of a passage, after the question.

    offsets (T, 2): characters of the passage's text. inside (T,) bool: the tokens of the passage.
    """

    passage: int
    inputs: dict[str, list[int]]
    offsets: np.ndarray
    inside: np.ndarray


class ExtractiveReader:
    """An `OpenReader` with a SQuAD model."""

    def __init__(self, settings: Extractive, device: str):
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        self.settings, self.device = settings, device
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        self.model = load_model(AutoModelForQuestionAnswering, settings.model, device)
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"the tokenizer of {settings.model} does not report the characters of its tokens; pass a "
                "model with a fast tokenizer"
            )
        self.length = min(settings.length_tokens, self.tokenizer.model_max_length, longest_input(self.model))
        settings.check_length(self.length, f"the longest input of {settings.model} is")

    def answers(self, question: str, passages: Sequence[Passage], cutoffs: Sequence[int]) -> list[Answer]:
        """See `OpenReader.answers`; the score of an answer is the sum of its start and end logit."""
        texts = [
            fill_template(self.settings.template, passage.record) for passage in passages[: max(cutoffs)]
        ]
        found: list[Answer] = []
        windows = self._windows(question, texts)
        inputs = [window.inputs for window in windows]
        logits = ("start_logits", "end_logits")
        outputs = read_in_batches(self, inputs, self.settings.batch_windows, logits)
        for window, (starts, ends) in zip(windows, outputs, strict=True):
            inside = window.inside
            first, last, score = best_span(starts[inside], ends[inside], self.settings.answer_tokens)
            begin, end = window.offsets[inside][[first, last], [0, 1]]
            found.append(Answer(texts[window.passage][begin:end], score, window.passage))
        return best_answers(found, cutoffs)

    def _windows(self, question: str, texts: Sequence[str]) -> list[Window]:
        """The windows of all texts, in their order; a text without tokens has none."""
        if not texts:
            return []
        encoded = self.tokenizer(
            [self._truncate(question)] * len(texts),
            list(texts),
            return_offsets_mapping=True,
            truncation="only_second",
            max_length=self.length,
            stride=self.settings.overlap_tokens,
            return_overflowing_tokens=True,
        )
        windows = []
        for i, passage in enumerate(encoded["overflow_to_sample_mapping"]):
            inside = np.array([sequence == 1 for sequence in encoded.sequence_ids(i)])
            inputs = {name: encoded[name][i] for name in self.tokenizer.model_input_names if name in encoded}
            if inside.any():
                windows.append(Window(passage, inputs, np.array(encoded["offset_mapping"][i]), inside))
        return windows

    def _truncate(self, question: str) -> str:
        """The question's first `question_tokens` tokens: only the passage may be split into windows."""
        encoded = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"][: self.settings.question_tokens]
        return question[: offsets[-1][1]] if offsets else question
