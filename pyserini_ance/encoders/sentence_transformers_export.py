"""Export for sentence-transformers: files that let it load an encoder with its layers, lengths and prompts.

Without them it averages all tokens, does not normalize, and truncates documents at the length of queries:
`model_max_length` of the tokenizer is that length, by which Pyserini's stock class `auto` truncates queries.
Two towers are the two routes of its Router, each with its own length. One tower has one length there, the
longer one.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.families.roberta_ance import RobertaAnce
from pyserini_ance.encoders.families.transformer import PROJECTION, Transformer
from pyserini_ance.encoders.family import Family, at
from pyserini_ance.encoders.load_save import TOWERS, family_of, read_side_file
from pyserini_ance.encoders.sentence_transformers_import import LINEAR
from pyserini_ance.storage.files import write_json, write_whole

TEMPLATE = re.compile(r"([^{}]*)(\{title\} )?\{text\}")  # a title comes as part of the text
MODULES, CONFIG = "modules.json", "config_sentence_transformers.json"


def write_sentence_transformers(folder: Path) -> str | None:
    """Complete the folder of a saved encoder that is not published yet; or return why it cannot be loaded
    there.

    Encoders of the kinds `transformer` and `roberta_ance` can, with templates of a prefix, perhaps `{title}`,
    and `{text}`.
    """
    family = family_of(folder)
    if reason := _obstacle(family):
        return reason
    assert isinstance(family, Transformer | RobertaAnce)
    if family.tied:
        _write_tower(folder, family, SIDES)
        return None
    routes = {side: _write_tower(folder / name, family, [side]) for side, name in TOWERS.items()}
    named = {
        side: {(Path(TOWERS[side]) / path).as_posix(): kind for path, kind in layers}
        for side, layers in routes.items()
    }
    router = {
        "types": {path: _type(kind) for layers in named.values() for path, kind in layers.items()},
        "structure": {side: list(layers) for side, layers in named.items()},
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }
    write_json(folder / "router_config.json", router)
    _write_modules(folder, [("", "Router")], family, SIDES)
    return None


def _obstacle(family: Family) -> str | None:
    tokenization = family.tokenization
    if not isinstance(family, Transformer | RobertaAnce):
        return f"encoder.kind={getattr(family, 'kind', '')}"
    for key in ("normalize", "layer_norm"):
        if family.tied and not isinstance(getattr(family, key, True), bool):
            return f"encoder.{key}, which differs by side, of one tower"
    for side in SIDES:
        if not TEMPLATE.fullmatch(template := tokenization.side(side).template):
            return f"encoder.tokenization.{side}.template={template!r}"
    if tokenization.document.passages > 1:
        return f"encoder.tokenization.document.passages={tokenization.document.passages}"
    if tokenization.lowercase or tokenization.prefix_space is not None:
        return "encoder.tokenization.lowercase and prefix_space"
    return None


def _write_tower(
    folder: Path, family: Transformer | RobertaAnce, sides: Sequence[Side]
) -> list[tuple[str, str]]:
    """Write the layers of a tower that encodes `sides`; return their folders and kinds."""
    linear, norm = _head(folder, family)
    kinds = ["Transformer", "Pooling"]
    kinds += ["Dense"] if linear else []
    kinds += ["LayerNorm"] if norm and at(sides[0], getattr(family, "layer_norm", False)) else []
    kinds += ["Normalize"] if at(sides[0], family.normalize) else []
    paths = {kind: f"{number}_{kind}" if number else "" for number, kind in enumerate(kinds)}
    for kind in kinds[1:]:
        (folder / paths[kind]).mkdir()
    length = max(family.tokenization.side(side).length_tokens for side in sides)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    size = width = read_side_file(folder)["dimension"]
    if linear:
        size, width = linear["linear.weight"].shape
        about = {"in_features": width, "out_features": size, "bias": True, "activation_function": LINEAR}
        _write_layer(folder / paths["Dense"], about, linear)
    if "LayerNorm" in paths:
        _write_layer(folder / paths["LayerNorm"], {"dimension": size}, norm)
    pooling = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": family.pooling == "cls",
        "pooling_mode_mean_tokens": family.pooling == "mean",
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)
    layers = [(path, kind) for kind, path in paths.items()]
    _write_modules(folder, layers, family, sides)
    return layers


def _head(folder: Path, family: Transformer | RobertaAnce) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of the linear layer and of the LayerNorm after pooling, by their names in
    sentence-transformers; empty for a layer that the encoder lacks."""
    if isinstance(family, RobertaAnce):
        saved = load_file(folder / "model.safetensors")
        linear = {f"linear.{name}": saved[f"embeddingHead.{name}"] for name in ("weight", "bias")}
        return linear, {name: saved[name] for name in ("norm.weight", "norm.bias")}
    projection = load_file(folder / PROJECTION) if family.projection else {}
    return {f"linear.{name}": values for name, values in projection.items()}, {}


def _write_layer(folder: Path, config: dict[str, object], weights: dict[str, Tensor]) -> None:
    write_json(folder / "config.json", config)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _write_modules(
    folder: Path, layers: Sequence[tuple[str, str]], family: Family, sides: Sequence[Side]
) -> None:
    matches = {side: TEMPLATE.fullmatch(family.tokenization.side(side).template) for side in sides}
    prompts = {side: match[1] for side, match in matches.items() if match}
    write_json(folder / CONFIG, {"prompts": prompts, "similarity_fn_name": "dot"})
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _type(kind)} for i, (path, kind) in enumerate(layers)
    ]
    write_whole(folder / MODULES, json.dumps(listed, indent=2) + "\n")


def _type(kind: str) -> str:
    return f"sentence_transformers.models.{kind}"
