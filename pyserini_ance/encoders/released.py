"""Released checkpoints: the formats in which they were published, and the settings of their training.

Each entry of `FORMS` is one format: how its weights are named, and how its texts were tokenized.
docs/guides/checkpoints.md lists the settings for each. Names and settings as in microsoft/ANCE (c8439df),
castorini/pyserini, jingtaozhan/DRhard (15e2235), thunlp/DANCE (a119572), facebookresearch/DPR (a31212d),
OpenMatch/ANCE-Tele (e871571).
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.foreign_formats import read_arguments
from pyserini_ance.encoders.sentence_transformers_import import sentence_transformers_settings, tower_source
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.components import Settings
from pyserini_ance.storage.files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

# Weights of pretraining heads and classifiers, which vectors do not use, and a buffer that older releases
# saved.
HEADS = (
    r"pooler|cls|lm_head|mlm_head|c_head|generator\w*|discriminator\w*|vocab_\w+"
    r"|(pre_)?classifier|classification_heads?"
)
HARMLESS = rf"(^|\.)({HEADS})\.|position_ids$"

# Folders that training, the hub's cache and Tevatron create below the folder with the name of a release.
BELOW = r"(/(checkpoint-\d+|snapshots/[0-9a-f]{40}|query_model|passage_model))+$"
# Names of releases for documents: "Document ANCE(MaxP) Checkpoint", ance-msmarco-doc-maxp,
# SEED-Encoder-doc-800000, ANCE_w_Dual, DRhard's folders.
OF_DOCUMENTS = r"(?<![a-z])(doc(ument)?(?![a-z\d])|ance[ ._-]+w[ ._-]+dual|doc/trained_models/[^/]+)"


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
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    called: str = r"(?!)"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    unused: str = r"(?!)"
    reads: Mapping[str, Any] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: tuple[str, ...] = ()
    vectors: Mapping[str, Any] = field(default_factory=dict)


def _reads(query: int, document: int, **more: Any) -> dict[str, Any]:
    return {"query.length_tokens": query, "document.length_tokens": document, **more}


def _template(template: str) -> dict[str, Any]:
    return {"document.template": template}


# For RoBERTa, `<sep>` is plain text of three tokens. microsoft/ANCE uses the tokenizer's separator since
# 39258f5 (September 2021, SEED-Encoder).
LITERAL_SEP = _template("{url}<sep>{title}<sep>{text}")

SEED_LAYER = r"^seed_encoder\.encoder\.sentence_encoder\.layers\.(\d+)\."
SEED_NAMES = {
    r"^seed_encoder\.encoder\.sentence_encoder\.embed_tokens\.": "roberta.embeddings.word_embeddings.",
    r"^seed_encoder\.encoder\.sentence_encoder\.embed_positions\.": "roberta.embeddings.position_embeddings.",
    r"^seed_encoder\.encoder\.sentence_encoder\.emb_layer_norm\.": "roberta.embeddings.LayerNorm.",
    SEED_LAYER + r"self_attn\.q_proj\.": r"roberta.encoder.layer.\1.attention.self.query.",
    SEED_LAYER + r"self_attn\.k_proj\.": r"roberta.encoder.layer.\1.attention.self.key.",
    SEED_LAYER + r"self_attn\.v_proj\.": r"roberta.encoder.layer.\1.attention.self.value.",
    SEED_LAYER + r"self_attn\.out_proj\.": r"roberta.encoder.layer.\1.attention.output.dense.",
    SEED_LAYER + r"self_attn_layer_norm\.": r"roberta.encoder.layer.\1.attention.output.LayerNorm.",
    SEED_LAYER + r"fc1\.": r"roberta.encoder.layer.\1.intermediate.dense.",
    SEED_LAYER + r"fc2\.": r"roberta.encoder.layer.\1.output.dense.",
    SEED_LAYER + r"final_layer_norm\.": r"roberta.encoder.layer.\1.output.LayerNorm.",
}

STAR = Form(
    "STAR and ADORE (DRhard): RobertaDot; its tokenizer puts a blank before a text (transformers 2.8) and "
    "lower-cases",
    "roberta_ance",
    architectures=("RobertaDot", "RobertaDot_InBatch", "RobertaDot_Rand"),
    reads=_reads(64, 512, lowercase=True, prefix_space=True),
    documents=LITERAL_SEP,
)
SEED = Form(
    "SEED-Encoder, pretrained or as ANCE (microsoft/ANCE, seeddot_nll): fairseq's names for a RoBERTa "
    "without token types; a WordPiece vocabulary without capitals, for texts that are lower-cased first",
    "roberta_ance",
    architectures=("SEEDEncoderForMaskedLM", "SEEDEncoderDot_NLL_LN"),
    model_types=("seed_encoder",),
    names=SEED_NAMES,
    unused=r"^decoder\.|\.version$",
    reads=_reads(64, 512, lowercase=True, prefix_space=None),
    documents=_template("{url} [SEP] {title} [SEP] {text}"),
    vocabulary=("lowercase",),
)
ANCE = Form(
    "ANCE (microsoft/ANCE, castorini/ance-msmarco-*): lower-cased and no blank before a text "
    "(transformers 2.3)",
    "roberta_ance",
    architectures=("RobertaDot_NLL_LN", "AnceEncoder"),
    names={r"^ance_encoder\.": ""},
    reads=_reads(64, 512, lowercase=True, prefix_space=False),
    documents=LITERAL_SEP,
)
MAXP = replace(
    ANCE,
    description="ANCE MaxP: four passages of a document, split after special tokens were added to the whole",
    architectures=("RobertaDot_CLF_ANN_NLL_MultiChunk",),
    called=r"(?<![a-z])maxp(?![a-z])",
    reads={**ANCE.reads, **LITERAL_SEP, "document.passages": 4, "document.special_tokens": "per_document"},
)
# The same architecture and names as ANCE: only the name of the release or its training arguments differ.
# "ANCE w. Dual" has ANCE's vectors.
DANCE = replace(
    ANCE,
    description="DANCE and ANCE w. Norm (thunlp/DANCE): unit vectors; documents skip ANCE's LayerNorm",
    architectures=(),
    called=r"(?<![a-z])(dance(?![a-z])|ance[ ._-]+w[ ._-]+norm)",
    arguments={"representation_l2_normalization": True},
    reads={**ANCE.reads, **LITERAL_SEP},
    vectors={"normalize": True, "layer_norm": {"query": True, "document": False}},
)
# The architectures and prefixes of Hugging Face's DPRQuestionEncoder and DPRContextEncoder.
DPR_FOLDER: dict[str, Side] = {"DPRQuestionEncoder": "query", "DPRContextEncoder": "document"}
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
DPR = Form(
    "DPR and ANCE's OpenQA checkpoints: a .cp file of both towers, or a Hugging Face folder of one "
    "(castorini/ance-dpr-*)",
    "transformer",
    model_types=("dpr",),
    names={f"^{re.escape(prefix)}": "" for prefix in DPR_PREFIX.values()},
    reads=_reads(256, 256, lowercase=False, **_template("{title} [SEP] {text}")),
)
TELE = Form(
    "ANCE-Tele: a plain BERT with CLS pooling; `query_model/` and `passage_model/` if it has two towers",
    "transformer",
    called=r"(^|/|--)ance-tele_",
    reads=_reads(32, 156, lowercase=False, **_template("{title} [SEP] {text}")),
)
FORMS = (STAR, SEED, DANCE, MAXP, ANCE, DPR, TELE)


def form_of(kind: str, source: str, config: Mapping[str, Any]) -> Form | None:
    """The format of a released checkpoint; None for anything else, such as a pretrained language model."""
    architecture = (config.get("architectures") or [""])[0]
    for form in FORMS:
        matches = (
            architecture in form.architectures
            or config.get("model_type") in form.model_types
            or _called(form.called, source)
        )
        if form.kind == kind and (
            matches or (form.arguments and form.arguments.items() <= read_arguments(source).items())
        ):
            return form
    return None


def _called(pattern: str, source: str) -> bool:
    """Whether the name of a release matches: that of `~/models/DANCE/checkpoint-190000` is `DANCE`."""
    return re.search(f"({pattern})[^/]*$", re.sub(BELOW, "", source.rstrip("/")), re.IGNORECASE) is not None


def warn_about_tokenization(
    form: Form, source: str, tokenization: Tokenization, only: Collection[str] | None = None
) -> list[str]:
    """Warn of tokenization settings that differ from the training of `form`; returns the warnings.

    Shorter lengths are no difference.
    """
    expected = {**form.reads, **(form.documents if _called(OF_DOCUMENTS, source) else {})}
    if only is not None:
        expected = {key: expected[key] for key in only}
    return _warn(form, source, "encoder.tokenization", tokenization, expected)


def warn_about_vectors(form: Form, source: str, encoder: Settings) -> list[str]:
    """Warn of encoder settings that change vectors compared with `form`; returns the warnings."""
    return _warn(form, source, "encoder", encoder, form.vectors)


def _warn(form: Form, source: str, where: str, settings: Settings, expected: Mapping[str, Any]) -> list[str]:
    warnings = []
    for key, value in expected.items():
        given: Any = settings
        for part in key.split("."):
            given = getattr(given, part)
        given = given.model_dump() if isinstance(given, Settings) else given
        if given > value if key.endswith("length_tokens") else given != value:
            warnings.append(f"{where}.{key} is {given!r}, and {source} was trained with {value!r}")
    for warning in warnings:
        log.warning("%s [%s]", warning, form.description)
    return warnings


def check_unexpected_weights(source: str, unexpected: Collection[str], form: Form | None) -> None:
    """Raises RuntimeError for weights that the encoder lacks and that vectors may depend on."""
    unused = f"{HARMLESS}|{form.unused}" if form else HARMLESS
    if left := sorted(name for name in unexpected if not re.search(unused, name)):
        raise RuntimeError(
            f"{source} contains {len(left)} weights that this encoder lacks, first {', '.join(left[:3])}; "
            "its vectors may depend on them. Choose the encoder.kind that has them, "
            "or, if they were only used in pretraining, save the model without them."
        )


def foreign_settings(source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The `encoder:` section for a checkpoint that this package has not saved: what is given, the settings in
    sentence-transformers' files, those of its release, or defaults.

    Raises ValueError for a `length_tokens` that is neither one cap nor a cap by side.
    """
    from transformers import PreTrainedConfig

    caps = _length_caps(given.get("length_tokens", {}))
    config = PreTrainedConfig.get_config_dict(tower_source(source, "query"))[0]
    forms = (form_of(kind, source, config) for kind in ("roberta_ance", "transformer"))
    form = next((form for form in forms if form), None)
    settings: dict[str, Any] = (
        {"kind": form.kind, **form.vectors} if form else {"kind": "transformer", "pooling": "mean"}
    )
    transformer = settings["kind"] == "transformer"
    named = sentence_transformers_settings(source, download=True, given=given) if transformer else {}
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
        tokenization[side]["length_tokens"] = caps.get(side) or own.get("length_tokens") or min(read, longest)
    settings |= {key: named[key] for key in ("pooling", "normalize") if key in named}
    settings |= {key: given[key] for key in ("pooling", "normalize") if key in given}
    return {**settings, "model": source, "tokenization": tokenization}


