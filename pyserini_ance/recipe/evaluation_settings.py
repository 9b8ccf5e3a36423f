"""Settings of the final evaluation: splits, measures, reranking, and the scores that a recipe is expected to
reach.

Measures are called by their ir-measures names everywhere: in recipes, in tables and on the command line.
"""

import ast
import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import ir_measures
from ir_measures import Measure
from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from pyserini_ance.recipe.components import Settings, did_you_mean
from pyserini_ance.recipe.splits import Splits

EXAMPLES = "nDCG@10, RR@10, R@100, AP, P@5, Success@20, RR(rel=2)@10"
SPELLING = re.compile(r"(?P<name>\w+)(?:\((?P<parameters>.*)\))?(?:@(?P<cutoff>[1-9]\d*|\d+\.\d+))?")

WITH_CUTOFF = re.compile(r"^(.*?)[@_]*(\d*)$")
TREC_EVAL = {
    "ndcg_cut": "nDCG",
    "map_cut": "AP",
    "recip_rank": "RR",
}  # the names that differ by more than case


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
    match = SPELLING.fullmatch(text)
    if not match:
        raise ValueError(
            f"measure {text!r} is not of the form Name@cutoff or Name(key=value)@cutoff, for "
            f"example {EXAMPLES}"
        )
    registered = ir_measures.measures.registry.get(match["name"])
    if registered is None:
        raise ValueError(f"unknown measure {text!r}{_did_you_mean(text)}; examples: {EXAMPLES}")
    parameters = _parameters(match["parameters"] or "", text)
    if match["cutoff"]:
        parameters[registered.AT_PARAM] = ast.literal_eval(match["cutoff"])
    return _computable(registered, parameters, text)


def _parameters(text: str, measure: str) -> dict[str, Any]:
    try:
        match ast.parse(f"f({text})", mode="eval").body:
            case ast.Call(args=[], keywords=keywords):
                return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (SyntaxError, ValueError):
        pass
    raise ValueError(f"measure {measure!r}: {text!r} is not a list of key=value, for example RR(rel=2)@10")


def _computable(registered: Measure, parameters: dict[str, Any], text: str) -> Measure:
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
    measure = registered(**parameters)
    try:
        ir_measures.evaluator([measure], {})
    except ValueError as error:
        raise ValueError(f"measure {text!r} cannot be computed here: {error}") from None
    return measure


def _did_you_mean(text: str) -> str:
    """Like components.did_you_mean, ignoring case, also for names and cutoffs as other tools write them:
    `ndcg@10`, `ndcg_cut_10` and `nDCG10` are near nDCG@10."""
    registry = ir_measures.measures.registry
    known = {name.lower(): str(measure) for name, measure in registry.items()} | TREC_EVAL
    stem, cutoff = WITH_CUTOFF.findall(re.sub(r"\(.*\)", "", text))[0]
    near = difflib.get_close_matches(stem.lower(), known, n=1)
    if not near:
        return ""
    measure = known[near[0]]
    if cutoff:
        with suppress(ValueError):  # a measure without a cutoff
            (measure,) = map(str, parse_measures([f"{measure}@{cutoff}"]))
    return f" (did you mean {measure!r}?)"


Split = Annotated[str, Field(min_length=1)]
Score = Annotated[float, Field(ge=0, le=1)]
Scores = dict[MeasureName, Score]


def _read_expect(value: Any) -> Any:
    if value is None:  # a recipe that extends one whose scores are not its own
        return {}
    if not isinstance(value, dict) or not all(isinstance(scores, dict) for scores in value.values()):
        raise ValueError("expected a value for each measure of a split, for example {dev: {RR@10: 0.33}}")
    return value


# split -> measure -> score; also of splits that the recipe itself does not evaluate.
Expect = Annotated[dict[Split, Scores], BeforeValidator(_read_expect)]

RERANK_SUFFIX = "-rerank"  # `dev-rerank` is the ranking of split `dev`, reranked
PER_SPLIT_KEYS = ("measures", "query_measures", "rerank")  # the keys with a value for each split


