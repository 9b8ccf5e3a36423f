"""The recipe that `adapt` writes: all that it trains is said there, and may be changed there."""

from collections.abc import Collection, Mapping
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


def checked_text(data: Mapping[str, Any], encoder: dict[str, Any]) -> str:
    """A recipe with the stages and splits of any below, to check overrides before documents are read."""
    splits = dict.fromkeys(("train", "dev", "test", COMPARED, *METHODS), "x")
    methods = ["_base/adapt", "_methods/distilled", "_methods/unjudged"]
    return to_yaml({"extends": methods, "data": {**data, "splits": splits}, "encoder": encoder})


def recipe_text(
    data: Mapping[str, Any],
    encoder: dict[str, Any],
    supervision: str,
    splits: Collection[str],
    max_passages: int | None,
    scale: float,
) -> str:
    """The recipe as YAML with comments.

    data, encoder: the sections of that name, `data` without its `splits`, of a folder in BEIR's layout.
    supervision: a key of METHODS. max_passages: of a document that is too long to be one (MaxP); None:
    documents are passages. scale: of the losses.
    """
    method, terms, meaning = METHODS[supervision]
    if max_passages:
        encoder.setdefault("tokenization", {}).setdefault("document", {})["passages"] = max_passages
    stage: dict[str, Any] = {"refresh": {"every_steps": 100}}
    if scale != 20:
        stage["terms"] = {term: {"loss": {"scale": scale}} for term in terms}
    has_dev, files = "dev" in splits, {name: f"qrels/{name}.tsv" for name in splits}
    sections = {
        "name": f"adapt-{Path(data['folder']).parent.name}",
        "data": {**data, "splits": files},
        "encoder": encoder,
        "train_split": "train" if supervision == "judged" else supervision,
        "stages": {method: stage},
        "final_evaluation": {"split": ["dev", "test"]} if has_dev else {"split": COMPARED, "measures": []},
        **({} if has_dev else {"stage_defaults": {"evaluate": None}}),
    }
    extends = f"extends: [_base/adapt, _methods/{method}]  # {meaning}"
    return "\n".join([FIRST, extends, to_yaml(sections, default_flow_style=None, width=100)])
