"""Reader of sentence-transformers models: where the weights of a side are, and the settings in their files.

A model is a list of modules: a Transformer, a Pooling, perhaps a Dense without activation and a Normalize. A
Router has such a list for each side. Other modules and settings change vectors in ways that this package
lacks, and are refused.
"""

import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.family import SIDE_FILE
from pyserini_ance.encoders.hub import model_file

log = logging.getLogger(__name__)

PROMPTS: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
LAYERS = re.compile(r"Transformer Pooling( Dense)?( Normalize)*")
LINEAR = "torch.nn.modules.linear.Identity"  # what a Dense layer applies after its linear layer
REMOVE = "remove modules from modules.json of a copy, to train other vectors from its weights"
VECTOR = "sentence_embedding"  # the name of a text's vector between modules
# Settings of a module that change no vector of a text, or at these values do not.
TRANSFORMER: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
READ = {"max_seq_length", "do_lower_case", "query_length", "document_length", "unpad_inputs"}
HARMLESS = {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "model_max_length"}
OLDER_MODELS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
OLDER_FILES = tuple(f"sentence_{name}_config.json" for name in OLDER_MODELS)
# The models whose first position is that after the padding's.
AFTER_PADDING = {"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}
# Prompts, lengths and lower-casing are of a side; these settings are of the encoder.
SHARED = ("pooling", "projection", "lowercase")


class _Files(NamedTuple):
    """The JSON files of a model, in a folder or on the hub."""

    source: str
    download: bool = False

    def read(self, *parts: str) -> Any:
        """A file's content, {} without the file."""
        file = model_file(self.source, PurePosixPath(*parts).as_posix(), self.download)
        return {} if file is None else json.loads(file.read_text(encoding="utf-8"))

    def refuse(self, what: str, cure: str) -> ValueError:
        return ValueError(f"{self.source} is a sentence-transformers model {what}; {cure}")


def sentence_transformers_settings(
    source: str, download: bool = False, documents: str | None = None, given: Collection[str] = ()
) -> dict[str, Any]:
    """The settings of `encoder:` in the files of a sentence-transformers model; empty for other models.

    They are `pooling`, `normalize`, `projection`, `tied: false` for a Router of two towers, and of
    `tokenization` the lengths, templates of a prompt and the text, and `lowercase`. pooling may be one that
    this package lacks. download: as for `model_file`. documents: the model of the document tower, if it is
    another one. given: keys that the recipe sets, such as `pooling` and `tokenization.query.template`.

    Raises ValueError for modules and settings that this package lacks, for prompts that cannot be templates,
    and for sides that differ in a setting that both share.
    """
    models: dict[Side, str] = {"query": source, "document": documents or source}
    sides = {side: _side_settings(_Files(models[side], download), side, given) for side in SIDES}
    known = {side: settings for side, settings in sides.items() if settings is not None}
    if not known:
        return {}
    first, last = (known.get(side) or next(iter(known.values())) for side in SIDES)
    for key in SHARED:
        name = f"tokenization.{key}" if key == "lowercase" else key
        if first[key] != last[key] and name not in given:
            raise ValueError(
                f"{' and '.join(dict.fromkeys(models.values()))}: {name} is {first[key]!r} for queries and "
                f"{last[key]!r} for documents, but both sides share it here; set encoder.{name}"
            )
    normalize: bool | Side = first["normalize"]
    if first["normalize"] != last["normalize"]:
        normalize = "query" if first["normalize"] else "document"
    tokenization: dict[str, Any] = {side: settings["tokenization"] for side, settings in known.items()}
    tokenization["lowercase"] = first["lowercase"]
    made = {
        "pooling": first["pooling"],
        "normalize": normalize,
        "projection": first["projection"],
        "tied": False if documents is None and first["weights"] != last["weights"] else None,
        "tokenization": {key: value for key, value in tokenization.items() if value},
    }
    return {key: value for key, value in made.items() if value is not None}


def tower_source(source: str, side: Side) -> str:
    """The folder or hub name of the weights and tokenizer of a side: `source`, or a folder in it.

    A folder of a hub model is downloaded, if it is not in the cache.
    """
    modules = _modules(_Files(source, download=model_file(source, "config.json") is None), side)
    folder = next((path for kind, path in modules if kind == "Transformer"), "")
    if not folder or Path(source).exists():
        return str(Path(source) / folder) if folder else source
    from huggingface_hub import snapshot_download

    return str(Path(snapshot_download(source, allow_patterns=f"{folder}/*")) / folder)


def has_two_towers(source: str) -> bool:
    """Whether queries and documents have other weights, in a model that `tower_source` has looked at."""
    modules = [_modules(_Files(source), side) for side in SIDES]
    query, document = ({path for kind, path in of if kind in ("Transformer", "Dense")} for of in modules)
    return query != document


def read_dense(source: str, side: Side) -> dict[str, torch.Tensor] | None:
    """`weight` and `bias` of the Dense layer of a side, in a model that `tower_source` has looked at; None
    without one."""
    if (dense := _layers(_Files(source), side).get("Dense")) is None:
        return None
    from safetensors.torch import load_file

    if file := model_file(source, f"{dense}/model.safetensors", download=True):
        saved = load_file(file)
    elif file := model_file(source, f"{dense}/pytorch_model.bin", download=True):
        saved = torch.load(file, map_location="cpu", weights_only=True)
    else:
        raise RuntimeError(f"{source}: {dense} has no weights; download the model again")
    weight = saved["linear.weight"].float()
    return {"weight": weight, "bias": saved.get("linear.bias", torch.zeros(len(weight))).float()}


def check_similarity(source: str, normalized: bool) -> None:
    function = _Files(source).read("config_sentence_transformers.json").get("similarity_fn_name")
    if function in (None, "dot") or (function == "cosine" and normalized):
        return
    cure = "set encoder.normalize=true to rank as it does" if function == "cosine" else "it ranks differently"
    log.warning(f"{source} compares vectors by {function}, here they are compared by inner product; {cure}")


def _modules(files: _Files, side: Side) -> list[tuple[str, str]]:
    """The kinds and folders of a side's modules; empty for models of others, and for our own."""
    modules: list[tuple[str, str]] = []
    if (Path(files.source) / SIDE_FILE).exists():
        return modules
    for module in files.read("modules.json"):
        kind, path = _kind(module["type"]), module["path"]
        modules += _route(files, path, side) if kind in ("Router", "Asym") else [(kind, path)]
    return [(kind, path) for kind, path in modules if kind != "Dropout"]  # off in encoding


def _layers(files: _Files, side: Side) -> dict[str, str]:
    """The folders of a side's modules by kind; "" is the model's own folder. Empty as `_modules`.

    Raises ValueError for modules that this package lacks.
    """
    modules = _modules(files, side)
    kinds = [kind for kind, _ in modules]
    if modules and not LAYERS.fullmatch(" ".join(kinds)):
        names = ", ".join(f"{path} ({kind})" if path else kind for kind, path in modules)
        raise files.refuse(
            f"of the modules {names}; supported are a Transformer, a Pooling, perhaps a Dense and a "
            "Normalize, in this order",
            "for ANCE's head use the original checkpoint, such as castorini/ance-msmarco-passage"
            if "LayerNorm" in kinds
            else f"choose another model, or {REMOVE}",
        )
    return dict(modules)


def _kind(name: str) -> str:
    """A module's class; with its package if that is not sentence-transformers."""
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def _route(files: _Files, path: str, side: Side) -> list[tuple[str, str]]:
    """The kinds and folders of a Router's modules for texts of a side. Source: sentence-transformers 6.2,
    `Router._resolve_route_name`."""
    config = files.read(path, "router_config.json") or files.read(path, "config.json")
    routes, parameters = config["structure"], config.get("parameters", {})
    mapped = parameters.get("route_mappings") or {}
    keys = [str(key) for key in ((side, "text"), (side, None), (None, "text"), (None, None))]
    names = [mapped[key] for key in keys if key in mapped]
    names += [key for key in (side, "text") if key in routes]
    if not names:
        cure = "choose a model with the routes query and document"
        raise files.refuse(f"whose Router has the routes {', '.join(routes)}, and none for a {side}", cure)
    return [(_kind(config["types"][name]), PurePosixPath(path, name).as_posix()) for name in routes[names[0]]]


def _side_settings(files: _Files, side: Side, given: Collection[str]) -> dict[str, Any] | None:
    """A side's settings, and `weights`, the folders with its weights; None for other models."""
    if not (layers := _layers(files, side)):
        return None
    pooling, dense = files.read(layers["Pooling"], "config.json"), layers.get("Dense")
    scaled = files.read(layers.get("Normalize", ""), "config.json").get("module_input_name", VECTOR)
    names = [PurePosixPath(layers["Transformer"], name).as_posix() for name in OLDER_FILES]
    name = next(filter(files.read, names), names[0])
    text: dict[str, Any] = files.read(name)
    for key, value in text.items():  # settings that change vectors in ways that this package lacks
        odd = value
        if value and key.endswith(("_args", "_kwargs")):
            odd = {inner: of for inner, of in value.items() if inner not in HARMLESS}
        if key not in READ and odd and odd != TRANSFORMER.get(key):
            cure = "choose another model, or remove the setting in a copy, for vectors without it"
            raise files.refuse(f"whose {name} sets {key} to {json.dumps(odd)}, which is not supported", cure)
    config = files.read("config_sentence_transformers.json")
    if size := config.get("truncate_dim"):
        cure = "remove truncate_dim from config_sentence_transformers.json of a copy, for whole vectors"
        raise files.refuse(f"that keeps {size} numbers of a vector (truncate_dim)", cure)
    # Older files have a key for each pooling. One that this package lacks goes by its name.
    flags = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    modes = [flags.get(key, key) for key, on in pooling.items() if key.startswith("pooling_mode_") and on]
    mode = pooling.get("pooling_mode", modes or "mean")
    given_template = f"tokenization.{side}.template" in given
    tokenization = {
        "template": None if given_template else _template(files, config, side, pooling),
        "length_tokens": _length(files, layers["Transformer"], text, side),
    }
    return {
        "weights": (layers["Transformer"], dense),
        "pooling": mode if isinstance(mode, str) else ",".join(mode),
        "normalize": "Normalize" in layers and scaled == VECTOR,
        "projection": dense and _dense_size(files, dense),
        "lowercase": bool(text.get("do_lower_case")),
        "tokenization": {key: value for key, value in tokenization.items() if value is not None},
    }


def _template(files: _Files, config: Mapping[str, Any], side: Side, pooling: Mapping[str, Any]) -> str | None:
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    name = next((name for name in PROMPTS[side] if name in prompts), default)
    prompt = prompts.get(name)
    if not prompt:
        return None
    if "{" in prompt or pooling.get("include_prompt") is False:
        raise ValueError(
            f"{files.source}: its {side} prompt {prompt!r} has braces, or is left out of the pooling, which "
            f"is not supported; set tokenization.{side}.template"
        )
    return f"{prompt}{{text}}" if side == "query" else f"{prompt}{{title}} {{text}}"


def _length(files: _Files, folder: str, text: Mapping[str, Any], side: Side) -> int | None:
    """The maximum length; without a setting that of the tokenizer, up to the positions of the model.

    Without either, sentence-transformers writes all positions, where a text may need some before its own.
    """
    arguments = text.get("processor_kwargs") or text.get("tokenizer_args") or {}
    own = text.get(f"{side}_length") or arguments.get("model_max_length") or text.get("max_seq_length")
    limit = own or files.read(folder, "tokenizer_config.json").get("model_max_length")
    config = files.read(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if positions and config.get("model_type") in AFTER_PADDING:
        positions -= config.get("pad_token_id", 1) + 1
    known = [int(number) for number in (limit, positions) if number]
    return min(known) if known else None


def _dense_size(files: _Files, folder: str) -> int:
    """The size of a Dense layer's vectors. Raises ValueError unless it is a linear layer alone."""
    config = files.read(folder, "config.json")
    config.setdefault("activation_function", "torch.nn.modules.activation.Tanh")
    expected = {"activation_function": LINEAR, "module_input_name": VECTOR, "module_output_name": VECTOR}
    for key, value in {**expected, "use_residual": False}.items():
        if (found := config.get(key) or value) != value:
            differs = f"whose {folder} (Dense) has {key} {found}, but supported is {value}"
            raise files.refuse(differs, f"choose another model, or {REMOVE}")
    return int(config["out_features"])
