"""Rankings from which negatives are drawn, in the forms in which they are published: a file says itself which form it has.

| a line, columns separated by tabs | |
|---|---|
| `qid Q0 docid rank score tag`, by any blanks | a TREC run, also MS MARCO's document `top100` |
| `qid docid rank`, by any blanks | MS MARCO's runs |
| `qid pid query passage` | MS MARCO's `top1000.dev`, which is in no order |
| `qid pid pid`, or three texts, in a file with `triples` in its name | query, positive, negative: MS MARCO's `qidpidtriples` and `triples` |
| JSON, in a `.json` or `.jsonl` file | what DPR's, Tevatron's and FlagEmbedding's training files list as negatives |

Apart from TREC runs, which have scores, documents count in the order of their ranks or their lines, and score minus their place.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.data.best import PADDING, Best, Repeated
from pyserini_ance.data.collection import Split, Texts
from pyserini_ance.data.formats import dpr, flagembedding, tevatron
from pyserini_ance.data.formats.contexts import Layout, checked_id, listed_negatives
from pyserini_ance.data.formats.lines import Line, extension, read_lines, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.trec import RUN_COLUMNS, Hit, Run, read_hits, read_run, repeated

LAYOUTS = (dpr.LAYOUT, tevatron.LAYOUT, flagembedding.LAYOUT)
TRIPLES = "triples"
RANK_COLUMNS = 3
_RANK = re.compile("0{0,8}[1-9][0-9]{0,8}")
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), 3 (query, document, rank), "
    f"3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), or 4 (query id, passage id, query, passage)"
)


@dataclass(frozen=True)
class Ranking:
    """Of each query the best documents, (Q, depth): `found` their rows, PADDING at the end, `scores` -inf there; and `positives` (Q,), what the
    best of its relevant documents scores, NaN where none is ranked.
    """

    found: np.ndarray
    scores: np.ndarray
    positives: np.ndarray


def read_ranking(path: Path, split: Split, documents: Texts, depth: int) -> Ranking:
    """The ranking of a file for the queries of a split; other queries are passed over.

    However long the file is, 12 bytes are kept for each of `depth` documents a query. Raises ValueError naming the line for a file of no
    known form, and for a line that is not of the file's; for a document that the collection lacks, and when no query of the split occurs.
    """
    known = _Known(path, split, documents)
    hits = _hits(path)
    ranking = _in_order(_pairs(path, split.queries, documents), known, depth) if hits is None else _by_score(hits, known, depth)
    if (ranking.found == PADDING).all():
        count = len(split.queries)
        raise ValueError(f"{path} ranks documents for none of the {count} queries of split {split.name!r}; is it a run of another split?")
    return ranking


def read_ranked(path: Path) -> Run:
    """Scores by query and document, of a TREC run or of MS MARCO's `qid docid rank`, whatever the collection."""
    if not _has_ranks(path):
        return read_run(path)
    run: defaultdict[str, dict[str, float]] = defaultdict(dict)
    taken: defaultdict[str, set[float]] = defaultdict(set)
    for line, query, document, score in _ranks(path):
        if document in run[query] or score in taken[query]:
            raise _repeated(line, query, document, score)
        taken[query].add(score)
        run[query][document] = score
    return dict(run)


class _Known:
    """Rows of the ids of a split and its collection, and which documents are relevant."""

    def __init__(self, path: Path, split: Split, documents: Texts):
        self.path, self.ids, self.documents = path, split.queries.ids, documents
        self.queries = {id: row for row, id in enumerate(split.queries.ids)}
        relation = split.relation("query")
        self.relevant = {(row, documents.ids[document]) for row in range(len(self.ids)) for document in relation.of(row).tolist()}

    def document(self, query: str, id: str) -> int:
        row = self.documents.rows.get(id)
        if row is None:
            raise ValueError(
                f"{self.path} ranks document {id!r} for query {query!r}, but the collection has no such document; "
                f"name a run over these {len(self.documents)} documents"
            )
        return row


def _by_score(hits: Iterator[Hit], known: _Known, depth: int) -> Ranking:
    positives = np.full(len(known.ids), np.nan, np.float32)
    best = Best(len(known.ids), depth, distinct_scores=_has_ranks(known.path))
    try:
        for line, query, document, score in hits:
            row = known.queries.get(query)
            if row is not None:
                best.add(row, known.document(query, document), score, line.number)
                if (row, document) in known.relevant:
                    positives[row] = np.fmax(positives[row], score)
        best.merge()
    except Repeated as again:
        raise _repeated(Line(known.path, again.number, ""), known.ids[again.query], known.documents.ids[again.document], again.score) from None
    return Ranking(best.found, best.scores.astype(np.float32), positives)


