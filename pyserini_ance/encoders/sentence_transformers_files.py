"""What the files of a sentence-transformers model say before its weights are loaded: its modules, and how it
reads texts.
"""

import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.hub import model_file

log = logging.getLogger(__name__)

PROMPTS: dict[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
MODULES, MODEL = "modules.json", "config_sentence_transformers.json"
# The settings of a Transformer; older versions named the file by the model.
OLDER_MODELS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER = tuple(f"sentence_{name}_config.json" for name in OLDER_MODELS)
NO_LIMIT = 1_000_000  # tokens of a text
# The models whose first position is that after the padding's.
AFTER_PADDING = {"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}


class Module(NamedTuple):
    """A module of a model: its class by its full name, and its folder; "" is the model's own."""

    type: str
    folder: str

    @property
    def name(self) -> str:
        return self.type.rpartition(".")[2]


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


def modules_of(source: str, side: Side, download: bool = True) -> list[Module]:
    """The modules that encode texts of a side, in their order; empty for models of others.

    download: as for `model_file`.
    """
    files, modules = _Files(source, download), []
    for module in files.read(MODULES):
        folder = PurePosixPath(module["path"]).as_posix().removeprefix(".")  # model2vec writes "."
        of_type = Module(module["type"], folder)
        modules += _route(files, folder, side) if of_type.name in ("Router", "Asym") else [of_type]
    return modules


def _route(files: _Files, path: str, side: Side) -> list[Module]:
    """A Router's modules for texts of a side. Source: sentence-transformers 6.2,
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
    return [Module(config["types"][name], PurePosixPath(path, name).as_posix()) for name in routes[names[0]]]


def tower_source(source: str, side: Side) -> str:
    """The folder or hub name of a side's first module, with its tokenizer: `source`, or a folder in it.

    A folder of a hub model is downloaded, if it is not in the cache.
    """
    modules = modules_of(source, side)
    folder = modules[0].folder if modules else ""
    if not folder or Path(source).exists():
        return str(Path(source) / folder) if folder else source
    from huggingface_hub import snapshot_download

    return str(Path(snapshot_download(source, allow_patterns=f"{folder}/*")) / folder)


def text_settings(
    source: str, documents: str | None = None, given: Collection[str] = (), download: bool = False
) -> dict[str, Any]:
    """The settings of `encoder:` that say how a sentence-transformers model reads texts; empty for others.

    They are `tied: false` for a Router of two towers, `truncate_dim`, and of `tokenization` the lengths,
    templates of a prompt and the text, and `lowercase`. documents: the model of the document tower; default:
    `source`. given: keys that the recipe sets, such as `tokenization.query.template`. download: as for
    `model_file`.

    Raises ValueError for prompts that cannot be templates, and for sides that differ in `lowercase`, which
    both share.
    """
    models: dict[Side, str] = {"query": source, "document": documents or source}
    modules = {side: modules_of(models[side], side, download) for side in SIDES}
    known: dict[Side, dict[str, Any]] = {
        side: _side_settings(_Files(models[side], download), side, of_side, given)
        for side, of_side in modules.items()
        if of_side
    }
    if not known:
        return {}
    lowercase = {settings.pop("lowercase") for settings in known.values()}
    cuts = {_Files(model, download).read(MODEL).get("truncate_dim") for model in models.values()}
    for key, values in {"tokenization.lowercase": lowercase, "truncate_dim": cuts}.items():
        if len(values) > 1 and key not in given:
            names = " and ".join(dict.fromkeys(models.values()))
            raise ValueError(f"{names}: the sides differ in {key}; set encoder.{key} for both")
    tokenization: dict[str, Any] = {str(side): settings for side, settings in known.items()}
    if lowercase == {True}:
        tokenization["lowercase"] = True
    tied = models["query"] != models["document"] or modules["query"][0] == modules["document"][0]
    cut = {"truncate_dim": size} if (size := cuts.pop()) else {}
    return {**cut, "tokenization": tokenization, **({} if tied else {"tied": False})}


def _side_settings(
    files: _Files, side: Side, modules: list[Module], given: Collection[str]
) -> dict[str, Any]:
    config = files.read(MODEL)
    transformer = modules[0].folder
    names = [PurePosixPath(transformer, name).as_posix() for name in TRANSFORMER]
    text: dict[str, Any] = next(filter(None, map(files.read, names)), {})
    arguments = text.get("tokenizer_args", text.get("processor_kwargs")) or {}
    odd = [key for key, value in arguments.items() if key != "model_max_length" and value is not None]
    odd += [key for key in ("query_expansion", "processing_kwargs") if text.get(key)]
    odd += ["a chat template"] if "message" in (text.get("modality_config") or {}) else []
    if odd:
        cure = "choose another model, or remove the setting in a copy, for vectors without it"
        raise files.refuse(f"that sets {', '.join(odd)}, which is not supported", cure)
    whole = all(files.read(each.folder, "config.json").get("include_prompt", True) for each in modules[1:])
    template, is_static = None, modules[0].name == "StaticEmbedding"
    if f"tokenization.{side}.template" not in given:
        template = _template(files.source, config, side, whole)
    own = text.get(f"{side}_length") or arguments.get("model_max_length") or text.get("max_seq_length")
    if is_static:
        cut = files.read(transformer, "tokenizer.json").get("truncation") or {}
        length = cut.get("max_length", NO_LIMIT)
    else:
        length = _length(files, transformer, own)
    settings = {"template": template, "length_tokens": length}
    given_ones = {key: value for key, value in settings.items() if value is not None}
    return {**given_ones, "lowercase": bool(text.get("do_lower_case"))}


def _template(source: str, config: Mapping[str, Any], side: Side, is_pooled: bool) -> str | None:
    prompts = config.get("prompts") or {}
    prompt = next((prompts[name] for name in PROMPTS[side] if name in prompts), None)
    if not prompt:
        return None
    if "{" in prompt or not is_pooled:
        raise ValueError(
            f"{source}: its {side} prompt {prompt!r} has braces, or is left out of the pooling, which is not "
            f"supported; set tokenization.{side}.template"
        )
    return f"{prompt}{{text}}" if side == "query" else f"{prompt}{{title}} {{text}}"


def _length(files: _Files, folder: str, own: int | None) -> int | None:
    """The maximum length; without an `own` setting that of the tokenizer, up to the positions of the model.

    Without either, sentence-transformers writes all positions, where a text may need some before its own.
    """
    limit = own or files.read(folder, "tokenizer_config.json").get("model_max_length")
    config = files.read(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if positions and config.get("model_type") in AFTER_PADDING:
        positions -= config.get("pad_token_id", 1) + 1
    known = [int(number) for number in (limit, positions) if number]
    return min(*known, NO_LIMIT) if known else None


def check_similarity(source: str, normalized: bool) -> None:
    """Warn of a model that compares vectors in another way than by their inner product."""
    function = _Files(source).read(MODEL).get("similarity_fn_name")
    if function in (None, "dot") or (function == "cosine" and normalized):
        return
    cure = "set encoder.normalize=true to rank as it does" if function == "cosine" else "it ranks differently"
    log.warning(f"{source} compares vectors by {function}, here they are compared by inner product; {cure}")
