"""Rankings of documents by query, from which negatives are drawn, in the forms in which they are published.

The reader detects the form of a file:

| a line, columns separated by tabs | form |
|---|---|
| `qid Q0 docid rank score tag`, separated by any blanks | a TREC run, also MS MARCO's document `top100` |
| `qid docid rank`, separated by any blanks | MS MARCO's runs |
| `qid pid query passage` | MS MARCO's `top1000.dev`, which is unordered |
| `qid pid pid`, or three texts, if `triples` is in the file's name | query, positive, negative (MS MARCO) |
| JSON, in a `.json` or `.jsonl` file | the negatives in training files of DPR, Tevatron and FlagEmbedding |

TREC runs have scores. In every other form, documents are ordered by their ranks or lines, and the score is
the negative of the rank, or of the line's number among those of the query.
"""

import logging
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pyserini_ance.data import trec
from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.formats.lines import JSON, Line, extension, read_lines, shown
from pyserini_ance.data.formats.records import is_list
from pyserini_ance.data.formats.training_files import layout_of, listed_hits, text_id
from pyserini_ance.data.known_positives import PADDING, is_in_sorted
from pyserini_ance.data.trec import Hit

log = logging.getLogger(__name__)
# Merging a block of this size takes 140 MB. If hits are grouped by query, larger blocks are not faster.
HITS_PER_BLOCK = 1 << 20
TRIPLES = "triples"
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), 3 (query, document, "
    f"rank), 3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), or 4 "
    "(query id, passage id, query, passage)"
)


@dataclass(frozen=True)
class RankedRows:
    """The top k documents of Q queries.

    rows: (Q, top_k) int32 document rows, best first, PADDING at the end.
    scores: (Q, top_k) float32, -inf at the padding.
    positives: (Q,) float32, the score of the best relevant document; NaN if the file ranks none.
    """

    rows: np.ndarray
    scores: np.ndarray
    positives: np.ndarray


def read_ranking(
    path: Path, split: Split, collection: Collection, top_k: int, rows: np.ndarray | None = None
) -> RankedRows:
    """Read the ranking of the query `rows` (Q,) of a split from a file; None: of all its queries.

    Other queries in the file are left out, and so are, with a warning, documents that the collection leaves
    out as they have no text. Memory is 12 bytes for each of the `top_k` documents of a query, whatever the
    length of the file. Raises ValueError, with the line, for a file of unknown form, for a malformed line and
    for a document that the collection lacks; and if the file ranks documents for no query of the split.
    """
    rows = np.arange(len(split.queries)) if rows is None else rows
    num_documents = len(collection.documents)
    known = split.known_positives("query").subset(rows)
    relevant = np.sort(np.repeat(np.arange(len(rows)), known.counts) * num_documents + known.rows)
    hits, in_order = hits_of(path, split.queries, collection.documents)
    has_ranks = not in_order and trec.has_ranks(path)
    ranked = np.full((len(rows), top_k), PADDING, np.int32)
    scores = np.full((len(rows), top_k), -np.inf)
    positives = np.full(len(rows), np.nan, np.float32)
    counts = np.zeros(len(rows), np.int64)  # of the hits of each query, where they are in order
    for block in hit_blocks(path, hits, split, collection, rows):
        if in_order:
            block = block.assign(score=-1.0 - counts[block["query"]] - block.groupby("query").cumcount())
            counts += np.bincount(block["query"], minlength=len(rows))
        merged = pd.concat([_ranked_so_far(block, ranked, scores), block], ignore_index=True)
        repeats = merged.duplicated(["query", "document"])
        wrong = merged.duplicated(["query", "score"]) if has_ranks and not repeats.any() else repeats
        if in_order:
            merged = merged[~repeats]
        elif wrong.any():
            first = next(merged[wrong].itertuples())
            query = split.queries.ids[int(rows[first.query])]
            document = collection.documents.ids[first.document] if repeats.any() else None
            raise trec.repeated(Line(path, first.number, ""), query, document, first.score)
        merged = merged.sort_values("score", ascending=False, kind="stable")  # of equal ones the first line
        merged["rank"] = merged.groupby("query").cumcount()
        best = merged[merged["rank"] < top_k]
        cells = best["query"], best["rank"]
        ranked[cells], scores[cells] = best["document"], best["score"]
        pairs = (block["query"] * num_documents + block["document"]).to_numpy()
        hits_of_positives = block[is_in_sorted(pairs, relevant)]
        np.fmax.at(positives, hits_of_positives["query"], hits_of_positives["score"].astype(np.float32))
    return RankedRows(ranked, scores.astype(np.float32), positives)


