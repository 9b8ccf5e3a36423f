"""Cross-encoders of sentence-transformers: a hub name or a folder, and pairs of texts in; a score for each out."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Literal

import numpy as np

from pyserini_ance.encoders.family import quiet_transformers
from pyserini_ance.encoders.tokenization import filled

BATCH_PAIRS = 32
Pair = tuple[str, str]  # a query and a document


class CrossEncoder:
    """`length_tokens` cuts a pair, special tokens included; without it the model's own limit does.

    Raises RuntimeError without sentence-transformers, and ValueError for a model whose head was never trained.
    """

    def __init__(
        self,
        model: str,
        device: str | None = None,
        batch_pairs: int = BATCH_PAIRS,
        length_tokens: int | None = None,
        precision: Literal["fp32", "bf16"] = "fp32",
    ):
        require_sentence_transformers()
        import torch
        from sentence_transformers import CrossEncoder as Model

        quiet_transformers()
        # transformers 5 would take the precision that the weights were saved in.
        weights = {"dtype": {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]}
        self.name, self.batch_pairs = model, batch_pairs
        self.model = Model(model, device=device, max_length=length_tokens, model_kwargs=weights)
        self._refuse_untrained_head()

    @property
    def device(self) -> str:
        return str(self.model.device)

    def scores(self, pairs: Sequence[Pair]) -> np.ndarray:
        """(P,) float32 on the model's own scale, that of its activation function. Raises ValueError for a model of several scores a pair."""
        scores = self._predict(pairs, None)
        if scores.ndim > 1:
            raise ValueError(f"{self.name} gives {scores.shape[1]} scores a pair, expected one; name another model")
        return scores

    def logits(self, pairs: Sequence[Pair]) -> np.ndarray:
        """(P,) float32 before any activation, which orders pairs alike but may round two scores to one: a sigmoid gives 1 from 17 on.

        Of a classifier into `irrelevant` and `relevant` (Nogueira and Cho 2019, arXiv:1901.04085) it is the second less the first.
        Raises ValueError for a model of more scores a pair.
        """
        import torch

        scores = self._predict(pairs, torch.nn.Identity())
        if scores.ndim > 1 and scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        if scores.ndim > 1:
            raise ValueError(f"{self.name} gives {scores.shape[1]} scores a pair, expected one, or two of a classifier; name another model")
        return scores

    def _predict(self, pairs: Sequence[Pair], activation) -> np.ndarray:
        """The library sorts the pairs by their texts' lengths, batches them, and puts the scores back into their order."""
        if not pairs:
            return np.zeros(0, np.float32)
        return np.asarray(self.model.predict(list(pairs), batch_size=self.batch_pairs, show_progress_bar=False, activation_fn=activation))

    def _refuse_untrained_head(self) -> None:
        """transformers gives a plain encoder (BertModel) a random head, and says so in a warning only."""
        (made, *_) = getattr(self.model.config, "architectures", None) or [""]
        if made and len(self.model) == 1 and not made.endswith("ForSequenceClassification"):
            raise ValueError(
                f"{self.name} is a {made}, which has no head that scores pairs; expected a model trained as a cross-encoder "
                "(...ForSequenceClassification), such as cross-encoder/ms-marco-MiniLM-L6-v2"
            )


def require_sentence_transformers() -> None:
    if find_spec("sentence_transformers") is None:
        raise RuntimeError("cross-encoders need sentence-transformers, which is not installed: python -m pip install sentence-transformers")


def text_of(record: Mapping[str, str], template: str | None = None) -> str:
    """One text of a record: all its fields in their order, joined by blanks, or `template` with `{field}` filled in (blank where it lacks one)."""
    if template is None:
        return " ".join(filter(None, record.values()))
    return filled(template, record)
