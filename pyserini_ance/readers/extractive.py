"""Extractive reading by any model of SQuAD's kind (AutoModelForQuestionAnswering): the span that most looks like the answer."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import PositiveInt, model_validator

from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.encoders.family import longest_input
from pyserini_ance.encoders.tokenization import filled
from pyserini_ance.readers.reader import Answer, Passage, Reader, best_of_first, load_model
from pyserini_ance.readers.spans import best_span


class Extractive(Reader):
    """A passage is read in windows of `length_tokens`, question and special tokens included, of which neighbours share `overlap_tokens`.

    The answer is the span of one window, never of the question, with the highest sum of start and end logit; over windows and passages
    the highest wins, without any normalisation (Clark and Gardner 2018, arXiv:1710.10723: what softmax within a passage would hide). The
    defaults are those of SQuAD's usual scripts.
    """

    kind: Literal["extractive"] = "extractive"
    template: str = "{text}"
    length_tokens: PositiveInt = 384
    overlap_tokens: PositiveInt = 128
    question_tokens: PositiveInt = 64
    answer_tokens: PositiveInt = 30
    batch_windows: PositiveInt = 32

    @model_validator(mode="after")
    def windows_move_on(self):
        self.check_length(self.length_tokens, "length_tokens is")
        return self

    def check_length(self, length: int, it_is: str) -> None:
        """Raises ValueError when windows of that length, special tokens included, might not move on."""
        if self.question_tokens + self.overlap_tokens + 8 > length:
            filled_by = f"a question of {self.question_tokens} tokens and an overlap of {self.overlap_tokens}"
            raise ValueError(f"{it_is} {length}, which {filled_by} fill; raise it, or lower question_tokens and overlap_tokens")

    def open(self, device: str) -> "Spans":
        return Spans(self, device)


class Window(NamedTuple):
    """Part of a passage behind the question. `offsets` (T, 2) are characters of the passage's text; `inside` (T,) bool: of the passage."""

    passage: int
    inputs: dict[str, list[int]]
    offsets: np.ndarray
    inside: np.ndarray


class Spans:
    def __init__(self, settings: Extractive, device: str):
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        self.settings, self.device = settings, device
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        self.model = load_model(AutoModelForQuestionAnswering, settings.model, device)
        if not self.tokenizer.is_fast:
            raise ValueError(f"the tokenizer of {settings.model} does not say where its tokens stand; name a model with a fast tokenizer")
        self.length = min(settings.length_tokens, self.tokenizer.model_max_length, longest_input(self.model))
        settings.check_length(self.length, f"the longest input of {settings.model} is")

    def answers(self, question: str, passages: Sequence[Passage], depths: Sequence[int]) -> list[Answer]:
        texts = [filled(self.settings.template, passage.record) for passage in passages[: max(depths)]]
        best: list[Answer | None] = [None] * len(texts)
        for window, starts, ends in self._read(self._windows(question, texts)):
            first, last, score = best_span(starts[window.inside], ends[window.inside], self.settings.answer_tokens)
            begin, end = window.offsets[window.inside][[first, last], [0, 1]]
            known = best[window.passage]
            if known is None or score > known.score:
                best[window.passage] = Answer(texts[window.passage][begin:end], score, window.passage)
        return best_of_first(best, depths)

    def _windows(self, question: str, texts: Sequence[str]) -> list[Window]:
        """In the order of the texts; a text without tokens has none."""
        if not texts:
            return []
        how = {"truncation": "only_second", "max_length": self.length, "stride": self.settings.overlap_tokens, "return_overflowing_tokens": True}
        encoded = self.tokenizer([self._cut(question)] * len(texts), list(texts), return_offsets_mapping=True, **how)
        windows = []
        for i, passage in enumerate(encoded["overflow_to_sample_mapping"]):
            inside = np.array([place == 1 for place in encoded.sequence_ids(i)])
            inputs = {name: encoded[name][i] for name in self.tokenizer.model_input_names if name in encoded}
            if inside.any():
                windows.append(Window(passage, inputs, np.array(encoded["offset_mapping"][i]), inside))
        return windows

    def _cut(self, question: str) -> str:
        """After `question_tokens`: only the passage may be cut into windows."""
        ends = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return question[: ends[: self.settings.question_tokens][-1][1]] if ends else question

    def _read(self, windows: Sequence[Window]) -> Iterator[tuple[Window, np.ndarray, np.ndarray]]:
        """Each window with the start and end logits (T,) of its tokens, in the order given."""
        import torch

        lengths = np.array([len(window.inside) for window in windows], np.int64)
        logits = {}
        for batch in length_sorted_batches(lengths, int(lengths.max(initial=1)) * self.settings.batch_windows, self.settings.batch_windows):
            padded = self.tokenizer.pad([windows[i].inputs for i in batch], padding_side="right", return_tensors="pt").to(self.device)
            with torch.inference_mode():
                found = self.model(**padded)
            for i, starts, ends in zip(batch, found.start_logits.cpu().numpy(), found.end_logits.cpu().numpy(), strict=True):
                logits[i] = starts[: lengths[i]], ends[: lengths[i]]
        return ((window, *logits[i]) for i, window in enumerate(windows))
