"""Settings of the final evaluation: splits, measures, reranking, and the scores that a recipe is expected to
reach.

Measures are called by their ir-measures names everywhere: in recipes, in tables and on the command line.
"""

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import ir_measures
from ir_measures import Measure
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pyserini_ance.recipe.components import Settings, did_you_mean, expected
from pyserini_ance.recipe.splits import Splits

EXAMPLES = "nDCG@10, RR@10, R@100, AP, P@5, Success@20, RR(rel=2)@10"


def parse_measures(names: Iterable[str | Measure]) -> list[Measure]:
    """The measures of these names; measures of ir-measures are theirs.

    Raises ValueError for a name that is unknown, misspelt or not computable here.
    """
    return [_parse(str(name).strip()) for name in names]


def canonical_name(name: str) -> str:
    """The name itself. Raises ValueError for an unknown measure, or one that tables spell otherwise."""
    (measure,) = parse_measures([name])
    if str(measure) != name:
        raise ValueError(f"tables call {name} {measure}; write {measure}")
    return name


# A measure by the one name that it has in tables, so that scores from several places can be matched.
MeasureName = Annotated[str, AfterValidator(canonical_name)]


def _parse(text: str) -> Measure:
    # Not ir_measures.parse_measure: version 0.4.3 uses ast.Num, which Python 3.14 has removed.
    try:
        node = ast.parse(text, mode="eval").body
        cutoff = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            cutoff = ast.literal_eval(node.right)
            node = node.left
        parameters = {}
        if isinstance(node, ast.Call) and not node.args:
            parameters = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
            node = node.func
        is_cutoff = (
            cutoff is None
            or (isinstance(cutoff, int) and cutoff > 0)
            or (isinstance(cutoff, float) and cutoff >= 0)  # a recall, as in IPrec@0.0
        )
        if not isinstance(node, ast.Name) or not is_cutoff:
            raise ValueError
    except (SyntaxError, ValueError):
        raise ValueError(
            f"measure {text!r} is not of the form Name@cutoff or Name(key=value)@cutoff, for "
            f"example {EXAMPLES}"
        ) from None
    registry = ir_measures.measures.registry
    registered = registry.get(node.id)
    if registered is None:
        stem = node.id.partition("_")[0].lower()  # `ndcg_cut_10` of trec_eval
        same = next((str(registry[name]) for name in registry if name.lower() == stem), node.id)
        raise ValueError(f"unknown measure {text!r}{did_you_mean(same, registry)}; examples: {EXAMPLES}")
    if cutoff is not None:
        parameters[registered.AT_PARAM] = cutoff
    supported = registered.SUPPORTED_PARAMS
    fits = parameters.keys() <= supported.keys() and all(
        supported[key].validate(parameters[key]) if key in parameters else not supported[key].required
        for key in supported
    )
    if not fits:
        keys = ", ".join(f"{key} (required)" if supported[key].required else key for key in supported)
        raise ValueError(
            f"measure {text!r} has a wrong or missing parameter; it takes {keys}; examples: {EXAMPLES}"
        )
    if registered is ir_measures.Accuracy:
        raise ValueError(f"measure {text!r} has no value where all hits are relevant; examples: {EXAMPLES}")
    measure = registered(**parameters)
    try:
        ir_measures.evaluator([measure], {})
    except ValueError as error:
        raise ValueError(f"measure {text!r} cannot be computed here: {error}") from None
    return measure


Split = Annotated[str, Field(min_length=1)]
Score = Annotated[float, Field(ge=0, le=1)]
# split -> measure -> score; also of splits that the recipe itself does not evaluate. Null, in a recipe that
# extends one whose scores are not its own, is no score.
Expect = Annotated[dict[Split, dict[MeasureName, Score]], BeforeValidator(lambda value: value or {})]

RERANK_SUFFIX = "-rerank"  # `dev-rerank` is the ranking of split `dev`, reranked
RERANK_HITS = 100  # as in TREC DL's reranking task
LEAST_HITS = 100
PER_SPLIT_KEYS = ("measures", "query_measures", "rerank")  # the keys with a value for each split

Row = Literal["bm25", "bm25+rm3", "untrained", "start", "stages", "hybrid"]
ROWS: tuple[Row, ...] = ("bm25", "untrained", "start", "stages", "hybrid")
# One row may be written without a list.
Rows = Annotated[tuple[Row, ...], BeforeValidator(lambda rows: (rows,) if isinstance(rows, str) else rows)]

