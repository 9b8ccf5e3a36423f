"""Test: what the closing table has of each row: splits, the measures of each, and rankings that a model puts in another order."""

from pathlib import Path
from typing import Annotated, Any, Literal

from ir_measures import Measure
from pydantic import BeforeValidator, PositiveInt, model_validator

from pyserini_ance.recipe.measure import parse
from pyserini_ance.recipe.parts import Settings
from pyserini_ance.recipe.splits import Splits

RERANKED = "-rerank"  # after the name of a split: its ranking in another order
OF_SPLITS = ("measures", "query_measures", "rerank")  # the keys that may say something of each split


def _read_measures(value: Any) -> Any:
    """Names, or names for each split. One message at the key itself, not one for each type that it might be of."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) for names in lists):
        raise ValueError("expected a list of measures, or one for each split, for example {dev: [RR@10], dl19: [nDCG@10]}")
    return value


Measures = Annotated[dict[str, tuple[str, ...]] | tuple[str, ...], BeforeValidator(_read_measures)]


class Rerank(Settings):
    """The first `hits` documents of a ranking, in the order that a model gives them: the second stage of a search.

    `file: null` takes BM25's own ranking of the split; else one in any of the forms of data/rankings.py.
    """

    file: Path | None = None
    hits: PositiveInt = 100
    measures: tuple[str, ...] = ("nDCG@10",)


class Test(Settings):
    """The closing evaluation of every row of the table, on a `split` or on each of several; `precision` is that of the documents, in
    the index too.

    `measures` are those of all splits, or a list for each: TREC's judgments are graded, others are not. `query_measures` are of query
    retrieval: each relevant document of the split ranks the split's queries (Li et al. 2021, DANCE). What measures and `rerank` say of
    splits that are not tested counts for nothing; `data` must have them, unless a base says it of data that other data replaces. A
    model's row comes once more for each of `indexes`, Faiss factory strings: the ranking as that index makes it.
    """

    split: Splits = ("test",)
    measures: Measures = ("nDCG@10", "RR@10", "R@100")
    query_measures: Measures = ()
    rerank: dict[str, Rerank] = {}
    hits: PositiveInt = 100
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    indexes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def each_split_has_measures(self):
        if isinstance(self.measures, dict) and (without := [split for split in self.split if not self.measures.get(split)]):
            known = ", ".join(self.measures)
            raise ValueError(f"measures: split {without[0]!r} is tested, but has no measures; splits here: {known}; list some for it")
        return self

    @model_validator(mode="after")
    def no_split_is_called_as_another_reranked(self):
        if taken := [split for split in self.reranked if f"{split}{RERANKED}" in self.split]:
            name = f"{taken[0]}{RERANKED}"
            cure = f"name the split otherwise, or leave rerank.{taken[0]} out"
            raise ValueError(f"split: {name!r} is also what tables call the reranked {taken[0]!r}; {cure}")
        return self

    def measures_of(self, split: str) -> list[Measure]:
        return parse(_of_split(self.measures, split))

    def query_measures_of(self, split: str) -> list[Measure]:
        return parse(_of_split(self.query_measures, split))

    @property
    def reranked(self) -> dict[str, Rerank]:
        """Of the splits that are tested."""
        return {split: self.rerank[split] for split in self.split if split in self.rerank}

    def column(self, split: str, measure: Measure | str) -> str:
        """What tables call a measure of a split: by the split too, where there are several, or where it is its ranking in another order."""
        return str(measure) if self.split == (split,) else f"{split} {measure}"

    @property
    def columns(self) -> dict[tuple[str, str], str]:
        """By split, also those `...-rerank`, and measure, what tables call it."""
        asked = [(split, measure) for split in self.split for measure in self.measures_of(split)]
        asked += [(f"{split}{RERANKED}", measure) for split, rerank in self.reranked.items() for measure in parse(rerank.measures)]
        return {(split, str(measure)): self.column(split, measure) for split, measure in asked}


def _of_split(measures: dict[str, tuple[str, ...]] | tuple[str, ...], split: str) -> tuple[str, ...]:
    return measures.get(split, ()) if isinstance(measures, dict) else measures
