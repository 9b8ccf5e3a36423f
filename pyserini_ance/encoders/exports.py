"""Exports of saved encoders, in folders that are not published yet, for other programs.

For sentence-transformers: files that let it load an encoder with its layers, lengths and prompts. Without
them it averages all tokens, does not normalize, and truncates documents at the length of queries:
`model_max_length` of the tokenizer is that length, by which Pyserini's stock class `auto` truncates queries.
Two towers are the two routes of its Router, each with its own length. One tower has one length there, the
longer one.

For Pyserini's stock class `dpr`: the format of Hugging Face's DPRQuestionEncoder and DPRContextEncoder, for a
pair that sentence-transformers cannot express. Training and checkpoints use BERT's format. The two differ
only by names in config.json and in the file of weights, so the conversion is exact, and both formats have the
same hash. BERT's pooler is kept, as in DPR's own releases; vectors do not use it.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.families.roberta_ance import RobertaAnce
from pyserini_ance.encoders.families.transformer import PROJECTION, Transformer
from pyserini_ance.encoders.family import Family, at
from pyserini_ance.encoders.load_save import TOWERS, family_of, read_side_file
from pyserini_ance.encoders.released import DPR_FOLDER, DPR_PREFIX
from pyserini_ance.encoders.sentence_transformers_import import LINEAR
from pyserini_ance.storage import files

Weights = dict[str, torch.Tensor]
TEMPLATE = re.compile(r"([^{}]*)(\{title\} )?\{text\}")  # a title comes as part of the text
POOLINGS = {"cls_token": "cls", "mean_tokens": "mean"}
MODULES, ST_CONFIG = "modules.json", "config_sentence_transformers.json"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TEMPLATES: dict[Side, tuple[str, ...]] = {
    "query": ("{text}",),
    "document": ("{text}", "{title} [SEP] {text}"),
}


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
    files.write_json(folder / "router_config.json", router)
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
    files.write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    size = width = read_side_file(folder)["dimension"]
    if linear:
        size, width = linear["linear.weight"].shape
        about = {"in_features": width, "out_features": size, "bias": True, "activation_function": LINEAR}
        _write_layer(folder / paths["Dense"], about, linear)
    if "LayerNorm" in paths:
        _write_layer(folder / paths["LayerNorm"], {"dimension": size}, norm)
    pooling: dict[str, int] = {"word_embedding_dimension": width}
    pooling |= {f"pooling_mode_{name}": family.pooling == kind for name, kind in POOLINGS.items()}
    files.write_json(folder / "1_Pooling" / "config.json", pooling)
    layers = [(path, kind) for kind, path in paths.items()]
    _write_modules(folder, layers, family, sides)
    return layers


def _head(folder: Path, family: Transformer | RobertaAnce) -> tuple[Weights, Weights]:
    """The weights of the linear layer and of the LayerNorm after pooling, by their names in
    sentence-transformers; empty for a layer that the encoder lacks."""
    if isinstance(family, RobertaAnce):
        saved = load_file(folder / "model.safetensors")
        linear = {f"linear.{name}": saved[f"embeddingHead.{name}"] for name in ("weight", "bias")}
        return linear, {name: saved[name] for name in ("norm.weight", "norm.bias")}
    projection = load_file(folder / PROJECTION) if family.projection else {}
    return {f"linear.{name}": values for name, values in projection.items()}, {}


def _write_layer(folder: Path, config: dict[str, object], weights: Weights) -> None:
    files.write_json(folder / "config.json", config)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _write_modules(
    folder: Path, layers: Sequence[tuple[str, str]], family: Family, sides: Sequence[Side]
) -> None:
    matches = {side: TEMPLATE.fullmatch(family.tokenization.side(side).template) for side in sides}
    prompts = {side: match[1] for side, match in matches.items() if match}
    files.write_json(folder / ST_CONFIG, {"prompts": prompts, "similarity_fn_name": "dot"})
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _type(kind)} for i, (path, kind) in enumerate(layers)
    ]
    files.write_whole(folder / MODULES, json.dumps(listed, indent=2) + "\n")


def _type(kind: str) -> str:
    return f"sentence_transformers.models.{kind}"


def to_dpr(folder: Path) -> None:
    """Convert two towers that `save_encoder` wrote, in a folder that is not published yet.

    DPR's towers are BERTs with CLS pooling and nothing after it, for texts that DPR's encoders can build.
    Any other encoder is not changed, because the stock class `auto` reads only BERT's format.
    """
    if _can_convert(folder):
        for side, name in TOWERS.items():
            _rename(folder / name, side)


def is_dpr(tower: Path) -> bool:
    """Whether a tower's folder has DPR's format."""
    return (files.read_json_object(tower / CONFIG) or {}).get("model_type") == "dpr"


def weights_sha256(weights: Path) -> str:
    """The hash of a file of weights; weights in DPR's format are hashed under BERT's names."""
    if not is_dpr(weights.parent):
        return files.sha256_file(weights)
    tensors, about = _read(weights)
    prefixes = re.compile("|".join(map(re.escape, DPR_PREFIX.values())))
    return hashlib.sha256(save({prefixes.sub("", name): t for name, t in tensors.items()}, about)).hexdigest()


def _read(weights: Path) -> tuple[Weights, dict[str, str]]:
    with safe_open(weights, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def _can_convert(folder: Path) -> bool:
    family = family_of(folder)
    if not isinstance(family, Transformer) or family.tied or family.pooling != "cls":
        return False
    if family.normalize or family.projection:
        return False
    if any(family.tokenization.side(side).template not in of_side for side, of_side in TEMPLATES.items()):
        return False
    towers = [folder / name for name in TOWERS.values()]
    are_berts = all(files.read_json(tower / CONFIG)["model_type"] == "bert" for tower in towers)
    return are_berts and all((tower / WEIGHTS).exists() for tower in towers)


def _rename(tower: Path, side: Side) -> None:
    [architecture] = [name for name, of in DPR_FOLDER.items() if of == side]
    tensors, about = _read(tower / WEIGHTS)
    save_file({DPR_PREFIX[side] + name: tensor for name, tensor in tensors.items()}, tower / WEIGHTS, about)
    config = files.read_json(tower / CONFIG)
    files.write_json(tower / CONFIG, {**config, "model_type": "dpr", "architectures": [architecture]})
