"""Published figures of a recipe set: papers and other sources, as its `_published.yaml` lists them."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import canonical_name
from pyserini_ance.recipe.yaml_text import read_yaml

FILE = "_published.yaml"
MILLISECONDS = "mean ms"
ABOUT = ("method", "as", "source", "table", "index", "reranker", "milliseconds", "interval")


class Section(StrEnum):
    """The tables of a set: results tables, and what papers report besides; the value is its heading."""

    RESULTS = ""
    INDEXES = "By the index that searched (`final_evaluation.indexes`):"
    JUDGED = "Unjudged documents, and documents shared with BM25's ranking (of the rankings that runs keep):"
    RERANKED = "Reranked (`rerank`), with the milliseconds per query of search and reranking:"
    ANSWERS = "Answers of a reader (`answer`):"
    FORGETTING = "Training queries that rank worse after an interval of training than before:"


# The column of what a section's rows are about, where a recipe has several.
PARTS = {
    Section.INDEXES: "index",
    Section.RERANKED: "reranker",
    Section.ANSWERS: "reader",
    Section.FORGETTING: "interval",
}
# The sections of measures that results tables lack, by pattern.
SECTIONS = {
    r"(Hole|Overlap)@[1-9]\d*": Section.JUDGED,
    "EM": Section.ANSWERS,
    "forgotten": Section.FORGETTING,
}


def section_of(measure: str) -> Section | None:
    """The section of a measure that results tables lack; None for a measure of results tables."""
    return next((section for names, section in SECTIONS.items() if re.fullmatch(names, measure)), None)


class PublishedRow(NamedTuple):
    """The scores that one source reports for one model, by split and measure.

    `model` is the source's name for it, `method` the name of the recipe here; None without one. `about`: the
    index that searched, the reranker, the latency in `milliseconds`, or the interval of forgetting.
    """

    method: str | None
    model: str
    source: str
    table: int | None
    about: dict[str, Any]
    figures: dict[str, dict[str, float]]

    def where(self) -> str:
        return self.source if self.table is None else f"{self.source}, table {self.table}"

    def by_section(self) -> dict[tuple[Section, str], dict[tuple[str, str], float]]:
        """The scores by section and part, then by split and measure."""
        own = Section.INDEXES if "index" in self.about else Section.RESULTS
        own = Section.RERANKED if self.about.keys() & {"reranker", "milliseconds"} else own
        sections: dict[tuple[Section, str], dict[tuple[str, str], float]] = {}
        for split, scores in self.figures.items():
            latency = {MILLISECONDS: self.about["milliseconds"]} if "milliseconds" in self.about else {}
            for measure, value in (scores | latency).items():
                section = section_of(measure) or own
                part = self.about.get(PARTS.get(section, ""), "")
                sections.setdefault((section, part), {})[split, measure] = value
        return sections


class Published(NamedTuple):
    """A description of each source, and the rows."""

    sources: dict[str, str]
    rows: list[PublishedRow]


def read_published(folder: Path) -> Published:
    """The published scores of the set in `folder`; empty if there are none.

    Raises ValueError naming file, key and value.
    """
    path = folder / FILE
    content = read_yaml(path.read_bytes(), str(path)) if path.exists() else {}
    sources, rows = content.get("sources", {}), []
    for position, row in enumerate(content.get("rows", ())):
        where = f"{path}: rows.{position}"
        about = {key: row[key] for key in ABOUT if row.get(key) is not None}
        figures = {key: value for key, value in row.items() if key not in ABOUT}
        if (source := about.pop("source", None)) not in sources:
            near = did_you_mean(str(source), sources)
            raise ValueError(f"{where}.source: got {source!r}{near}; expected one of {', '.join(sources)}")
        if "as" not in about or not figures or not all(isinstance(of, dict) for of in figures.values()):
            raise ValueError(f"{where}: expected `as` and splits such as dev: {{RR@10: 0.33}}, got {row}")
        for split, scores in figures.items():
            for measure, value in scores.items():
                try:
                    if not section_of(measure):
                        canonical_name(measure)
                except ValueError as error:
                    raise ValueError(f"{where}.{split}.{measure}: {error}") from None
                if not 0 <= value <= 1:
                    raise ValueError(f"{where}.{split}.{measure}: expected a number from 0 to 1, got {value}")
        method, model, table = (about.pop(key, None) for key in ("method", "as", "table"))
        rows.append(PublishedRow(method, model, source, table, about, figures))
    return Published(sources, rows)
