"""Published scores and the papers' texts: all rows of the tables that belong to a set, and nothing else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.papers.published import PublishedRow, read_published
from pyserini_ance.recipe.find import SHIPPED

SETS = ("msmarco-passage", "msmarco-doc", "nq", "triviaqa")  # openqa-multi has rows of the last two again
TEXTS = {
    "ance": "ance-2020-v2-iclr2021",
    "ance-v1": "ance-2020-v1",
    "ltre": "ltre-2020",
    "dance": "dance-2021",
    "tele": "ance-tele-2022",
}
SHARE, PERCENT, EITHER = r"\b0\.\d+", r"\b\d+\.\d\d?\b", r"\b\d+\.\d%|100%|\b0\.\d+"
CITED = re.compile(
    r"<sup>.*?</sup>|</?b>| \[[\d, ]+\]|\(\d{4}\w?\)|\([\w ]+ et al\., \d{4}\w?\)|\\rightarrow"
)
COLUMNS = (
    "dev nDCG@10",
    "dev RR@10",
    "dev RR@100",
    "dev R@1000",
    "eval RR@100",
    "dl19-rerank nDCG@10",
    "dl19 nDCG@10",
    "dl19 R@100",
    "dl19 R@1000",
    "dl19 Hole@10",
    "dl19 Overlap@100",
    "test Success@5",
    "test Success@20",
    "test Success@100",
    "test EM",
    "train forgotten",
)
TELLING = re.compile(r"(?=\S*[A-Z0-9])\S*\w\)?")  # words of a name with a capital or a digit


@dataclass(frozen=True)
class Table:
    """From a line of the text that begins with `first` to one that begins with `last`; `beside` looks like
    figures and is none."""

    first: str
    last: str
    figure: str = SHARE
    beside: str = "(?!)"
    by_column: bool = False  # names and each column stand apart

    def lines(self, text: str) -> Iterator[tuple[str, str]]:
        """Those with figures, each alone and after what it stands under: lines without figures, and the first
        cell of its group."""
        begin = text.index(f"\n{self.first}") + 1
        table = text[begin : text.index("\n", text.index(f"\n{self.last}", begin) + 1)]
        above, group = "", ""
        for line in [table.replace("\n", " ")] if self.by_column else table.split("\n"):
            group = group if line.startswith("\t") else line.partition("\t")[0]
            if self.figures(line):
                yield line, f"{above} {group} {line}"
            else:
                above += f" {line}"

    def figures(self, line: str) -> list[float]:
        """As shares."""
        found = re.findall(self.figure, re.sub(self.beside, "", line))
        return [
            round(float(figure.rstrip("%")) / (100 if self.figure == PERCENT or "%" in figure else 1), 4)
            for figure in found
        ]


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
FIRST_VERSION = {
    1: Table("BM25 0.240", "ANCE (MaxP) 0.671"),
    2: Table("BM25 0.685", "ANCE (MaxP) -", EITHER),
    3: Table("Passage ANCE 1e-6", "1e-6 200 10k 0.61"),
    4: Table("BM25 59.1", "ANCE 81.9", PERCENT),
}


@pytest.fixture(scope="module")
def texts(shared_papers) -> dict[str, str]:
    return {
        source: (shared_papers / f"{name}.txt").read_text().replace("\xa0", " ")
        for source, name in TEXTS.items()
    }


def rows_of(source: str, table: int) -> list[PublishedRow]:
    """In the order of the papers' columns: MS MARCO passages and documents, NQ and TriviaQA; a model of
    several sets after those of one."""
    rows = [
        row
        for name in SETS
        for row in read_published(SHIPPED / name).rows
        if (row.source, row.table) == (source, table)
    ]
    return sorted(rows, key=lambda row: row.model.endswith(", multi"))


def values(row: PublishedRow) -> list[float]:
    """In the order of the papers' columns."""
    found = {
        f"{split} {measure}": value
        for split, figures in row.figures.items()
        for measure, value in figures.items()
    }
    return [found[place] for place in sorted(found, key=COLUMNS.index)]


def place_of(row: PublishedRow, table: Table, lines: list[tuple[str, str]]) -> int | None:
    """Of the line that has the row's figures, in the order of columns, and its name or what sets it apart
    (`DPR, from BERT`; `lr 1e-6, top 200`), while the rest of the name is above; best the one with the name
    itself.
    """
    named, set_apart = [], []
    for place, line in enumerate(lines):
        name, said, above = (
            " ".join(CITED.sub(" ", text).split()) for text in (row.model.replace("->", " "), *line)
        )
        figures = iter(table.figures(line[0]))
        if all(value in figures for value in values(row)) and all(
            word in above for word in TELLING.findall(name)
        ):
            parts, numbers = name.split(", "), re.findall(r"(?<!\S)\d[^\s,]*", name)
            named += [place] * (parts[0] in said)
            set_apart += [place] * (
                any(part in said for part in parts)
                or (numbers != [] and all(number in said for number in numbers))
            )
    return next(iter(named + set_apart), None)


@pytest.mark.parametrize(("source", "number"), TABLES)
def test_rows_are_the_lines_of_their_table(texts, source, number):
    table = TABLES[source, number]
    lines = list(table.lines(texts[source]))
    entered = [[] for _ in lines]
    for row in rows_of(source, number):
        place = place_of(row, table, lines)
        assert place is not None, f"{source}, table {number}, has no line of {row.model!r} with {row.figures}"
        entered[place] += values(row)
    as_printed = sorted if table.by_column else list
    for (line, _), figures in zip(lines, entered, strict=True):
        assert as_printed(figures) == as_printed(table.figures(line)), line


def test_all_rows_of_papers_are_of_these_tables():
    rows = [
        row
        for name in (*SETS, "openqa-multi")
        for row in read_published(SHIPPED / name).rows
        if row.source in TEXTS
    ]
    assert {(row.source, row.table) for row in rows} == {*TABLES, ("ance-v1", 1)}


@pytest.mark.parametrize("number", FIRST_VERSION)
def test_the_first_version_of_ance_has_the_same_figures_and_one_row_more(texts, number):
    def figures(table: Table, source: str, but: str = "\n") -> list[list[float]]:
        return [table.figures(line) for line, _ in table.lines(texts[source]) if but not in line]

    table = FIRST_VERSION[number]
    assert figures(table, "ance-v1", "Best TREC Trad LeToR") == figures(TABLES["ance", number], "ance")
    left = [line for line, _ in table.lines(texts["ance-v1"]) if "LeToR" in line]
    assert [table.figures(line) for line in left] == (
        [[value for row in rows_of("ance-v1", 1) for value in values(row)]] if number == 1 else []
    )
