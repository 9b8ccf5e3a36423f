"""The modules of towers: loaded by sentence-transformers, completed as a recipe says, and saved by it."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.config import EncoderConfig, at
from pyserini_ance.encoders.released import check_report
from pyserini_ance.encoders.sentence_transformers_files import MODEL as MODEL_FILE
from pyserini_ance.encoders.sentence_transformers_files import MODULES as MODULES_FILE
from pyserini_ance.encoders.sentence_transformers_files import modules_of
from pyserini_ance.encoders.weights import adapter_base, load_weights, quiet_loading
from pyserini_ance.storage.files import read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Layers = dict[Side, list[nn.Module]]
# The modules that the settings of a recipe can name, in their order.
KNOWN = re.compile(r"(Transformer Pooling|StaticEmbedding)( Dense)?( LayerNorm)?( Normalize)?")


@cache
def _checked() -> Any:
    """sentence-transformers' Transformer, refusing weights that are missing or do not fit; defined on first
    use, because importing it is slow."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    class CheckedTransformer(Transformer):
        def _load_model(self, source: str, *arguments: Any, **settings: Any) -> Any:  # type: ignore[override]
            # By default, transformers 5 uses the precision in which the weights were saved.
            settings |= {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
            loaded: Any = super()._load_model(source, *arguments, **settings)
            model, report = loaded
            check_report(report, source)
            return model

    return CheckedTransformer


def transformer(source: str, tokenizer: "PreTrainedTokenizerBase") -> Any:
    """The Transformer of a folder or hub name without modules of sentence-transformers, in fp32; with peft's
    adapter, if there is one.

    Raises RuntimeError for weights that are missing, unexpected or of other sizes.
    """
    from transformers import AutoModel

    quiet_loading()
    if adapter_base(source) is None:
        return _plain(_checked()(source), of_text=True)
    model, report = load_weights(AutoModel, source)
    check_report(report, source)
    return transformer_around(model, tokenizer)


def _plain(module: Any, of_text: bool = False) -> Any:
    """A Transformer of a class above, as the class that sentence-transformers finds again at loading.

    of_text: texts are read as they are, although the tokenizer has a chat template.
    """
    module.__class__ = _checked().__base__
    if of_text:
        module.modality_config.pop("message", None)
    return module


def transformer_around(model: Any, tokenizer: "PreTrainedTokenizerBase") -> Any:
    """The Transformer of a model of transformers that has been loaded."""

    class Loaded(_checked()):  # type: ignore[misc]
        def _load_config(self, *_: Any) -> tuple[Any, bool]:
            return model.config, False

        def _load_model(self, *_: Any, **__: Any) -> Any:
            return model

    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return _plain(Loaded(folder), of_text=True)


def load_modules(source: str, sides: Sequence[Side]) -> Layers:
    """The modules of a sentence-transformers model that encode texts of each side, in fp32.

    Raises RuntimeError as `transformer`. Code from a model's repository is never run.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    quiet_loading()
    types = {module.type for side in sides for module in modules_of(source, side)}
    is_theirs = re.compile(r"sentence_transformers\..*\.Transformer").fullmatch
    checked = {name: _checked() for name in types if is_theirs(name)}
    model: Any = SentenceTransformer._load_with_module_classes(source, checked, device="cpu")
    layers: Layers = {side: [] for side in sides}
    for module in model:
        for side, own in layers.items():
            if isinstance(module, Router):
                route: Any = module.sub_modules[module._resolve_route(task=side, modality="text") or ""]
                own += route
            elif type(module).__name__ != "Dropout":  # off in encoding
                own.append(module)
    for module in {id(each): each for own in layers.values() for each in own}.values():
        module.float()
        if isinstance(module, _checked()):
            _plain(module)
        if hasattr(module, "include_prompt"):  # a prompt is part of the template
            module.include_prompt = True
    return layers


def complete(layers: Layers, given: Mapping[str, Any], generator: torch.Generator, source: str) -> Layers:
    """The modules of a tower, of one side or of both, with the settings of modules that are `given`.

    Modules of both sides stay the same module. What has to be drawn is, from `generator`.

    Raises ValueError for settings of a model with other modules than the settings can name, and for a
    projection of another size.
    """
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    if not given:
        return layers
    pooling, projection = given.get("pooling"), given.get("projection")
    switches = {"LayerNorm": given.get("layer_norm"), "Normalize": given.get("normalize")}
    made: Layers = {}
    new: dict[str, nn.Module] = {}
    for side, own in layers.items():
        names = names_of(own)
        if not KNOWN.fullmatch(names) and given.keys() == {"normalize"} and not names.endswith("Normalize"):
            made[side] = [*own, *[new.setdefault("Normalize", Normalize())] * at(side, given["normalize"])]
            continue
        if not KNOWN.fullmatch(names) or (pooling and "Pooling" not in names):
            raise ValueError(
                f"encoder.{next(iter(given))} is set, but {source} has the modules {names}; remove the "
                "setting, or take the model without modules.json"
            )
        modules: dict[str, Any] = {type(module).__name__: module for module in own}
        if "Pooling" in modules and pooling not in (None, modules["Pooling"].pooling_mode):
            width = modules["Pooling"].embedding_dimension
            modules["Pooling"] = new.setdefault("Pooling", Pooling(width, pooling))
        hidden = modules.get("Pooling", own[0]).get_embedding_dimension()
        size = modules["Dense"].out_features if "Dense" in modules else hidden
        if projection is not None and "Dense" in modules and size != projection:
            raise ValueError(
                f"{source} projects {hidden} numbers to {size}, but encoder.projection is "
                f"{projection}; set it to {size}"
            )
        if projection is not None and "Dense" not in modules:
            if "Dense" not in new:
                dense: Any = Dense(hidden, projection, activation_function=None)
                with torch.no_grad():  # as BERT and microsoft/ANCE draw their layers
                    dense.linear.weight.normal_(0.0, 0.02, generator=generator)
                    dense.linear.bias.zero_()
                new["Dense"] = dense
            modules["Dense"], size = new["Dense"], projection
        for name, switch in switches.items():
            if switch is None:
                continue
            if not at(side, switch):
                modules.pop(name, None)
            elif name not in modules:
                module = LayerNorm(size) if name == "LayerNorm" else Normalize()
                modules[name] = new.setdefault(name, module)
        order = ("StaticEmbedding", "Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
        made[side] = [modules[name] for name in order if name in modules]
    return made


def static_layers(layers: Layers, tokenizer: "PreTrainedTokenizerBase", what: str) -> Layers:
    """The modules of a tower without its Transformer: the mean of its tokens' vectors, and what follows.

    Raises ValueError, which begins with `what`, if a Transformer and a Pooling are not the first modules.
    """
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    if any(not KNOWN.fullmatch(names_of(own)) for own in layers.values()):
        raise ValueError(f"{what} is no Transformer with a Pooling; take a StaticEmbedding by encoder.model")
    first: Any = next(iter(layers.values()))[0]
    weights = first.model.get_input_embeddings().weight.detach().clone()
    static = StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=weights)
    return {side: [static, *own[2:]] for side, own in layers.items()}


def names_of(layers: Sequence[nn.Module]) -> str:
    return " ".join(type(layer).__name__ for layer in layers)


def described(layers: Layers) -> dict[str, Any]:
    """The settings that name the modules of both sides; empty for other modules."""
    settings: dict[str, Any] = {}
    for own in layers.values():
        modules: dict[str, Any] = {type(module).__name__: module for module in own}
        dense, mode = modules.get("Dense"), getattr(modules.get("Pooling"), "pooling_mode", None)
        if not KNOWN.fullmatch(names_of(own)) or not isinstance(mode, str | None):
            return {}
        if dense and (type(dense.activation_function) is not nn.Identity or dense.use_residual):
            return {}
        of_side = {"pooling": mode, "projection": dense and dense.out_features}
        if settings and settings != of_side:
            return {}
        settings = of_side
    for key, name in {"layer_norm": "LayerNorm", "normalize": "Normalize"}.items():
        having = [side for side, own in layers.items() if name in names_of(own).split()]
        settings[key] = having[0] if len(having) == 1 else bool(having)
    return settings


def dense_of(weight: torch.Tensor, bias: torch.Tensor) -> nn.Module:
    """A linear layer of these weights (D, H) and (D,)."""
    from sentence_transformers.base.modules import Dense

    size, hidden = weight.shape
    return Dense(hidden, size, activation_function=None, init_weight=weight.float(), init_bias=bias.float())


def save_modules(
    layers: Layers, folder: Path, tokenizer: "PreTrainedTokenizerBase", config: EncoderConfig
) -> None:
    """Write the modules of a tower, of one side or of both, as sentence-transformers loads them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    first, *others = layers.values()
    shared: list[Any] = list(first)
    for other in others:
        while any(a is not b for a, b in zip(shared, other, strict=False)) or len(shared) > len(other):
            shared.pop()
    ends: dict[Side, list[Any]] = {side: own[len(shared) :] for side, own in layers.items()}
    routes = [Router.for_query_document(ends["query"], ends["document"])] if any(ends.values()) else []
    lengths = {side: config.tokenization.side(side).length_tokens for side in layers}
    first_module: Any = shared[0]
    is_static = not hasattr(first_module, "processor")
    if is_static:
        first_module.tokenizer.enable_truncation(max(lengths.values()))
    else:
        # Pyserini's stock class `auto` truncates queries at the tokenizer's limit only.
        tokenizer.model_max_length = next(iter(lengths.values()))
        first_module.processor = tokenizer
        first_module.query_length, first_module.document_length = (lengths.get(side) for side in SIDES)
    device = str(next(first_module.parameters()).device)
    model = SentenceTransformer(modules=[*shared, *routes], device=device, **_model_settings(layers, config))
    model.save(str(folder), create_model_card=False)
    if is_static:
        return
    # The length of texts of no side; that in the tokenizer is another, for Pyserini.
    file = folder / first_module.config_file_name
    ours = {"max_seq_length": max(lengths.values()), "do_lower_case": config.tokenization.lowercase}
    write_json(file, {**read_json(file), **ours})


def _model_settings(layers: Layers, config: EncoderConfig) -> dict[str, Any]:
    """Settings of a whole model. sentence-transformers cuts vectors after all modules: of normalized ones it
    compares the rests by cosine, as if they were normalized again. A query's length changes no ranking."""
    is_normalized = names_of(layers.get("document", ())).endswith("Normalize")
    similarity = {"similarity_fn_name": "cosine" if config.truncate_dim and is_normalized else "dot"}
    cut = {"truncate_dim": config.truncate_dim} if config.truncate_dim else {}
    return {"prompts": config.tokenization.prompts(), **similarity, **cut}


def write_router(folder: Path, towers: Mapping[Side, str], layers: Layers, config: EncoderConfig) -> None:
    """Make one model of the models of the sides in folders within `folder`: a Router."""
    listed = {
        side: [(Path(name) / module.folder, module.type) for module in modules_of(str(folder / name), side)]
        for side, name in towers.items()
    }
    router = {
        "types": {path.as_posix(): of_type for modules in listed.values() for path, of_type in modules},
        "structure": {side: [path.as_posix() for path, _ in modules] for side, modules in listed.items()},
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }
    write_json(folder / "router_config.json", router)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]
    write_json(folder / MODULES_FILE, modules)
    write_json(folder / MODEL_FILE, _model_settings(layers, config))
