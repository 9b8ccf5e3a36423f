"""Released checkpoints: what has been published of this family of methods, how its names become ours, and how its texts were read.

Each row of `FORMS` is one way in which such checkpoints are written. Names and settings as in microsoft/ANCE (c8439df),
castorini/pyserini, jingtaozhan/DRhard (15e2235), facebookresearch/DPR (a31212d), OpenMatch/ANCE-Tele (e871571).
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.tokenization import Tokenization

log = logging.getLogger(__name__)

# Weights of pretraining and of classifiers, which no vector passes through, and a buffer that older releases saved.
HEADS = r"pooler|cls|lm_head|mlm_head|c_head|generator\w*|discriminator\w*|vocab_\w+|(pre_)?classifier|classification_heads?"
HARMLESS = rf"(^|\.)({HEADS})\.|position_ids$"


@dataclass(frozen=True)
class Form:
    """`names`: what becomes of the names of weights (regular expressions), `unused`: further ones that vectors do not pass through.

    It is known by `architectures` or `model_types` of config.json, or by the hub's `repositories`. `reads` says how texts
    were tokenised, as settings of `tokenization`; lengths are the longest that were used.
    """

    about: str
    kind: str
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    repositories: str = r"(?!)"
    names: Mapping[str, str] = field(default_factory=dict)
    unused: str = r"(?!)"
    reads: Mapping[str, Any] = field(default_factory=dict)


def _reads(query: int, document: int, **more) -> dict[str, Any]:
    return {"query.length_tokens": query, "document.length_tokens": document, **more}


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
)
SEED = Form(
    "SEED-Encoder, pretrained or as ANCE (microsoft/ANCE, seeddot_nll): fairseq's names for a RoBERTa without token types, WordPiece with capitals",
    "roberta_ance",
    architectures=("SEEDEncoderForMaskedLM", "SEEDEncoderDot_NLL_LN"),
    model_types=("seed_encoder",),
    names=SEED_NAMES,
    unused=r"^decoder\.|\.version$",
    reads=_reads(64, 512, prefix_space=None),
)
# DANCE, ANCE w. Norm and ANCE w. Dual have the same names: they need `l2: true`, and `layer_norm: {query: true, document: false}`.
ANCE = Form(
    "ANCE (microsoft/ANCE, castorini/ance-msmarco-*) and DANCE: lower-cased and no blank before a text (transformers 2.3)",
    "roberta_ance",
    architectures=("RobertaDot_NLL_LN", "RobertaDot_CLF_ANN_NLL_MultiChunk", "AnceEncoder"),
    names={r"^ance_encoder\.": ""},
    reads=_reads(64, 512, lowercase=True, prefix_space=False),
)
DPR = Form(
    "DPR and ANCE's OpenQA checkpoints: a .cp file of both towers, or a Hugging Face folder of one (castorini/ance-dpr-*)",
    "transformer",
    model_types=("dpr",),
    names={r"^question_encoder\.bert_model\.": "", r"^ctx_encoder\.bert_model\.": ""},
    reads=_reads(256, 256, **{"lowercase": False, "document.template": "{title} [SEP] {text}"}),
)
TELE = Form(
    "ANCE-Tele: a plain BERT by its first token; `query_model/` and `passage_model/` where it has two towers",
    "transformer",
    repositories=r"(^|/)ance-tele_[^/]*$",
    reads=_reads(32, 156, **{"lowercase": False, "document.template": "{title} [SEP] {text}"}),
)
FORMS = (STAR, SEED, ANCE, DPR, TELE)
DPR_FOLDER: dict[str, Side] = {"DPRQuestionEncoder": "query", "DPRContextEncoder": "document"}


def form_of(kind: str, source: str, config: Mapping[str, Any]) -> Form | None:
    """The form of a checkpoint that is not ours; None for what is no release, such as a pretrained language model."""
    architecture = (config.get("architectures") or [""])[0]
    for form in FORMS:
        known = architecture in form.architectures or config.get("model_type") in form.model_types or re.search(form.repositories, source)
        if form.kind == kind and known:
            return form
    return None


def tell_reading(form: Form, source: str, tokenization: Tokenization) -> list[str]:
    """Warn of settings under which `form` was not trained, lengths that are longer among them; returns what was said."""
    said = []
    for key, wanted in form.reads.items():
        given = tokenization
        for part in key.split("."):
            given = getattr(given, part)
        if given > wanted if key.endswith("length_tokens") else given != wanted:
            said.append(f"encoder.tokenization.{key} is {given!r}, and {source} was trained with {wanted!r}")
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
