"""What every kind of reader shares: its settings, how it is opened, and what it answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pyserini_ance.encoders.family import quiet_transformers
from pyserini_ance.recipe.parts import Part


class Passage(NamedTuple):
    """What was found for a question: the document's fields, and the score that it was found with."""

    record: dict[str, str]
    score: float


class Answer(NamedTuple):
    """`passage` is the place, from 0, of the passage that it stands in; None where it is of all, or there is no answer.

    Scores compare answers of one reader to one question.
    """

    text: str
    score: float | None = None
    passage: int | None = None


NO_ANSWER = Answer("")


class OpenReader(Protocol):
    def answers(self, question: str, passages: Sequence[Passage], depths: Sequence[int]) -> list[Answer]:
        """For each depth the answer from the first so many of the passages, which come best first."""
        ...


class Reader(Part):
    """`model` is a hub name or a folder."""

    model: str

    def open(self, device: str) -> OpenReader:
        """Load the model. Raises ValueError when the checkpoint lacks weights of it."""
        raise NotImplementedError(f"{type(self).__name__}.open")


def load_model(model_class: type, name: str, device: str):
    """In float32, ready to read: transformers would take the precision of the file, and give a head that it lacks random weights."""
    import torch

    quiet_transformers()
    model, found = model_class.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"{name} lacks {len(missing)} weights of {model_class.__name__}, such as {missing[0]}: it was not trained to answer questions so; "
            "name a model that was, or another --reader"
        )
    return model.eval().to(device)


def best_of_first(candidates: Sequence[Answer | None], depths: Sequence[int]) -> list[Answer]:
    """Of one candidate a passage, None where it has none: for each depth the highest score among the first so many; the first of equal ones."""
    found = []
    for depth in depths:
        known = [candidate for candidate in candidates[:depth] if candidate is not None]
        found.append(max(known, key=lambda candidate: candidate.score, default=NO_ANSWER))
    return found
