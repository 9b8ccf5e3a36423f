"""Released checkpoints: recognises the formats of released.yaml, warns of other settings than theirs, and
reads files that Hugging Face does not: DPR checkpoints, Tevatron heads, arguments of microsoft/ANCE.
"""

import logging
import pickle
import re
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, is_zipfile

import torch
import yaml

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.sentence_transformers_import import sentence_transformers_settings, tower_source
from pyserini_ance.recipe.components import Settings
from pyserini_ance.storage.files import read_json_object

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pyserini_ance.encoders.family import Family

log = logging.getLogger(__name__)
# The architectures and prefixes of Hugging Face's DPRQuestionEncoder and DPRContextEncoder.
DPR_FOLDER: dict[str, Side] = {"DPRQuestionEncoder": "query", "DPRContextEncoder": "document"}
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
DPR_FILE: dict[Side, str] = {"query": "question_model.", "document": "ctx_model."}
TEVATRON_FOLDER: dict[Side, str] = {"query": "query_model", "document": "passage_model"}
TEVATRON_POOLER: dict[Side, str] = {"query": "linear_q.", "document": "linear_p."}


@dataclass(frozen=True)
class Form:
    """A format of released checkpoints.

    A checkpoint has the format if config.json has one of the `architectures` or `model_types`, if its name
    matches `called`, or if training_args.bin has these `arguments`.

    description: the releases and their particularities, for messages.
    names: replacements in the names of weights (regular expressions).
    unused: further weights that vectors do not use (a regular expression).
    reads: how texts were tokenized, as settings of `tokenization`; lengths are the longest that were used.
    documents: the same for releases for documents, in addition.
    vocabulary: the keys of `reads` that also apply with a new head.
    vectors: how vectors are computed, as settings of the encoder, if that differs from other weights of
        these names.
    """

    description: str
    kind: str
    architectures: Sequence[str] = ()
    model_types: Sequence[str] = ()
    called: str = r"(?!)"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    unused: str = r"(?!)"
    reads: Mapping[str, Any] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Sequence[str] = ()
    vectors: Mapping[str, Any] = field(default_factory=dict)


_TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FORMS = tuple(Form(**form) for form in _TABLE["forms"].values())
STAR, SEED, DANCE, MAXP, ANCE, DPR, TELE = FORMS


def form_of(kind: str, source: str, config: Mapping[str, Any]) -> Form | None:
    """The format of a released checkpoint; None for anything else, such as a pretrained language model."""
    architecture = (config.get("architectures") or [""])[0]
    for form in FORMS:
        if form.kind == kind and (
            architecture in form.architectures
            or config.get("model_type") in form.model_types
            or _called(form.called, source)
            or (form.arguments and form.arguments.items() <= read_arguments(source).items())
        ):
            return form
    return None


def _called(pattern: str, source: str) -> bool:
    """Whether the name of a release matches: that of `~/models/DANCE/checkpoint-190000` is `DANCE`."""
    name = re.sub(_TABLE["below"], "", source.rstrip("/"))
    return bool(re.search(f"({pattern})[^/]*$", name, re.IGNORECASE))


def warn_about_settings(
    form: Form, source: str, encoder: "Family", only: Collection[str] | None = None
) -> None:
    """Warn of settings that differ from the training of `form`; shorter lengths are no difference.

    only: keys of `tokenization`, for weights of which no others are used.
    """
    reads = {**form.reads, **(form.documents if _called(_TABLE["of_documents"], source) else {})}
    expected = {f"tokenization.{key}": reads[key] for key in (reads if only is None else only)}
    for key, value in {**expected, **(form.vectors if only is None else {})}.items():
        given = attrgetter(key)(encoder)
        given = given.model_dump() if isinstance(given, Settings) else given
        if given > value if key.endswith("length_tokens") else given != value:
            log.warning(
                f"encoder.{key} is {given!r}, and {source} was trained with {value!r} [{form.description}]"
            )


def check_unexpected_weights(source: str, unexpected: Collection[str], form: Form | None) -> None:
    """Raises RuntimeError for weights that the encoder lacks and that vectors may depend on."""
    unused = f"{_TABLE['harmless']}|{form.unused}" if form else _TABLE["harmless"]
    if left := sorted(name for name in unexpected if not re.search(unused, name)):
        raise RuntimeError(
            f"{source} contains {len(left)} weights that this encoder lacks, first {', '.join(left[:3])}; "
            "its vectors may depend on them. Choose the encoder.kind that has them, "
            "or, if they were only used in pretraining, save the model without them."
        )