def _length_caps(length_tokens: int | Mapping[str, int]) -> dict[str, int]:
    """The caps of the sides that have one."""
    caps = length_tokens if isinstance(length_tokens, Mapping) else dict.fromkeys(SIDES, length_tokens)
    for side, cap in caps.items():
        if side not in SIDES or not isinstance(cap, Integral) or isinstance(cap, bool) or cap < 1:
            raise ValueError(
                f"length_tokens is {length_tokens!r}; expected a whole number from 1, or one for each side: "
                "{'query': 32, 'document': 128}"
            )
    return {side: int(cap) for side, cap in caps.items()}


def seed_tokenizer(source: str) -> "PreTrainedTokenizerBase | None":
    """SEED-Encoder's WordPiece as a Hugging Face tokenizer; None if `source` is not a SEED-Encoder."""
    if (
        not (config := Path(source) / "config.json").exists()
        or form_of(SEED.kind, source, read_json(config)) is not SEED
    ):
        return None
    from transformers import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(
        source, do_lower_case=False, strip_accents=False, mask_token="<mask>"
    )
    if tokenizer.pad_token_id != (padding := read_json(config)["pad_token_id"]):
        raise ValueError(
            f"{source}: its vocab.txt has [PAD] at {tokenizer.pad_token_id}, "
            f"its config.json pad_token_id {padding}; download both again"
        )
    return tokenizer
