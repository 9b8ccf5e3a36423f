"""Towers: the modules of a sentence-transformers model, in the order in which they compute vectors."""

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.sentence_transformers_files import NO_LIMIT

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Tower(nn.Module):
    """The modules of a sentence-transformers model: a Transformer and what makes a vector of its tokens, or a
    StaticEmbedding, the mean of the tokens' vectors.

    What follows the Transformer computes in fp32, whatever its own precision; in training, a Dense autocasts.
    """

    def __init__(self, layers: Sequence[nn.Module], truncate_dim: int | None = None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.normalizes = type(self.layers[-1]).__name__ == "Normalize"
        sizes = [size() for each in layers if (size := getattr(each, "get_embedding_dimension", None))]
        self.dimension: int = truncate_dim or sizes[-1]
        if self.dimension > sizes[-1]:
            cure = f"set encoder.truncate_dim={sizes[-1]}, or less"
            raise ValueError(
                f"encoder.truncate_dim is {truncate_dim}, vectors have {sizes[-1]} numbers; {cure}"
            )
        self.longest_input = NO_LIMIT if self.transformer is None else longest_input(self.transformer)

    @property
    def transformer(self) -> Any:
        """The model of transformers in the first module; None in a StaticEmbedding."""
        return getattr(self.layers[0], "model", None)

    def forward(self, side: Side, ids: Tensor, mask: Tensor | None) -> Tensor:
        """ids (B, L) and mask (B, L) of one side -> vectors (B, D) float32; mask None: no text is padded."""
        first, *others = self.layers
        whole = torch.ones_like(ids) if mask is None else mask
        if self.transformer is None:
            lengths = whole.sum(1)
            features = first({"input_ids": ids[whole.bool()], "offsets": lengths.cumsum(0) - lengths})
        else:
            features = first({"input_ids": ids, "attention_mask": attention_mask(self.transformer, mask)})
            features["token_embeddings"] = features["token_embeddings"].float()
            features["attention_mask"] = whole
        for module in others:
            features = module(features)
        vectors: Tensor = features["sentence_embedding"].float()
        return vectors if vectors.shape[1] == self.dimension else self.cut(vectors, self.dimension)

    def cut(self, vectors: Tensor, dimension: int) -> Tensor:
        """The first numbers (B, `dimension`) of vectors (B, D), of length 1 if the tower normalizes."""
        short = vectors[:, :dimension]
        return functional.normalize(short, dim=1) if self.normalizes else short


class TwoTower(nn.Module):
    """The query tower and the document tower as one module, which data-parallel wrapping needs.

    Tied towers share all weights: they are one tower (`documents=None`), or have their Transformer in common.
    A frozen tower has no gradients and no dropout.
    """

    def __init__(self, queries: Tower, documents: Tower | None = None):
        super().__init__()
        self.queries = queries
        self.documents = queries if documents is None else documents

    @property
    def tied(self) -> bool:
        own, other = (next(tower.parameters(), None) for tower in (self.queries, self.documents))
        return self.documents is self.queries or (own is not None and own is other)

    def tower(self, side: Side) -> Tower:
        return self.queries if side == "query" else self.documents

    def cut(self, vectors: Mapping[Side, Tensor], dimension: int) -> dict[Side, Tensor]:
        return {side: self.tower(side).cut(of_side, dimension) for side, of_side in vectors.items()}

    def untie(self) -> None:
        if self.tied:
            self.documents = copy.deepcopy(self.documents)

    def freeze(self, side: Side) -> None:
        """Disable gradients and dropout of a tower. Raises ValueError if the other side shares it."""
        if self.tied:
            raise ValueError(f"the {side} tower cannot be frozen alone, the towers are tied: untie them")
        self.tower(side).requires_grad_(False)
        self.train(self.training)

    def trains(self, side: Side) -> bool:
        """Whether any weight of a side's tower has gradients."""
        return any(parameter.requires_grad for parameter in self.tower(side).parameters())

    def train(self, mode: bool = True) -> "TwoTower":
        super().train(mode)
        for side in SIDES:
            if not self.trains(side):
                self.tower(side).eval()
        return self

    def forward(self, side: Side, ids: Tensor, mask: Tensor | None) -> Tensor:
        """ids (B, L) and mask (B, L) of one side -> vectors (B, D) float32; mask None: no text is padded."""
        return self.tower(side)(side, ids, mask)


def longest_input(model: "PreTrainedModel") -> int:
    """The number of tokens that the position embeddings allow.

    Position embeddings with a padding row (RoBERTa, MPNet, ...) count positions from after that row.
    """
    longest: int = getattr(model.config, "max_position_embeddings", -1)
    longest = longest if longest > 0 else NO_LIMIT  # relative positions, as in T5 and XLNet
    for name, module in model.named_modules():
        padding: int | None = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return longest - padding - 1
    return longest


# Encoders in which nothing but the mask that they are given hides padding from attention.
MASKED_ALONE = {"bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"}


def attention_mask(model: Any, mask: Tensor | None) -> Tensor | None:
    """Return the mask (B, L) in the form that `model` takes without a look at its values.

    To find out whether nothing is padded, transformers reads the mask of fused attention, for which the host
    waits; it takes a mask (B, 1, 1, L) as it is.
    """
    config = model.config
    if mask is None or config._attn_implementation != "sdpa" or config.model_type not in MASKED_ALONE:
        return mask
    return mask.bool()[:, None, None, :]


def attend_both_ways(model: Any, source: str) -> None:
    """Let every token attend to all others. Raises ValueError for a model that does not offer it."""
    if model is not None:
        model.config.is_causal = False  # as transformers' masks of decoders read it
        with torch.inference_mode():
            pair = torch.tensor([[1, 2], [1, 3]], device=model.device)
            first, other = model(input_ids=pair).last_hidden_state[:, 0]
    if model is None or torch.allclose(first, other, atol=1e-6):
        raise ValueError(f"encoder.bidirectional: the attention of {source} cannot be chosen; remove the key")


def reduce_layers[Model: "PreTrainedModel"](
    model: Model, layers: tuple[int, ...], source: str, key: str = "encoder.layers"
) -> Model:
    """Return a model of the same class with these layers alone, renumbered from 0.

    Everything but the layers stays as it is. The reduced model is built from its own configuration, as any
    reader of a saved checkpoint builds it.

    Source: the layer reduction of sentence-transformers' model distillation example
    (examples/sentence_transformer/training/distillation/model_distillation.py).

    Raises ValueError for a number that the model has no layer of, for a model whose layers cannot be found,
    and for layers that do not fit into the places that they would take.
    """
    name, count = find_layers(model, "encoder.layers", source)
    if layers[-1] >= count:
        raise ValueError(
            f"{key} is {list(layers)}, but {source} has {count} layers, 0 to {count - 1}; "
            f"a saved encoder has only the layers that it was made with: remove {key} to take all"
        )
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    if types := getattr(config, "layer_types", None):
        config.layer_types = [types[number] for number in layers]
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten; the run's state stays
        reduced = type(model)(config)
    places = {str(number): place for place, number in enumerate(layers)}
    chosen = {}
    for weight, value in model.state_dict().items():
        number, _, rest = weight.removeprefix(f"{name}.").partition(".")
        if not weight.startswith(f"{name}."):
            chosen[weight] = value
        elif number in places:
            chosen[f"{name}.{places[number]}.{rest}"] = value
    try:
        reduced.load_state_dict(chosen)
    except RuntimeError as error:
        raise ValueError(
            f"{key} is {list(layers)}, but layers of {source} ({type(model).__name__}) differ and "
            f"do not fit into other places; start the list with 0, or choose another model ({error})"
        ) from error
    return reduced.train(model.training)


def find_layers(model: "PreTrainedModel", key: str, source: str) -> tuple[str, int]:
    """The name and the length of the model's list of layers: `encoder.layer` of BERT and RoBERTa.

    Raises ValueError, with the recipe's `key` that needs it, if there is not one.
    """
    count = getattr(model.config, "num_hidden_layers", None)
    lists = ((name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList))
    found = [name for name, each in lists if len(each) == count]
    if count is None or len(found) != 1:
        raise ValueError(
            f"{key} needs a model with one list of its layers, such as BERT's encoder.layer, but {source} "
            f"({type(model).__name__}) has {', '.join(found) or 'none'} of {count} layers; remove {key}, or "
            "choose another model"
        )
    return found[0], count