def hit_blocks(
    path: Path, hits: Iterable[Hit], split: Split, collection: Collection, rows: np.ndarray
) -> Iterator[pd.DataFrame]:
    """Blocks of hits of the query `rows` of a split, whose document ids are looked up together.

    Columns: the `number` of the line, the `query` as a position among `rows`, the `document` as a row, and
    the `score`. Hits are in the order of their lines, of documents of the collection alone. Raises ValueError
    for a document that the collection lacks, and if no hit is of a query of the split.
    """
    ids, own = split.queries.ids, collection.own_documents(split)
    positions = dict.fromkeys(ids, -1)  # -1: of the split, but not selected
    positions |= {ids[row]: position for position, row in enumerate(rows.tolist())}
    num_hits = num_left_out = 0
    columns: tuple[array, ...] = array("q"), array("q"), array("d")  # tuples would take 100 MB more
    documents: list[str] = []

    def block() -> pd.DataFrame:
        nonlocal num_left_out
        numbers, queries, scores = map(np.asarray, columns)
        found = collection.documents.rows_of(documents)
        for index in np.flatnonzero(found < 0).tolist():
            if documents[index] not in collection.left_out:
                query = shown(ids[rows[queries[index]]])
                problem = f"document {shown(documents[index])} for query {query}, which the collection lacks"
                expected = f"one of its {len(collection.documents)} documents"
                line = line_of(path, int(numbers[index]))
                raise line.error(problem, expected, "pass a file over this collection")
            num_left_out += 1
        is_own = False if own is None else found == own[rows[queries]]
        table = pd.DataFrame({"number": numbers, "query": queries, "document": found, "score": scores})
        return table[(found >= 0) & ~np.asarray(is_own)]

    for number, query, document, score in hits:
        position = positions.get(query)
        num_hits += position is not None
        if position is None or position < 0:
            continue
        for column, value in zip(columns, (number, position, score), strict=True):
            column.append(value)
        documents.append(document)
        if len(documents) == HITS_PER_BLOCK:
            yield block()
            columns = array("q"), array("q"), array("d")
            documents = []
    yield block()
    if not num_hits:
        raise ValueError(
            f"{path} has documents for none of the {len(ids)} queries of split {split.name!r}; "
            "is it a file of another split?"
        )
    if num_left_out:
        log.warning("skipped: %d hits of documents without text in %s", num_left_out, path)


def _ranked_so_far(block: pd.DataFrame, ranked: np.ndarray, scores: np.ndarray) -> pd.DataFrame:
    """The hits that are ranked so far of the block's queries.

    A repeated document that has dropped out of the top k is not detected: it cannot change the result.
    """
    queries = np.unique(block["query"])
    positions, ranks = np.nonzero(ranked[queries] != PADDING)
    best = queries[positions], ranks
    hits = {"query": best[0], "document": ranked[best], "score": scores[best]}
    return pd.DataFrame({"number": np.zeros(len(ranks), np.int64), **hits})


def hits_of(path: Path, queries: Texts, documents: Texts) -> tuple[Iterator[Hit], bool]:
    """The hits of a file, and whether they are in the order of its lines, without scores.

    Files without ids are matched by the texts of queries and documents.
    """
    if is_listed(path):
        layout = layout_of(path)
        return listed_hits(path, layout, [layout.negatives], queries), True
    first = trec.first_line(path)
    tabs, words = first.text.count("\t"), len(first.text.split())
    if _is_top1000(first):
        return _ids(path, ("query id", "passage id", "query", "passage"), 1), True
    if tabs == 2 and TRIPLES in path.name:
        if words == 3:
            return _ids(path, ("query id", "positive id", "negative id"), 2), True
        return _text_triples(path, queries, documents), True
    if words == len(trec.RANK_COLUMNS):
        return trec.read_ranks(path), False
    if words in (0, len(trec.RUN_COLUMNS)):
        return trec.read_hits(path), False
    raise first.error(f"{words} columns in {shown(first.text)}", FORMS, "pass a file of one of these forms")


def is_listed(path: Path) -> bool:
    return extension(path) in JSON


def check_ordered(path: Path) -> None:
    """Raise ValueError for candidates in no order, such as top1000.dev.tsv."""
    if not is_listed(path) and _is_top1000(first := trec.first_line(path)):
        raise first.error("candidates in no order", "a ranking, of which the first count", "pass a run file")


def _is_top1000(first: Line) -> bool:
    """Whether a line has ids and texts of a query and a passage; ColBERT's have a rank and a score there."""
    cells = first.text.split("\t")
    score = cells[-1].removeprefix("-").replace(".", "", 1)
    return len(cells) == 4 and not (cells[2].isdecimal() and score.isdecimal())


def line_of(path: Path, number: int) -> Line:
    """The place of a hit: a line of its file, or an item of a JSON list."""
    return Line(path, number, "", "item" if is_listed(path) and is_list(path) else "line")


def _ids(path: Path, columns: tuple[str, ...], document: int) -> Iterator[Hit]:
    """The query in the first column, and the id in the column `document`."""
    for line in read_lines(path):
        cells = line.cells(columns, filled=True)
        yield line.number, cells[0], cells[document], 0.0


def _text_triples(path: Path, queries: Texts, documents: Texts) -> Iterator[Hit]:
    """Match texts by their words, ignoring differences in blanks; of equal documents the first is used."""
    if "text" not in documents.columns:
        raise ValueError(f"{path} has texts, but documents have no field 'text'; pass a file with ids")
    query_ids = defaultdict(list)
    for id, text in zip(queries.ids, queries.columns["text"], strict=True):
        query_ids[_key(text)].append(id)
    keys = np.fromiter(map(_key, documents.columns["text"]), np.uint64, len(documents))
    rows = np.argsort(keys, kind="stable")
    keys = keys[rows]
    for line in read_lines(path):
        query, _, negative = line.cells(("query", "positive", "negative"), filled=True)
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
    return int(text_id(" ".join(text.split())), 16)