def _in_order(pairs: Iterable[tuple[str, str]], known: _Known, depth: int) -> Ranking:
    """Documents that come again count once; beyond `depth`, where only the place of a relevant one is asked for, lines are counted."""
    found, positives = np.full((len(known.ids), depth), PADDING, np.int32), np.full(len(known.ids), np.nan, np.float32)
    counts = [0] * len(known.ids)
    for query, document in pairs:
        row = known.queries.get(query)
        if row is None:
            continue
        count = counts[row]
        if count < depth:
            place = known.document(query, document)
            if place in found[row, :count]:
                continue
            found[row, count] = place
        counts[row] = count + 1
        if (row, document) in known.relevant:
            positives[row] = np.fmax(positives[row], -counts[row])
    return Ranking(found, np.where(found == PADDING, -np.inf, -np.arange(1, depth + 1)).astype(np.float32), positives)


def _hits(path: Path) -> Iterator[Hit] | None:
    """Of a file whose lines have scores, or ranks; None for those that are in order."""
    first = _first(path)
    words = len(first.text.split())
    if _is_listed(path) or _has_texts(first) or _has_triples(first):
        return None
    if words == RANK_COLUMNS:
        return _ranks(path)
    if words in (0, len(RUN_COLUMNS)):
        return read_hits(path)
    raise first.error(f"{words} columns in {shown(first.text)}", FORMS, "name a file of one of these forms")


def _pairs(path: Path, queries: Texts, documents: Texts) -> Iterator[tuple[str, str]]:
    """Of a file whose lines are in order. Texts, in files without ids, are looked up."""
    if _is_listed(path):
        return listed_negatives(path, _layout(path))
    first = _first(path)
    if _has_texts(first):
        return _top(path)
    return _triples(path) if len(first.text.split()) == 3 else _text_triples(path, queries, documents)


def _is_listed(path: Path) -> bool:
    return extension(path) in (".json", ".jsonl")


def _has_texts(first: Line) -> bool:
    return first.text.count("\t") == 3


def _has_triples(first: Line) -> bool:
    return first.text.count("\t") == 2 and TRIPLES in first.path.name


def _first(path: Path) -> Line:
    return next(read_lines(path), Line(path, 1, ""))


def _layout(path: Path) -> Layout:
    line, record = next(read_records(path), (Line(path, 1, ""), {}))
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    known = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    raise line.error(f"a record with the keys {shown(list(record))}", f"one that lists passages under {known}", "name such a file")


def _has_ranks(path: Path) -> bool:
    """Of a file with scores or ranks."""
    return len(_first(path).text.split()) == RANK_COLUMNS


def _ranks(path: Path) -> Iterator[Hit]:
    first = False
    for line in read_lines(path):
        query, document, rank = line.columns(("query", "document", "rank"), separator=None)
        if not _RANK.fullmatch(rank):
            raise _no_rank(line, f"rank {shown(rank)}")
        first = first or int(rank) == 1
        yield line, query, document, -float(rank)
    if not first:
        raise _no_rank(Line(path, 1, ""), "a file without any rank 1")


def _repeated(line: Line, query: str, document: str, score: float) -> ValueError:
    """Of a file with scores, or with ranks, which are whole numbers below 0 as scores."""
    if _has_ranks(line.path):
        return _no_rank(line, f"document {document!r} or rank {-score:.0f} again for query {query!r}")
    return repeated(line, query, document)


def _no_rank(line: Line, found: str) -> ValueError:
    cure = f"correct it; a file of triples (query, positive, negative) must have {TRIPLES!r} in its name"
    return line.error(found, "ranks counted from 1, each document and each rank once a query", cure)


def _top(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_lines(path):
        query, document, _, _ = line.columns(("query id", "passage id", "query", "passage"))
        yield query, checked_id(line, document)


def _triples(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_lines(path):
        query, _, negative = line.columns(("query id", "positive id", "negative id"))
        yield query, checked_id(line, negative)


def _text_triples(path: Path, queries: Texts, documents: Texts) -> Iterator[tuple[str, str]]:
    """Texts are the same when they differ in blanks only; of equal documents it is the first."""
    asked = defaultdict(list)
    for id, text in zip(queries.ids, queries.columns["text"], strict=True):
        asked[_key(text)].append(id)
    keys = np.fromiter(map(_key, documents.columns["text"]), np.uint64, len(documents))
    rows = np.argsort(keys, kind="stable")
    keys = keys[rows]
    for line in read_lines(path):
        query, _, negative = line.columns(("query", "positive", "negative"))
        for id in asked.get(_key(query), ()):
            wanted = np.uint64(_key(negative))
            place = int(np.searchsorted(keys, wanted))
            if place == len(keys) or keys[place] != wanted:
                cure = "name a file made from this collection, or one with ids"
                raise line.error(f"negative {shown(negative)}", "the text of a document of the collection", cure)
            yield id, documents.ids[int(rows[place])]


def _key(text: str) -> int:
    """8 bytes: a collection's texts need not be in memory."""
    return int(flagembedding.text_id(" ".join(text.split())), 16)
