"""Export for sentence-transformers: files that let it load an encoder with its pooling, length and prompts.

Without them it averages all tokens, does not normalize, and truncates documents at the length of queries:
`model_max_length` of the tokenizer is that length, by which Pyserini's stock class `auto` truncates queries.
sentence-transformers has one length for both sides, here the longer one.
"""

import json
import re
from pathlib import Path

from pyserini_ance.data.collection import SIDES
from pyserini_ance.encoders.family import Family
from pyserini_ance.encoders.load_save import family_of, read_side_file
from pyserini_ance.encoders.transformer import Transformer
from pyserini_ance.storage.files import write_json, write_whole

TEMPLATE = re.compile(r"([^{}]*)(\{title\} )?\{text\}")  # a title comes as part of the text
POOLING = "1_Pooling"


def write_sentence_transformers(folder: Path) -> None:
    """Complete the folder of a saved encoder that is not published yet, if these files can express it.

    They can for one tower of kind `transformer` without projection, with templates of a prefix, perhaps
    `{title}`, and `{text}`.
    """
    family = family_of(folder)
    prompts = _prompts(family)
    if prompts is None or not isinstance(family, Transformer) or not _has_plain_vectors(family):
        return
    modules = [("", "Transformer"), (POOLING, "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(modules if family.normalize else modules[:2])
    ]
    length = max(family.tokenization.side(side).length_tokens for side in SIDES)
    pooling = {
        "word_embedding_dimension": read_side_file(folder)["dimension"],
        "pooling_mode_cls_token": family.pooling == "cls",
        "pooling_mode_mean_tokens": family.pooling == "mean",
    }
    (folder / POOLING).mkdir()
    write_json(folder / POOLING / "config.json", pooling)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    write_json(
        folder / "config_sentence_transformers.json", {"prompts": prompts, "similarity_fn_name": "dot"}
    )
    write_whole(folder / "modules.json", json.dumps(listed, indent=2) + "\n")


def _prompts(family: Family) -> dict[str, str] | None:
    matches = {side: TEMPLATE.fullmatch(family.tokenization.side(side).template) for side in SIDES}
    prompts: dict[str, str] = {side: match[1] for side, match in matches.items() if match}
    return prompts if len(prompts) == len(SIDES) else None


def _has_plain_vectors(family: Transformer) -> bool:
    tokenization = family.tokenization
    return (
        family.tied
        and isinstance(family.normalize, bool)
        and family.projection is None
        and not tokenization.lowercase
        and tokenization.prefix_space is None
        and tokenization.document.passages == 1
    )
