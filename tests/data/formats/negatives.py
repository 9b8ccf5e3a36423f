"""Files of negatives, read by the package and by a reference reader, which detects the form by the first
line.
"""

import json
from pathlib import Path

import numpy as np
from data.formats import slow
from helpers import ranking_files as ranked

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.text_files import find_file

KNOWN = "known.json"  # queries and documents, (id, text) each, for which the file is read


def collection_of(folder: Path) -> dict[str, list]:
    return json.loads((folder / KNOWN).read_text())


def negatives_file(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.name != KNOWN)


def negatives(folder: Path) -> dict:
    """Scores by query and document, for the known queries."""
    queries, documents = (
        Texts(list(ids), {"text": list(texts)})
        for ids, texts in (zip(*rows, strict=True) for rows in collection_of(folder).values())
    )
    vars(documents).update(rows=ranked.AnyId(documents.ids))
    run = ranked.read(find_file(negatives_file(folder), "file"), queries, documents)
    return {query: result for query, result in run.items() if result}


def negatives_slowly(folder: Path) -> dict:
    """A file without known queries belongs to another split, and is an error."""
    result = {query: result for query, result in _slowly(folder).items() if result}
    slow.need(result)
    return {
        query: {document: float(np.float32(score)) for document, score in of_query.items()}
        for query, of_query in result.items()
    }


def _slowly(folder: Path) -> dict:
    path, known = negatives_file(folder), collection_of(folder)
    path = path.with_name(path.name.removesuffix(".gz"))
    queries = {id for id, _ in known["queries"]}
    if path.suffix in (".json", ".jsonl"):
        return in_order(listed(path), queries)
    _, first = next(iter(slow.lines(path)), (0, ""))
    if len(first.split("\t")) == 4:
        rows = slow.filled_rows(path, 4)
        return in_order([(query, document) for query, document, _, _ in rows], queries)
    if len(first.split("\t")) == 3 and "triples" in path.name:
        rows = slow.filled_rows(path, 3)
        if len(first.split()) == 3:
            return in_order([(query, negative) for query, _, negative in rows], queries)
        return in_order(by_text(rows, known), queries)
    run = ranks(path, queries) if len(first.split()) == 3 else slow.trec_run(path)
    return {query: result for query, result in run.items() if query in queries}


def in_order(pairs: list[tuple[str, str]], queries: set[str]) -> dict:
    slow.check_ids([document for _, document in pairs])
    known_pairs = [(query, document) for query, document in dict.fromkeys(pairs) if query in queries]
    return {
        query: {
            document: -1.0 - index for index, document in enumerate(d for q, d in known_pairs if q == query)
        }
        for query, _ in known_pairs
    }


def ranks(path: Path, queries: set[str]) -> dict:
    rows = slow.trec_rows(path, 3)
    slow.need(all(rank.isascii() and rank.isdigit() and 0 < int(rank) < 10**9 for _, _, rank in rows))
    slow.need(any(int(rank) == 1 for _, _, rank in rows))
    rows = [row for row in rows if row[0] in queries]
    slow.need(len({(query, int(rank)) for query, _, rank in rows}) == len(rows))
    return slow.by_query((query, document, -float(rank)) for query, document, rank in rows)


def by_text(rows: list[list[str]], known: dict[str, list]) -> list[tuple[str, str]]:
    def plain(text: str) -> list[str]:
        return text.split()

    pairs = []
    for query, _, negative in rows:
        for known_pairs in [id for id, text in known["queries"] if plain(text) == plain(query)]:
            pairs.append(
                (known_pairs, next(id for id, text in known["documents"] if plain(text) == plain(negative)))
            )
    return pairs


def listed(path: Path) -> list[tuple[str, str]]:
    """The id of a question, its own or its index, and the ids of its negatives."""
    records = slow.records(path)
    readings = {
        "positive_ctxs": (dpr, "hard_negative_ctxs"),
        "positive_passages": (tevatron, "negative_passages"),
        "pos": (flagembedding, "neg"),
    }
    read, key = next(readings[positives] for positives in readings if positives in records[0])
    return [
        (question, one)
        for index, record in enumerate(records)
        for question, ids in [read(index, record, key)]
        for one in ids
    ]


def dpr(index: int, record: dict, key: str) -> tuple[str, list[str]]:
    return slow.dpr_question(index, record)[0], slow.contexts(record, key, "passage_id", "psg_id")


def tevatron(index: int, record: dict, key: str) -> tuple[str, list[str]]:
    return slow.tevatron_question(record)[0], slow.contexts(record, key, "docid")


def flagembedding(index: int, record: dict, key: str) -> tuple[str, list[str]]:
    slow.text_of(record, "query")
    slow.need(isinstance(record[key], list) and all(isinstance(text, str) for text in record[key]))
    return str(index), [slow.id_of_text(text) for text in record[key]]