def foreign_settings(source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The `encoder:` section for a checkpoint that this package has not saved: what is given, the settings in
    sentence-transformers' files, those of its release, or defaults.

    Raises ValueError for a `length_tokens` of anything but the sides.
    """
    from transformers import PreTrainedConfig

    cap = given.get("length_tokens", {})
    caps = cap if isinstance(cap, Mapping) else dict.fromkeys(SIDES, cap)
    if caps.keys() - set(SIDES):
        raise ValueError(f"length_tokens is {cap!r}; expected a number, or one for each side: {SIDES}")
    config = PreTrainedConfig.get_config_dict(tower_source(source, "query"))[0]
    forms = (form_of(kind, source, config) for kind in ("roberta_ance", "transformer"))
    form = next((form for form in forms if form), None)
    settings: dict[str, Any] = {"kind": "transformer", "pooling": "mean"}
    if form:
        settings = {"kind": form.kind, **form.vectors}
    is_plain = settings["kind"] == "transformer"
    named = sentence_transformers_settings(source, download=True, given=given) if is_plain else {}
    tokenization: dict[str, Any] = {"query": {}, "document": {}}
    for key, value in (form.reads if form else {}).items():
        side, _, name = key.rpartition(".")
        (tokenization[side] if side else tokenization)[name] = value
    # RoBERTa's positions begin after the padding's.
    longest = int(config.get("max_position_embeddings") or 512) - 2
    for side, default in {"query": 64, "document": 256}.items():
        read = tokenization[side].get("length_tokens", default)
        own = named.get("tokenization", {}).get(side, {})
        tokenization[side] |= own
        length = own.get("length_tokens") or min(read, longest)
        tokenization[side]["length_tokens"] = caps.get(side, length)
    settings |= {key: named[key] for key in ("pooling", "normalize") if key in named}
    settings |= {key: given[key] for key in ("pooling", "normalize") if key in given}
    return {**settings, "model": source, "tokenization": tokenization}


def seed_tokenizer(source: str) -> "PreTrainedTokenizerBase | None":
    """SEED-Encoder's WordPiece as a Hugging Face tokenizer; None if `source` is not a SEED-Encoder."""
    config = read_json_object(Path(source) / "config.json")
    if config is None or form_of(SEED.kind, source, config) is not SEED:
        return None
    from transformers import BertTokenizer

    as_seed: dict[str, Any] = {"do_lower_case": False, "strip_accents": False, "mask_token": "<mask>"}
    tokenizer = BertTokenizer.from_pretrained(source, **as_seed)
    if tokenizer.pad_token_id != (padding := config["pad_token_id"]):
        raise ValueError(
            f"{source}: its vocab.txt has [PAD] at {tokenizer.pad_token_id}, its config.json pad_token_id "
            f"{padding}; download both again"
        )
    return tokenizer


class _Unread:
    """In place of any object of a pickle that is not a tensor: takes its contents, and keeps nothing."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __call__(self, *_: Any, **__: Any) -> "_Unread":
        return self

    __setstate__ = __setitem__ = append = extend = add = __call__


class _TensorsOnly(pickle.Unpickler):
    """Finds what rebuilds tensors, and nothing else: no other name of the file is imported or called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in TENSOR_NAMES or (module == "torch" and name.endswith("Storage")):
            return super().find_class(module, name)
        return _Unread


TENSOR_NAMES = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
}
# What torch.load takes as `pickle_module`.
TENSORS_ONLY = SimpleNamespace(
    __name__="tensors_only",
    Unpickler=_TensorsOnly,
    load=lambda file, **settings: _TensorsOnly(file, **settings).load(),
)


def read_dpr_file(path: Path, side: Side) -> dict[str, torch.Tensor]:
    """The weights of one tower in a DPR checkpoint file, under BERT's names.

    Only the tensors of its `model_dict` are read. Optimizer, scheduler and arguments may hold any objects;
    they stay empty, and no code of the file is executed. Raises RuntimeError if the file is not a DPR
    checkpoint.
    """
    try:
        if is_zipfile(path) and any(name.endswith("constants.pkl") for name in ZipFile(path).namelist()):
            raise ValueError("it is a TorchScript program")  # which torch.load would start
        content = torch.load(path, map_location="cpu", pickle_module=TENSORS_ONLY, weights_only=False)
        named = dict(content["model_dict"].items())
    except OSError:
        raise
    except Exception as error:  # of a damaged or another file: pickle and torch raise anything
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {reason}") from error
    prefix = DPR_FILE[side]
    names = [name for name in named if isinstance(name, str) and name.startswith(prefix)]
    tower = {name.removeprefix(prefix): named[name] for name in names}
    if others := [name for name, value in tower.items() if not isinstance(value, torch.Tensor)]:
        raise RuntimeError(f"{path} cannot be read as a DPR checkpoint: {prefix}{others[0]} is not a tensor")
    if not tower:
        raise RuntimeError(f"{path} is not a DPR checkpoint: its model_dict has no {prefix}*")
    return tower


def read_arguments(source: str) -> dict[str, Any]:
    """The training arguments of a checkpoint of microsoft/ANCE or derived code; empty without them."""
    if not (file := Path(source) / "training_args.bin").is_file():
        return {}
    try:
        with torch.serialization.safe_globals([Namespace]):
            arguments = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of another trainer's or a damaged file, which is optional
        log.info("%s is ignored: %s", file, error)
        return {}
    return vars(arguments) if isinstance(arguments, Namespace) else {}


def read_pooler(folder: Path, side: Side, tied: bool) -> dict[str, torch.Tensor] | None:
    """`weight` and `bias` of Tevatron's linear head for a side, from pooler.pt, or None without the file."""
    root = folder.parent if folder.name in TEVATRON_FOLDER.values() else folder
    if not (file := root / "pooler.pt").exists():
        return None
    saved = torch.load(file, map_location="cpu", weights_only=True)
    names = ("weight", "bias")
    if saved.keys() != {f"{linear}{name}" for linear in TEVATRON_POOLER.values() for name in names}:
        found = ", ".join(sorted(saved))
        raise RuntimeError(f"{file} contains {found}; expected weight and bias of linear_q and linear_p")
    query, document = ([saved[f"{linear}{name}"] for name in names] for linear in TEVATRON_POOLER.values())
    if tied and not all(map(torch.equal, query, document)):
        raise ValueError(f"{file} has a separate head for documents; set encoder.tied=false")
    return dict(zip(names, query if side == "query" else document, strict=True))
