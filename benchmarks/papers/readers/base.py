"""The base class of readers, their answers, and the loading of their models."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.encoders.weights import load_weights
from pyserini_ance.recipe.components import Component


class Passage(NamedTuple):
    """A retrieved passage: the document's fields, and its retrieval score."""

    record: dict[str, str]
    score: float


class Answer(NamedTuple):
    """An answer to a question.

    score: comparable among the answers of one reader to one question. passage: the index, from 0, of the
    passage that contains the answer; None if the answer is of all passages, or if there is none.
    """

    text: str
    score: float | None = None
    passage: int | None = None


NO_ANSWER = Answer("")


class OpenReader(Protocol):
    """A reader whose model is loaded."""

    def answers(self, question: str, passages: Sequence[Passage], cutoffs: Sequence[int]) -> list[Answer]:
        """For each cutoff, the answer from the first `cutoff` passages; passages come best first."""
        ...


class Reader(Component):
    """The settings of a reader."""

    model: str
    """A hub name or a folder."""

    def check_documents(self, fields: Iterable[str]) -> None:
        """Raise ValueError if documents with these fields cannot be read; all have a text."""

    def open(self, device: str) -> OpenReader:
        """Load the model. Raises ValueError if the checkpoint lacks some of its weights."""
        raise NotImplementedError(f"{type(self).__name__}.open")


def load_model(model_class: Any, name: str, device: str) -> Any:
    """Load a model of transformers in float32, in evaluation mode."""
    model, info = load_weights(model_class, name)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{name} lacks {len(missing)} weights of {model_class.__name__}, such as {missing[0]}: it was "
            "not trained to answer questions this way; pass a model that was, or another --reader"
        )
    return model.eval().to(device)


def read_in_batches(
    reader: Any, inputs: Sequence[dict[str, list[int]]], size: int, logits: Sequence[str]
) -> list[list[np.ndarray]]:
    """For each of `inputs`, in order, these outputs of the reader's model, without padding."""
    import torch

    lengths = np.array([len(each["input_ids"]) for each in inputs], np.int64)
    found: list[list[np.ndarray]] = [[] for _ in inputs]
    for batch in length_sorted_batches(lengths, int(lengths.max(initial=1)) * size, size):
        padded = reader.tokenizer.pad([inputs[i] for i in batch], padding_side="right", return_tensors="pt")
        with torch.inference_mode():
            output = reader.model(**padded.to(reader.device))
        for name in logits:
            for i, of_input in zip(batch, getattr(output, name).cpu().numpy(), strict=True):
                found[i].append(of_input[: lengths[i]] if of_input.ndim else of_input)
    return found


def best_answers(answers: Sequence[Answer], cutoffs: Sequence[int]) -> list[Answer]:
    """For each cutoff, the answer of highest score from the first `cutoff` passages; the first of equal ones.

    `answers` are of one passage each, in the order of the passages.
    """
    best = []
    for cutoff in cutoffs:
        own = [one for one in answers if one.passage is not None and one.passage < cutoff]
        best.append(max(own, key=lambda answer: answer.score or 0.0, default=NO_ANSWER))
    return best
