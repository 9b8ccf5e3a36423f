"""Cross-encoders of sentence-transformers, which score pairs of a query and a document."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pyserini_ance.encoders.hardware import DTYPES, Precision
from pyserini_ance.encoders.hub import find_model
from pyserini_ance.encoders.inference_copy import transformers_in
from pyserini_ance.encoders.towers import longest_input
from pyserini_ance.encoders.weights import check_vocabulary, check_weight_files, load_weights, quiet_loading

BATCH_PAIRS = 32
Pair = tuple[str, str]  # a query and a document


class CrossEncoderModel:
    """A cross-encoder from a hub name or a folder.

    length_tokens: the maximum length of a pair, special tokens included (default: the model's own limit).
    precision: of the transformer; the head on top of it, whose output is the score, stays in fp32. Raises
    FileNotFoundError or ConnectionError for a model that is neither here nor on a hub that answers,
    ValueError for one whose head was never trained, that has fewer positions than `length_tokens`, or fewer
    embeddings than its tokenizer has ids, and what `check_weight_files` and `load_weights` raise.
    """

    def __init__(
        self, model: str, device: str, length_tokens: int | None = None, precision: Precision = "fp32"
    ):
        from sentence_transformers import CrossEncoder as Model
        from transformers import AutoModelForSequenceClassification

        quiet_loading()
        # By default, transformers 5 uses the precision in which the weights were saved.
        weights = {"dtype": DTYPES[precision]}
        self.name = model
        source = find_model(model, "cross-encoder")
        check_weight_files(source)
        try:
            self.model = Model(source, device=device, max_length=length_tokens, model_kwargs=weights)
        except RuntimeError as error:
            if "ignore_mismatched_sizes" in str(error):  # transformers names no weight: this does
                load_weights(AutoModelForSequenceClassification, source)
            raise
        check_vocabulary(self.model.tokenizer, transformers_in(self.model), model)
        # To a plain encoder (BertModel) transformers adds a random head.
        (architecture, *_) = getattr(self.model.config, "architectures", None) or [""]
        if architecture and len(self.model) == 1 and not architecture.endswith("ForSequenceClassification"):
            raise ValueError(
                f"{self.name} is a {architecture}, which has no head that scores pairs; expected a model "
                "trained as a cross-encoder (...ForSequenceClassification), such as "
                "cross-encoder/ms-marco-MiniLM-L6-v2"
            )
        # Relative positions, without a table of embeddings, have no longest input.
        is_limited = any(
            isinstance(table, torch.nn.Embedding)
            for name, table in self.model.named_modules()
            if name.endswith("position_embeddings")
        )
        if is_limited and (length_tokens or 0) > (longest := longest_input(self.model)):
            raise ValueError(
                f"length_tokens is {length_tokens}, but {model} reads at most {longest}; lower it"
            )
        # The head stays in fp32, unless it is that of a language model, which is as large as its vocabulary.
        if precision != "fp32" and len(self.model) == 1:
            classifier: Any = self.model[0].auto_model
            inner = {id(module) for module in classifier.base_model.modules()}
            for module in classifier.modules():
                if id(module) not in inner and next(module.parameters(recurse=False), None) is not None:
                    module.float().register_forward_pre_hook(_in_fp32)

    @property
    def device(self) -> str:
        return str(self.model.device)

    def logits(self, pairs: Sequence[Pair]) -> np.ndarray:
        """(P,) float32 in the order of the pairs, before any activation, which would lose digits: a float32
        sigmoid is 1 from 17. The library sorts pairs by length and batches them.

        For a classifier into `irrelevant` and `relevant` (Nogueira and Cho 2019, arXiv:1901.04085): the
        second score minus the first. Raises ValueError for a model with more scores per pair.
        """
        if not pairs:
            return np.zeros(0, np.float32)
        settings = {"batch_size": BATCH_PAIRS, "show_progress_bar": False}
        scores = np.asarray(self.model.predict(list(pairs), activation_fn=torch.nn.Identity(), **settings))
        if scores.ndim > 1 and scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        if scores.ndim > 1:
            raise ValueError(
                f"{self.name} gives {scores.shape[1]} scores per pair, expected one (or two logits of a "
                "classifier); use another model"
            )
        return scores


def _in_fp32(layer: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.float() if torch.is_tensor(one) and one.is_floating_point() else one for one in inputs)


def record_text(record: Mapping[str, str]) -> str:
    """The text of a record: all fields, joined by blanks."""
    return " ".join(filter(None, record.values()))
