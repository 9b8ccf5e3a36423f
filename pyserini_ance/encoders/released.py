"""Released checkpoints: what has been published of this family of methods, how its names become ours, and how its texts were read.

Each row of `FORMS` is one way in which such checkpoints are written; docs/checkpoints.md has the table with settings for each.
Names and settings as in microsoft/ANCE (c8439df), castorini/pyserini, jingtaozhan/DRhard (15e2235), thunlp/DANCE (a119572),
facebookresearch/DPR (a31212d), OpenMatch/ANCE-Tele (e871571).
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.foreign import read_arguments
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.parts import Settings

log = logging.getLogger(__name__)

# Weights of pretraining and of classifiers, which no vector passes through, and a buffer that older releases saved.
HEADS = r"pooler|cls|lm_head|mlm_head|c_head|generator\w*|discriminator\w*|vocab_\w+|(pre_)?classifier|classification_heads?"
HARMLESS = rf"(^|\.)({HEADS})\.|position_ids$"

# What training, the hub's cache and Tevatron put below the folder that names a release.
BELOW = r"(/(checkpoint-\d+|snapshots/[0-9a-f]{40}|query_model|passage_model))+$"
# Names that say documents: "Document ANCE(MaxP) Checkpoint", ance-msmarco-doc-maxp, SEED-Encoder-doc-800000, ANCE_w_Dual, DRhard's folders.
OF_DOCUMENTS = r"(?<![a-z])(doc(ument)?(?![a-z\d])|ance[ ._-]+w[ ._-]+dual|doc/trained_models/[^/]+)"


@dataclass(frozen=True)
class Form:
    """`names`: what becomes of the names of weights (regular expressions), `unused`: further ones that vectors do not pass through.

    It is known by `architectures` or `model_types` of config.json, by what the release is `called`, or by `arguments` in a
    training_args.bin beside the weights. `reads` says how texts were tokenised, as settings of `tokenization`; lengths are the longest
    that were used. `documents` adds to that where the release is one of documents, `vocabulary` names what holds with a new head, too.
    `vectors` says how vectors are made, as settings of the encoder, where that is not as weights of these names usually are used.
    """

    about: str
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


def _reads(query: int, document: int, **more) -> dict[str, Any]:
    return {"query.length_tokens": query, "document.length_tokens": document, **more}


def _template(template: str) -> dict[str, Any]:
    return {"document.template": template}


# Plain text to RoBERTa, three pieces of it. microsoft/ANCE has the tokenizer's separator there since 39258f5 (September 2021, SEED-Encoder).
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
    "STAR and ADORE (DRhard): RobertaDot; its tokenizer puts a blank before a text (transformers 2.8) and lower-cases",
    "roberta_ance",
    architectures=("RobertaDot", "RobertaDot_InBatch", "RobertaDot_Rand"),
    reads=_reads(64, 512, lowercase=True, prefix_space=True),
    documents=LITERAL_SEP,
)
SEED = Form(
    "SEED-Encoder, pretrained or as ANCE (microsoft/ANCE, seeddot_nll): fairseq's names for a RoBERTa without token types; a WordPiece vocabulary "
    "without capitals, for texts that are lower-cased first",
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
    "ANCE (microsoft/ANCE, castorini/ance-msmarco-*): lower-cased and no blank before a text (transformers 2.3)",
    "roberta_ance",
    architectures=("RobertaDot_NLL_LN", "AnceEncoder"),
    names={r"^ance_encoder\.": ""},
    reads=_reads(64, 512, lowercase=True, prefix_space=False),
    documents=LITERAL_SEP,
)
MAXP = replace(
    ANCE,
    about="ANCE MaxP: four passages of a document, cut after its special tokens were put around the whole",
    architectures=("RobertaDot_CLF_ANN_NLL_MultiChunk",),
    called=r"(?<![a-z])maxp(?![a-z])",
    reads={**ANCE.reads, **LITERAL_SEP, "document.passages": 4, "document.special_tokens": "document"},
)
# ANCE's architecture and names: only what it is called, or how it was trained, tells the two apart. "ANCE w. Dual" has ANCE's vectors.
DANCE = replace(
    ANCE,
    about="DANCE and ANCE w. Norm (thunlp/DANCE): unit vectors, for which documents leave ANCE's LayerNorm out",
    architectures=(),
    called=r"(?<![a-z])(dance(?![a-z])|ance[ ._-]+w[ ._-]+norm)",
    arguments={"representation_l2_normalization": True},
    reads={**ANCE.reads, **LITERAL_SEP},
    vectors={"l2": True, "layer_norm": {"query": True, "document": False}},
)
# Of Hugging Face's DPRQuestionEncoder and DPRContextEncoder.
DPR_FOLDER: dict[str, Side] = {"DPRQuestionEncoder": "query", "DPRContextEncoder": "document"}
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
DPR = Form(
    "DPR and ANCE's OpenQA checkpoints: a .cp file of both towers, or a Hugging Face folder of one (castorini/ance-dpr-*)",
    "transformer",
    model_types=("dpr",),
    names={f"^{re.escape(prefix)}": "" for prefix in DPR_PREFIX.values()},
    reads=_reads(256, 256, lowercase=False, **_template("{title} [SEP] {text}")),
)
TELE = Form(
    "ANCE-Tele: a plain BERT by its first token; `query_model/` and `passage_model/` where it has two towers",
    "transformer",
    called=r"(^|/|--)ance-tele_",
    reads=_reads(32, 156, lowercase=False, **_template("{title} [SEP] {text}")),
)
FORMS = (STAR, SEED, DANCE, MAXP, ANCE, DPR, TELE)


def form_of(kind: str, source: str, config: Mapping[str, Any]) -> Form | None:
    """The form of a checkpoint that is not ours; None for what is no release, such as a pretrained language model."""
    architecture = (config.get("architectures") or [""])[0]
    for form in FORMS:
        known = architecture in form.architectures or config.get("model_type") in form.model_types or _called(form.called, source)
        if form.kind == kind and (known or (form.arguments and form.arguments.items() <= read_arguments(source).items())):
            return form
    return None


def _called(pattern: str, source: str) -> bool:
    """Whether the last name of a path or hub name has the pattern: that of `~/models/DANCE/checkpoint-190000` is `DANCE`."""
    return re.search(f"({pattern})[^/]*$", re.sub(BELOW, "", source.rstrip("/")), re.IGNORECASE) is not None


def tell_reading(form: Form, source: str, tokenization: Tokenization, only: Collection[str] | None = None) -> list[str]:
    """Warn of settings under which `form` was not trained, lengths that are longer among them; returns what was said."""
    wanted = {**form.reads, **(form.documents if _called(OF_DOCUMENTS, source) else {})}
    return _tell(form, source, "encoder.tokenization", tokenization, {key: wanted[key] for key in (wanted if only is None else only)})


def tell_vectors(form: Form, source: str, encoder: Settings) -> list[str]:
    """The same of settings of the encoder that change its vectors."""
    return _tell(form, source, "encoder", encoder, form.vectors)


def _tell(form: Form, source: str, where: str, settings: Settings, wanted: Mapping[str, Any]) -> list[str]:
    said = []
    for key, value in wanted.items():
        given = settings
        for part in key.split("."):
            given = getattr(given, part)
        given = given.model_dump() if isinstance(given, Settings) else given
        if given > value if key.endswith("length_tokens") else given != value:
            said.append(f"{where}.{key} is {given!r}, and {source} was trained with {value!r}")
    for words in said:
        log.warning("%s [%s]", words, form.about)
    return said


def refuse_unexpected(source: str, unexpected: Collection[str], form: Form | None) -> None:
    """Raises RuntimeError for weights that have no place in the encoder and may have a part in the vectors."""
    unused = f"{HARMLESS}|{form.unused}" if form else HARMLESS
    if left := sorted(name for name in unexpected if not re.search(unused, name)):
        raise RuntimeError(
            f"{source} holds {len(left)} weights that this encoder has no place for, first {', '.join(left[:3])}; its vectors may pass through "
            f"them. Choose the encoder.kind that has them, or, if they only served pretraining, save the model without them."
        )
