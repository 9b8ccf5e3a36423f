"""The recipe that `adapt` writes: all that it trains is said there, and may be changed there."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.yaml_text import to_yaml

FIRST = "# Written by `pyserini-ance adapt`; change it and give the same command, or train it as any recipe"
COMPARED = "compared"  # a split of queries without judgments, whose rankings are compared
METHODS = {
    "judged": ("distilled", ("query", "distil"), "queries with judgments, and BM25 and the encoder, teach"),
    "unjudged": ("unjudged", ("query",), "queries without judgments: BM25 and the encoder, added up, teach"),
    "generated": ("distilled", ("query", "distil"), "questions that a language model wrote teach"),
    "extracted": ("unjudged", ("query",), "too few queries: titles and crops of documents, and that teacher"),
}
# Has the stages and splits of any recipe below, to check overrides before documents are read.
_SPLITS = ", ".join(f"{name}: x" for name in ("train", "dev", "test", COMPARED, *METHODS))
CHECKED = f"""extends: [_base/adapt, _methods/distilled, _methods/unjudged]
data: {{kind: beir, folder: x, splits: {{{_SPLITS}}}}}
"""


def recipe_text(
    data: Path,
    encoder: dict[str, Any],
    supervision: str,
    splits: Collection[str],
    max_passages: int | None,
    scale: float,
) -> str:
    """The recipe as YAML with comments.

    encoder: the section of that name. supervision: a key of METHODS. splits: those of `data`, a folder in
    BEIR's layout. max_passages: of a document that is too long to be one (MaxP); None: documents are
    passages. scale: of the losses.
    """
    method, terms, meaning = METHODS[supervision]
    if max_passages:
        encoder.setdefault("tokenization", {}).setdefault("document", {})["passages"] = max_passages
    stage: dict[str, Any] = {"refresh": {"every_steps": 100}}
    if scale != 20:
        stage["terms"] = {term: {"loss": {"scale": scale}} for term in terms}
    has_dev, files = "dev" in splits, {name: f"qrels/{name}.tsv" for name in splits}
    sections = {
        "name": f"adapt-{data.absolute().parent.name}",
        "data": {"kind": "beir", "folder": str(data.absolute()), "splits": files},
        "encoder": encoder,
        "train_split": "train" if supervision == "judged" else supervision,
        "stages": {method: stage},
        "final_evaluation": {"split": ["dev", "test"]} if has_dev else {"split": COMPARED, "measures": []},
        **({} if has_dev else {"stage_defaults": {"evaluate": None}}),
    }
    extends = f"extends: [_base/adapt, _methods/{method}]  # {meaning}"
    return "\n".join([FIRST, extends, to_yaml(sections, default_flow_style=None, width=100)])
