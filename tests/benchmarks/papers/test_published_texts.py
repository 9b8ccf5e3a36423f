"""Published scores and the papers' texts: the figures of each table that belongs to a set, and no others."""

import re
from collections import Counter
from typing import NamedTuple

import pytest

from benchmarks.papers.published import PublishedRow, read_published
from pyserini_ance.recipe.load import SHIPPED

SETS = ("msmarco-passage", "msmarco-doc", "nq", "triviaqa")  # openqa-multi has rows of the last two again
TEXTS = {"ance": "ance-2020-v2-iclr2021", "ance-v1": "ance-2020-v1", "ltre": "ltre-2020"}
TEXTS |= {"dance": "dance-2021", "tele": "ance-tele-2022"}
SHARE, PERCENT, EITHER = r"\b0\.\d+", r"\b\d+\.\d\d?\b", r"\b\d+\.\d%|100%|\b0\.\d+"


class Table(NamedTuple):
    """From a line that begins with `first` to one with `last`; `beside` looks like figures and is none."""

    first: str
    last: str
    figure: str = SHARE
    beside: str = "(?!)"
    by_column: bool = False  # names and each column stand apart

    def lines(self, text: str) -> list[str]:
        begin = text.index(f"\n{self.first}") + 1
        table = text[begin : text.index("\n", text.index(f"\n{self.last}", begin) + 1)]
        return [table.replace("\n", " ")] if self.by_column else table.split("\n")

    def figures(self, line: str) -> list[float]:
        """The figures of a line, as shares."""
        found = re.findall(self.figure, re.sub(self.beside, "", line))
        hundred = {one: 100 if self.figure == PERCENT or "%" in one else 1 for one in found}
        return [round(float(one.rstrip("%")) / hundred[one], 4) for one in found]


# Not among them, for no table of a set can hold them: gains of ANCE in production, times, distances between
# vectors (DANCE, table 3), cases.
TABLES = {
    ("ance", 1): Table("BM25 | 0.240", "ANCE (MaxP) | \u2013"),
    ("ance", 2): Table("BM25 | 0.685", "ANCE (MaxP) | - ", EITHER),
    ("ance", 3): Table("Passage ANCE | 1e-6", "1e-6 | 200 | 10k | \u2013 | 0.61"),
    ("ance", 4): Table("BM25 | 59.1", "ANCE | 81.9", PERCENT),
    ("ance", 6): Table("T5-11B (", "ANCE + Reader", PERCENT),
    ("ltre", 1): Table("BM25 0.187", "LTRe (ANCE) 0.341"),
    ("ltre", 2): Table("ColBERT [20] - 0.360", "Table 2:"),
    ("ltre", 3): Table("BM25 Neg [15] 4.2", "IndexFlatIP 26", r"\b0\.\d{3}\b"),
    ("ltre", 4): Table("NDCG@10 OPQ24", "IndexFlatIP 0.536"),
    ("dance", 1): Table("docT5query [30, 42]", "0.341", by_column=True),
    ("dance", 2): Table("Model\nANCE (FirstP)", "0.383†‡", by_column=True),
    ("tele", 1): Table("BM25 (2017)", "AR2 (2021)", PERCENT),
    ("tele", 2): Table("0.5\t0.5\t47", "0.5\t0.7\t31", PERCENT, beside=r"^0\.\d\t0\.\d"),
    ("tele", 3): Table("BERT\tZero-Shot", "\tANCE-Tele\t<b>39.1", PERCENT),
    ("tele", 8): Table("ANCE-Tele\t39.1", "ANCE-Tele (w/o", PERCENT),
    ("tele", 9): Table("Epi-1\tANCE-Tele", "\tANCE-Tele (continue training)\t13.2", PERCENT),
}


@pytest.fixture(scope="module")
def texts(shared_papers) -> dict[str, str]:
    found = {source: (shared_papers / f"{name}.txt").read_text() for source, name in TEXTS.items()}
    return {source: text.replace("\xa0", " ") for source, text in found.items()}


def values(row: PublishedRow) -> Counter[float]:
    return Counter(value for figures in row.figures.values() for value in figures.values())


@pytest.mark.parametrize(("source", "number"), TABLES)
def test_the_figures_of_a_table_are_those_of_its_rows(texts, source, number):
    """Each row's figures are in one line, and no figure of the table is left."""
    table = TABLES[source, number]
    lines = [Counter(table.figures(line)) for line in table.lines(texts[source])]
    rows = [row for name in SETS for row in read_published(SHIPPED / name).rows]
    rows = [row for row in rows if (row.source, row.table) == (source, number)]
    for row in rows:
        assert any(values(row) <= line for line in lines), f"no line has the figures of {row}"
    assert sum(map(values, rows), Counter()) == sum(lines, Counter())


def test_all_rows_of_papers_are_of_these_tables():
    rows = [row for name in (*SETS, "openqa-multi") for row in read_published(SHIPPED / name).rows]
    assert {(row.source, row.table) for row in rows if row.source in TEXTS} == {*TABLES, ("ance-v1", 1)}


def test_the_first_version_of_ance_has_a_row_of_its_own(texts):
    rows = [row for name in SETS for row in read_published(SHIPPED / name).rows if row.source == "ance-v1"]
    [line] = [line for line in texts["ance-v1"].split("\n") if line.startswith("Best TREC Trad LeToR")]
    assert sum(map(values, rows), Counter()) == Counter(Table("", "").figures(line))