Measures = Annotated[
    dict[str, tuple[str, ...]] | tuple[str, ...],
    expected("a list of measures, or one for each split, for example {dev: [RR@10], dl19: [nDCG@10]}"),
]


class FinalEvaluation(Settings):
    """The evaluation after training, which every row of the results table goes through.

    Settings of splits that are not evaluated have no effect.
    """

    split: Splits = ("test",)
    """The split, or the splits, to evaluate."""
    rows: Rows = ROWS
    """The rows of the results table besides that of the last stage: `bm25`, `bm25+rm3` (with Pyserini's
    defaults), the `untrained` encoder, `start` (initial weights from outside the recipe), the `stages` before
    the last, and `hybrid`, BM25 fused with the last. Those of a model each encode all documents once more."""
    measures: Measures = ("nDCG@10", "RR@10", "R@100")
    """The measures of all splits, or a list for each split. As many documents are retrieved for each query as
    the greatest cutoff, at least 100."""
    query_measures: Measures = ()
    """Measures of query retrieval, for all splits or for each: every relevant document of the split ranks the
    split's queries (Li et al. 2021, DANCE)."""
    rerank: dict[str, Annotated[Literal["bm25"] | Path, expected("bm25 or a file")]] = Field(default={})
    """By split, the ranking whose first 100 documents each model also ranks, measured by the split's measures
    of so many: `bm25`, or a file in any format of data/rankings.py."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """The precision of the document vectors, in the exported index too."""
    indexes: tuple[str, ...] = ()
    """Faiss factory strings; a model has one more row for each, with the ranking of that index."""

    @model_validator(mode="after")
    def check_splits(self) -> "FinalEvaluation":
        if "hybrid" in self.rows and "bm25" not in self.rows:
            raise ValueError("rows: `hybrid` fuses the ranking of the row `bm25`; add it, or remove `hybrid`")
        for split in self.split:
            if isinstance(self.measures, dict) and not self.measures.get(split):
                raise ValueError(
                    f"measures: split {split!r} is evaluated, but has no measures; list some for it"
                )
            if split in self.rerank and f"{split}{RERANK_SUFFIX}" in self.split:
                raise ValueError(
                    f"split: '{split}{RERANK_SUFFIX}' is what tables call the reranked {split!r}"
                )
        return self

    @property
    def hits(self) -> int:
        """The number of documents that are retrieved for each query: as many as a measure looks at."""
        measures = [
            one for name in self.split for one in self.measures_of(name) + self.query_measures_of(name)
        ]
        return max([LEAST_HITS, *(measure.params.get("cutoff") or 0 for measure in measures)])

    def measures_of(self, split: str) -> list[Measure]:
        return parse_measures(_of_split(self.measures, split))

    def rerank_measures_of(self, split: str) -> list[Measure]:
        """The split's measures that look at no more documents than are reranked."""
        return [
            measure
            for measure in self.measures_of(split)
            if measure.params.get("cutoff", RERANK_HITS + 1) <= RERANK_HITS
        ]

    def query_measures_of(self, split: str) -> list[Measure]:
        return parse_measures(_of_split(self.query_measures, split))

    @property
    def reranked(self) -> dict[str, Literal["bm25"] | Path]:
        """`rerank`, limited to the splits that are evaluated."""
        return {split: self.rerank[split] for split in self.split if split in self.rerank}

    def column(self, split: str, measure: Measure | str) -> str:
        """The table column of a measure; names the split if there are several, or if it is a reranked one."""
        return str(measure) if self.split == (split,) else f"{split} {measure}"

    @property
    def columns(self) -> dict[tuple[str, str], str]:
        """Table columns by (split, measure), where a split may be a reranked one (`dev-rerank`)."""
        measures = [(split, measure) for split in self.split for measure in self.measures_of(split)]
        measures += [
            (f"{split}{RERANK_SUFFIX}", measure)
            for split in self.reranked
            for measure in self.rerank_measures_of(split)
        ]
        return {(split, str(measure)): self.column(split, measure) for split, measure in measures}


def _of_split(measures: dict[str, tuple[str, ...]] | tuple[str, ...], split: str) -> tuple[str, ...]:
    return measures.get(split, ()) if isinstance(measures, dict) else measures
