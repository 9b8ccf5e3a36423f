"""Released checkpoints: recognises the formats of released.yaml, warns of other settings than theirs, and
reads files that Hugging Face does not: Tevatron's heads, SEED-Encoder's tokenizer, ANCE's arguments.
"""

import logging
import re
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.sentence_transformers_files import text_settings, tower_source
from pyserini_ance.encoders.weights import check_sizes, config_dict
from pyserini_ance.recipe.components import Settings
from pyserini_ance.storage.files import read_json_object

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pyserini_ance.encoders.config import EncoderConfig

log = logging.getLogger(__name__)
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
    has_ance_head: whether RoBERTa's vector goes through ANCE's linear layer and LayerNorm.
    vectors: how vectors are computed, as settings of the encoder.
    """

    description: str
    has_ance_head: bool = False
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


def form_of(source: str, config: Mapping[str, Any]) -> Form | None:
    """The format of a released checkpoint; None for anything else, such as a pretrained language model.

    A name tells only which form a RoBERTa with ANCE's head has, or whether a BERT is ANCE-Tele's.
    """
    architecture, model_type = (config.get("architectures") or [""])[0], config.get("model_type", "roberta")
    for form in FORMS:
        if architecture in form.architectures or model_type in form.model_types:
            return form
        is_of_model = form.has_ance_head == ("roberta" in model_type)
        by_arguments = form.arguments and form.arguments.items() <= read_arguments(source).items()
        if is_of_model and (by_arguments or _called(form.called, source)):
            return form
    return None


def is_decoder(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a causal language model, in which only the last token has seen all."""
    from transformers.models.auto import modeling_auto as auto

    model_type = config.get("model_type")
    is_masked = model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not is_masked


def check_code(source: str, config: Mapping[str, Any]) -> None:
    """Raise ValueError for a model whose class transformers lacks, and warn of a decoder that has another,
    too: code from a repository is never run."""
    from transformers import CONFIG_MAPPING

    model_type = config.get("model_type")
    if "AutoModel" not in config.get("auto_map", {}):
        return
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"{source} has code of its own (auto_map in config.json), which is not run; choose a model whose "
            f"type transformers {version('transformers')} knows: {model_type!r} is none"
        )
    if is_decoder(config) and config.get("is_causal", True):
        log.warning(
            f"{source} has code of its own (auto_map in config.json), which is not run: vectors are those of "
            f"transformers' {model_type}. If its tokens attend both ways, encoder.bidirectional lets them"
        )


def _called(pattern: str, source: str) -> bool:
    """Whether the name of a release matches: that of `~/models/DANCE/checkpoint-190000` is `DANCE`."""
    name = re.sub(_TABLE["below"], "", source.rstrip("/"))
    return bool(re.search(f"({pattern})[^/]*$", name, re.IGNORECASE))


def warn_about_settings(
    form: Form, source: str, encoder: "EncoderConfig", only: Collection[str] | None = None
) -> None:
    """Warn of settings that differ from the training of `form`; shorter lengths are no difference.

    only: keys of `tokenization`, for weights of which no others are used.
    """
    if form is DPR and encoder.tied:
        log.warning(f"{source} is DPR's tower of one side; texts of the other side need the other tower")
    reads = {**form.reads, **(form.documents if _called(_TABLE["of_documents"], source) else {})}
    expected = {f"tokenization.{key}": reads[key] for key in (reads if only is None else only)}
    for key, value in {**expected, **(form.vectors if only is None else {})}.items():
        given = attrgetter(key)(encoder)
        given = given.model_dump() if isinstance(given, Settings) else given
        if given is None and "." not in key:  # as the model
            continue
        if given > value if key.endswith("length_tokens") else given != value:
            log.warning(
                f"encoder.{key} is {given!r}, and {source} was trained with {value!r} [{form.description}]"
            )


def check_report(report: Mapping[str, Any], source: str, form: Form | None = None) -> None:
    """Check transformers' report on loading an encoder. Raises RuntimeError for weights of other sizes, that
    are missing, or that the encoder lacks and vectors may depend on."""
    check_sizes(report, source)
    if missing := sorted(key for key in report["missing_keys"] if "pooler." not in key):
        raise RuntimeError(f"{source} lacks {len(missing)} weights of the encoder, first {missing[0]}")
    check_unexpected_weights(source, report["unexpected_keys"], form)


def check_unexpected_weights(source: str, unexpected: Collection[str], form: Form | None) -> None:
    """Raises RuntimeError for weights that the encoder lacks and that vectors may depend on."""
    unused = f"{_TABLE['harmless']}|{form.unused}" if form else _TABLE["harmless"]
    if left := sorted(name for name in unexpected if not re.search(unused, name)):
        raise RuntimeError(
            f"{source} contains {len(left)} weights that this encoder lacks, first {', '.join(left[:3])}; "
            "its vectors may depend on them. If they were only used in pretraining, save the model without "
            "them."
        )


def foreign_settings(source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The `encoder:` section for a checkpoint that this package has not saved: what is given, the settings in
    sentence-transformers' files, those of its release, or defaults.

    Raises ValueError for a `length_tokens` of anything but the sides.
    """
    cap = given.get("length_tokens", {})
    caps = cap if isinstance(cap, Mapping) else dict.fromkeys(SIDES, cap)
    if caps.keys() - set(SIDES):
        raise ValueError(f"length_tokens is {cap!r}; expected a number, or one for each side: {SIDES}")
    config = config_dict(tower_source(source, "query"))
    named = text_settings(source, download=True, given=given)
    form = None if named else form_of(source, config)
    settings: dict[str, Any] = {} if named or form or is_decoder(config) else {"pooling": "mean"}
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
    settings |= {key: given[key] for key in ("pooling", "normalize") if key in given}
    return {**settings, "model": source, "tokenization": tokenization}


def seed_tokenizer(source: str) -> "PreTrainedTokenizerBase | None":
    """SEED-Encoder's WordPiece as a Hugging Face tokenizer; None if `source` is not a SEED-Encoder."""
    config = read_json_object(Path(source) / "config.json")
    if config is None or form_of(source, config) is not SEED:
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
