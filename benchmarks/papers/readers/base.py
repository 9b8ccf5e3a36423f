"""The base class of readers, their answers, and the loading of their models."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from pyserini_ance.encoders.family import quiet_transformers
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
    """The settings of a reader. `model` is a hub name or a folder."""

    model: str
    """A hub name or a folder."""

    @property
    def names_or_paths(self) -> frozenset[str]:
        return frozenset({"model"})

    def check_documents(self, fields: Iterable[str]) -> None:
        """Raise ValueError if documents with these fields cannot be read; all have a text."""

    def open(self, device: str) -> OpenReader:
        """Load the model. Raises ValueError if the checkpoint lacks some of its weights."""
        raise NotImplementedError(f"{type(self).__name__}.open")


def load_model(model_class: Any, name: str, device: str) -> Any:
    """Load a model of transformers in float32, in evaluation mode.

    Without these arguments transformers would use the precision of the file, and random weights for a missing
    head.
    """
    import torch

    quiet_transformers()
    model, info = model_class.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{name} lacks {len(missing)} weights of {model_class.__name__}, such as {missing[0]}: it was "
            "not trained to answer questions this way; pass a model that was, or another --reader"
        )
    return model.eval().to(device)


def best_answers(candidates: Sequence[Answer | None], cutoffs: Sequence[int]) -> list[Answer]:
    """For each cutoff, the answer of highest score among the first `cutoff` candidates; the first of equal
    ones.

    `candidates` holds one answer per passage, None if a passage has none.
    """
    best = []
    for cutoff in cutoffs:
        answers = [candidate for candidate in candidates[:cutoff] if candidate is not None]
        best.append(max(answers, key=_score, default=NO_ANSWER))
    return best


def _score(answer: Answer) -> float:
    assert answer.score is not None
    return answer.score
