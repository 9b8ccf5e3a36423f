"""The reader of DPR: one model says which passage answers, and where. Karpukhin et al. 2020, arXiv:2004.04906, Section 6."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.readers.reader import Answer, Passage, Reader, best_of_first, load_model
from pyserini_ance.readers.spans import best_span


class Dpr(Reader):
    """Reads `[CLS] question [SEP] title [SEP] text`, cut after `length_tokens`. The passage of the highest relevance answers, with its
    best span of at most `answer_tokens`, widened to whole words; the defaults, too, are facebookresearch/DPR's.

    Differs from `decode_best_spans` of transformers 5.23, which looks behind the first [SEP] and so takes answers from titles too, as
    facebookresearch/DPR does not, and gives tokens joined again (`u. s.`): the answer here is what stands in the text.
    """

    kind: Literal["dpr"] = "dpr"
    length_tokens: PositiveInt = 350
    answer_tokens: PositiveInt = 10
    batch_passages: PositiveInt = 16

    def open(self, device: str) -> "DprReader":
        return DprReader(self, device)


class Reading(NamedTuple):
    """One passage as it is read: `offset` is the place of the text's first token; `characters` (T, 2) and `words` (T,) are of the whole
    text's, so that a word which the length cuts is still known whole.
    """

    ids: list[int]
    offset: int
    characters: list[tuple[int, int]]
    words: list[int]


class DprReader:
    def __init__(self, settings: Dpr, device: str):
        from transformers import DPRReader, DPRReaderTokenizer

        self.settings, self.device = settings, device
        self.tokenizer = DPRReaderTokenizer.from_pretrained(settings.model)
        self.model = load_model(DPRReader, settings.model, device)
        positions = self.model.config.max_position_embeddings
        if settings.length_tokens > positions:
            raise ValueError(f"length_tokens is {settings.length_tokens}, but {settings.model} has {positions} positions; lower it")

    def answers(self, question: str, passages: Sequence[Passage], depths: Sequence[int]) -> list[Answer]:
        """The score is the passage's relevance."""
        records = [passage.record for passage in passages[: max(depths)]]
        sequences = [self._reading(question, record.get("title", ""), record["text"]) for record in records]
        found = self._read(sequences)
        candidates: list[Answer | None] = []
        for place, (record, one, (starts, ends, relevance)) in enumerate(zip(records, sequences, found, strict=True)):
            text = self._span(one, record["text"], starts, ends) if len(one.ids) > one.offset else None
            candidates.append(None if text is None else Answer(text, relevance, place))
        return best_of_first(candidates, depths)

    def _reading(self, question: str, title: str, text: str) -> Reading:
        (before,) = self.tokenizer([question], [title])["input_ids"]  # of one pair, not in lists, a blank title leaves out its [SEP]
        of_text = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = (before + of_text["input_ids"])[: self.settings.length_tokens]
        return Reading(ids, len(before), of_text["offset_mapping"], of_text.word_ids(0))

    def _span(self, one: Reading, text: str, starts: np.ndarray, ends: np.ndarray) -> str:
        first, last, _ = best_span(starts[one.offset :], ends[one.offset :], self.settings.answer_tokens)
        while first > 0 and one.words[first - 1] == one.words[first]:
            first -= 1
        while last + 1 < len(one.words) and one.words[last + 1] == one.words[last]:
            last += 1
        return text[one.characters[first][0] : one.characters[last][1]]

    def _read(self, sequences: Sequence[Reading]) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Start and end logits (T,) and relevance of each."""
        import torch

        lengths = np.array([len(one.ids) for one in sequences], np.int64)
        found: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
        for batch in length_sorted_batches(lengths, int(lengths.max(initial=1)) * self.settings.batch_passages, self.settings.batch_passages):
            inputs = [{"input_ids": sequences[i].ids, "attention_mask": [1] * len(sequences[i].ids)} for i in batch]
            padded = self.tokenizer.pad(inputs, padding_side="right", return_tensors="pt").to(self.device)
            with torch.inference_mode():
                logits = self.model(**padded)
            rows = zip(batch, *(getattr(logits, f"{name}_logits").cpu().numpy() for name in ("start", "end", "relevance")), strict=True)
            found |= {i: (starts[: lengths[i]], ends[: lengths[i]], float(relevance)) for i, starts, ends, relevance in rows}
        return [found[i] for i in range(len(sequences))]
