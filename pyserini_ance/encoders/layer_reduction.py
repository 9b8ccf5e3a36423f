"""Layer reduction: a smaller start, made of some layers of a model.

Source: the layer reduction of sentence-transformers' model distillation example
(examples/sentence_transformer/training/distillation/model_distillation.py).
"""

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def reduce_layers[Model: "PreTrainedModel"](model: Model, layers: tuple[int, ...], source: str) -> Model:
    """Return a model of the same class with these layers alone, renumbered from 0.

    Everything but the layers stays as it is. The reduced model is built from its own configuration, as any
    reader of a saved checkpoint builds it.

    Raises ValueError for a number that the model has no layer of, for a model whose layers cannot be found,
    and for layers that do not fit into the places that they would take.
    """
    name, count = find_layers(model, "encoder.layers", source)
    if layers[-1] >= count:
        raise ValueError(
            f"encoder.layers is {list(layers)}, but {source} has {count} layers, 0 to {count - 1}; "
            "a saved encoder has only the layers that it was made with: remove encoder.layers to take all"
        )
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    if types := getattr(config, "layer_types", None):
        config.layer_types = [types[number] for number in layers]
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten; the run's state stays
        reduced = type(model)(config)
    places = {str(number): place for place, number in enumerate(layers)}
    chosen = {}
    for key, value in model.state_dict().items():
        number, _, rest = key.removeprefix(f"{name}.").partition(".")
        if not key.startswith(f"{name}."):
            chosen[key] = value
        elif number in places:
            chosen[f"{name}.{places[number]}.{rest}"] = value
    try:
        reduced.load_state_dict(chosen)
    except RuntimeError as error:
        raise ValueError(
            f"encoder.layers is {list(layers)}, but layers of {source} ({type(model).__name__}) differ and "
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
