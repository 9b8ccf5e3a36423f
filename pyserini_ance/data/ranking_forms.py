"""The forms in which rankings are published; their lines as hits, or as pairs in order.

The reader detects the form of a file:

| a line, columns separated by tabs | form |
|---|---|
| `qid Q0 docid rank score tag`, separated by any blanks | a TREC run, also MS MARCO's document `top100` |
| `qid docid rank`, separated by any blanks | MS MARCO's runs |
| `qid pid query passage` | MS MARCO's `top1000.dev`, which is unordered |
| `qid pid pid`, or three texts, if `triples` is in the file's name | query, positive, negative (MS MARCO) |
| JSON, in a `.json` or `.jsonl` file | the negatives in training files of DPR, Tevatron and FlagEmbedding |

TREC runs have scores. In every other form, documents are ordered by their ranks or lines, and the score is
the negative rank.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats import dpr, flagembedding, tevatron
from pyserini_ance.data.formats.lines import Line, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.formats.text_files import extension, read_lines
from pyserini_ance.data.formats.training_files import Layout, checked_id, listed_negatives
from pyserini_ance.data.trec import RUN_COLUMNS, Hit, read_hits, repeated_document

LAYOUTS = (dpr.LAYOUT, tevatron.LAYOUT, flagembedding.LAYOUT)
TRIPLES = "triples"
RANK_COLUMNS = 3
_RANK = re.compile("0{0,8}[1-9][0-9]{0,8}")
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), 3 (query, document, "
    f"rank), 3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), or 4 "
    "(query id, passage id, query, passage)"
)


def hits_of(path: Path, queries: Texts, documents: Texts) -> tuple[Iterator[Hit], bool]:
    """The hits of a file, and whether they are in the order of its lines, without scores.

    Files without ids are matched by the texts of queries and documents.
    """
    first = _first(path)
    tabs, words = first.text.count("\t"), len(first.text.split())
    if is_listed(path):
        return ((*pair, 0.0) for pair in listed_negatives(path, layout_of(path))), True
    if tabs == 3:
        return _ids(path, ("query id", "passage id", "query", "passage"), 1), True
    if tabs == 2 and TRIPLES in path.name:
        if words == 3:
            return _ids(path, ("query id", "positive id", "negative id"), 2), True
        return _text_triples(path, queries, documents), True
    if words == RANK_COLUMNS:
        return ranks_of(path), False
    if words in (0, len(RUN_COLUMNS)):
        return read_hits(path), False
    raise first.error(f"{words} columns in {shown(first.text)}", FORMS, "pass a file of one of these forms")


def is_listed(path: Path) -> bool:
    """Whether a file lists passages in JSON records."""
    return extension(path) in (".json", ".jsonl")


def _first(path: Path) -> Line:
    return next(read_lines(path), Line(path, 1, ""))


def layout_of(path: Path) -> Layout:
    """The format of a file of training records. Raises ValueError if its first record has no known key."""
    empty: tuple[Line, dict] = (Line(path, 1, ""), {})
    line, record = next(read_records(path), empty)
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    layouts = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    raise line.error(
        f"a record with the keys {shown(list(record))}",
        f"one that lists passages under {layouts}",
        "pass such a file",
    )


def has_ranks(path: Path) -> bool:
    """Whether a file with scores or ranks has ranks."""
    return len(_first(path).text.split()) == RANK_COLUMNS


def ranks_of(path: Path) -> Iterator[Hit]:
    has_first = False
    for line in read_lines(path):
        query, document, rank = line.columns(("query", "document", "rank"), separator=None)
        if not _RANK.fullmatch(rank):
            raise _rank_error(line, f"rank {shown(rank)}")
        has_first = has_first or int(rank) == 1
        yield line.number, query, document, -float(rank)
    if not has_first:
        raise _rank_error(Line(path, 1, ""), "a file without any rank 1")


def repeated_hit(path: Path, number: int, query: str, document: str, score: float) -> ValueError:
    """The error for a repeated document, or a repeated rank, in line `number`; the score of a rank is its
    negative."""
    line = Line(path, number, "")
    if has_ranks(path):
        return _rank_error(line, f"document {document!r} or rank {-score:.0f} again for query {query!r}")
    return repeated_document(line, query, document)


def _rank_error(line: Line, problem: str) -> ValueError:
    cure = f"correct it; a file of triples (query, positive, negative) must have {TRIPLES!r} in its name"
    return line.error(problem, "ranks counted from 1, each document and each rank once per query", cure)


def _ids(path: Path, columns: tuple[str, ...], document: int) -> Iterator[Hit]:
    """The query in the first column, and the id in the column `document`."""
    for line in read_lines(path):
        cells = line.columns(columns)
        yield line.number, cells[0], checked_id(line, cells[document]), 0.0


def _text_triples(path: Path, queries: Texts, documents: Texts) -> Iterator[Hit]:
    """Match texts by their words, ignoring differences in blanks; of equal documents the first is used."""
    query_ids = defaultdict(list)
    for id, text in zip(queries.ids, queries.columns["text"], strict=True):
        query_ids[_key(text)].append(id)
    keys = np.fromiter(map(_key, documents.columns["text"]), np.uint64, len(documents))
    rows = np.argsort(keys, kind="stable")
    keys = keys[rows]
    for line in read_lines(path):
        query, _, negative = line.columns(("query", "positive", "negative"))
        for id in query_ids.get(_key(query), ()):
            key = np.uint64(_key(negative))
            position = int(np.searchsorted(keys, key))
            if position == len(keys) or keys[position] != key:
                expected = "the text of a document of the collection"
                cure = "pass a file made from this collection, or one with ids"
                raise line.error(f"negative {shown(negative)}", expected, cure)
            yield line.number, id, documents.ids[int(rows[position])], 0.0


def _key(text: str) -> int:
    """A text's key of 8 bytes, so that the texts of the collection need not be in memory."""
    return int(flagembedding.text_id(" ".join(text.split())), 16)