def _read_measures(value: Any) -> Any:
    """Names, or names for each split. Reports one error at the key instead of one per union member."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if not all(
        isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) for names in lists
    ):
        raise ValueError(
            "expected a list of measures, or one for each split, for example {dev: [RR@10], dl19: [nDCG@10]}"
        )
    return value


Row = Literal["bm25", "untrained", "start", "stages", "hybrid"]
ROWS: tuple[Row, ...] = get_args(Row)


def _read_rows(value: Any) -> Any:
    """Report one error at the key instead of one per item."""
    names = list(value) if isinstance(value, list | tuple) else [value]
    if wrong := [name for name in names if name not in ROWS]:
        near = did_you_mean(str(wrong[0]), ROWS)
        raise ValueError(f"no row {wrong[0]!r}{near}; expected a list of {', '.join(ROWS)}")
    if repeated := [name for position, name in enumerate(names) if name in names[:position]]:
        raise ValueError(f"row {repeated[0]!r} is listed twice; list each once")
    return names


Rows = Annotated[tuple[Row, ...], BeforeValidator(_read_rows)]
Measures = Annotated[dict[str, tuple[str, ...]] | tuple[str, ...], BeforeValidator(_read_measures)]


class Rerank(Settings):
    """Reranking: the first documents of a ranking in the order of the model's scores."""

    file: Path | None = None
    """The ranking, in any format of data/rankings.py; null: BM25's ranking of the split."""
    hits: PositiveInt = 100
    """Documents of each query that are reranked."""
    measures: tuple[str, ...] = ("nDCG@10",)
    """The measures of the reranked ranking."""


class FinalEvaluation(Settings):
    """The evaluation after training, which every row of the results table goes through.

    Settings of splits that are not evaluated have no effect.
    """

    split: Splits = ("test",)
    """The split, or the splits, to evaluate."""
    rows: Rows = ROWS
    """The rows of the results table besides that of the last stage: `bm25` (with RM3, if configured), the
    `untrained` encoder, `start` (initial weights from outside the recipe), the `stages` before the last, and
    `hybrid`, BM25 fused with the last. Those of a model each encode all documents once more; the rankings of
    weights that a run starts from are kept in the cache, for later runs."""
    measures: Measures = ("nDCG@10", "RR@10", "R@100")
    """The measures of all splits, or a list for each split."""
    query_measures: Measures = ()
    """Measures of query retrieval, for all splits or for each: every relevant document of the split ranks the
    split's queries (Li et al. 2021, DANCE)."""
    rerank: dict[str, Rerank] = Field(default={})
    """By split, the ranking that each model also reranks."""
    hits: PositiveInt = 100
    """Documents that are retrieved for each query."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """The precision of the document vectors, in the exported index too."""
    indexes: tuple[str, ...] = ()
    """Faiss factory strings; a model has one more row for each, with the ranking of that index."""

    @model_validator(mode="after")
    def check_rows(self) -> "FinalEvaluation":
        if "hybrid" in self.rows and "bm25" not in self.rows:
            raise ValueError("rows: `hybrid` fuses the ranking of the row `bm25`; add it, or remove `hybrid`")
        return self

    @model_validator(mode="after")
    def check_measures(self) -> "FinalEvaluation":
        if isinstance(self.measures, dict) and (
            without := [split for split in self.split if not self.measures.get(split)]
        ):
            raise ValueError(
                f"measures: split {without[0]!r} is evaluated, but has no measures; "
                f"splits here: {', '.join(self.measures)}; list some for it"
            )
        return self

    @model_validator(mode="after")
    def check_names_of_reranked_splits(self) -> "FinalEvaluation":
        if taken := [split for split in self.reranked if f"{split}{RERANK_SUFFIX}" in self.split]:
            raise ValueError(
                f"split: '{taken[0]}{RERANK_SUFFIX}' is also what tables call the reranked {taken[0]!r}; "
                f"rename the split, or remove rerank.{taken[0]}"
            )
        return self

    def measures_of(self, split: str) -> list[Measure]:
        return parse_measures(_of_split(self.measures, split))

    def query_measures_of(self, split: str) -> list[Measure]:
        return parse_measures(_of_split(self.query_measures, split))

    @property
    def reranked(self) -> dict[str, Rerank]:
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
            for split, rerank in self.reranked.items()
            for measure in parse_measures(rerank.measures)
        ]
        return {(split, str(measure)): self.column(split, measure) for split, measure in measures}


def _of_split(measures: dict[str, tuple[str, ...]] | tuple[str, ...], split: str) -> tuple[str, ...]:
    return measures.get(split, ()) if isinstance(measures, dict) else measures
