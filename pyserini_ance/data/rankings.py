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
from pathlib import Path

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats import dpr, flagembedding, tevatron
from pyserini_ance.data.formats.contexts import Layout, checked_id, listed_negatives
from pyserini_ance.data.formats.lines import Line, extension, read_lines, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.trec import RUN_COLUMNS, Run, read_run

LAYOUTS = (dpr.LAYOUT, tevatron.LAYOUT, flagembedding.LAYOUT)
TRIPLES = "triples"
_RANK = re.compile("0{0,8}[1-9][0-9]{0,8}")
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), 3 (query, document, rank), "
    f"3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), or 4 (query id, passage id, query, passage)"
)


def read_any_run(path: Path, queries: Texts, documents: Texts) -> Run:
    """Scores by query and document. Texts, in files without ids, are looked up in `queries` and `documents`; other queries may be left out.

    Raises ValueError naming the line for a file of no known form, and for a line that is not of the file's.
    """
    if extension(path) in (".json", ".jsonl"):
        return _in_order(listed_negatives(path, _layout(path)), queries)
    first = next(read_lines(path), Line(path, 1, ""))
    cells, words = first.text.split("\t"), first.text.split()
    if len(cells) == 4:
        return _in_order(_top(path), queries)
    if len(cells) == 3 and TRIPLES in path.name:
        by_id = len(words) == 3
        return _in_order(_triples(path) if by_id else _text_triples(path, queries, documents), queries)
    if len(words) in (0, 3, len(RUN_COLUMNS)):
        return read_ranked(path)
    raise first.error(f"{len(words)} columns in {shown(first.text)}", FORMS, "name a file of one of these forms")


def read_ranked(path: Path) -> Run:
    """Scores by query and document, of a TREC run or of MS MARCO's `qid docid rank`, whatever the collection."""
    first = next(read_lines(path), Line(path, 1, ""))
    return _ranks(path) if len(first.text.split()) == 3 else read_run(path)


def _in_order(pairs: Iterable[tuple[str, str]], queries: Texts) -> Run:
    """Of these queries' documents, best first; one that comes again counts once."""
    run: Run = {id: {} for id in queries.ids}
    for query, document in pairs:
        found = run.get(query)
        if found is not None:
            found.setdefault(document, -float(len(found) + 1))
    return run


def _layout(path: Path) -> Layout:
    line, record = next(read_records(path), (Line(path, 1, ""), {}))
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    known = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    raise line.error(f"a record with the keys {shown(list(record))}", f"one that lists passages under {known}", "name such a file")


def _ranks(path: Path) -> Run:
    run: Run = defaultdict(dict)
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for line in read_lines(path):
        query, document, rank = line.columns(("query", "document", "rank"), separator=None)
        if not _RANK.fullmatch(rank):
            raise _no_rank(line, f"rank {shown(rank)}")
        if document in run[query] or int(rank) in taken[query]:
            raise _no_rank(line, f"document {shown(document)} or rank {rank} again for query {shown(query)}")
        taken[query].add(int(rank))
        run[query][document] = -float(rank)
    if not any(1 in ranks for ranks in taken.values()):
        raise _no_rank(Line(path, 1, ""), "a file without any rank 1")
    return dict(run)


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
    known: dict[str, str] = {}
    for id, text in zip(documents.ids, documents.columns["text"], strict=True):
        known.setdefault(_key(text), id)
    for line in read_lines(path):
        query, _, negative = line.columns(("query", "positive", "negative"))
        for id in asked.get(_key(query), ()):
            if _key(negative) not in known:
                cure = "name a file made from this collection, or one with ids"
                raise line.error(f"negative {shown(negative)}", "the text of a document of the collection", cure)
            yield id, known[_key(negative)]


def _key(text: str) -> str:
    return flagembedding.text_id(" ".join(text.split()))  # short: a collection's texts need not be in memory twice
