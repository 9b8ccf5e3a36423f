"""A collection in the layouts of other tools: what is written here is read by the kinds of `formats/`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyserini_ance.data.answers import ANSWERS, read_answers
from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.trec import Run


def write_beir(collection: Collection, folder: Path) -> None:
    """corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, into a folder that is there.

    Where one id stands for different queries in two splits, each id has its split's name before it (`nq:17`).
    """
    ids = _query_ids(collection.splits.values())
    queries = {}
    for name, split in collection.splits.items():
        queries |= {id: query for id, query in zip(ids[name], _queries(split.queries), strict=True)}
    _write_lines(folder / "corpus.jsonl", ({"_id": id, **fields} for id, fields in _documents(collection.documents)))
    _write_lines(folder / "queries.jsonl", ({"_id": id, **query} for id, query in queries.items()))
    (folder / "qrels").mkdir()
    for name, split in collection.splits.items():
        with open(folder / "qrels" / f"{name}.tsv", "w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for row, id in enumerate(ids[name]):
                file.writelines(f"{id}\t{collection.documents.ids[r]}\t{grade}\n" for r, grade in zip(*split.qrels.judged(row), strict=True))


def write_tevatron(collection: Collection, folder: Path, negatives: Mapping[str, Run]) -> None:
    """corpus.jsonl, and SPLIT.jsonl with each query's relevant documents, and its `negatives` of that split, best first."""
    documents = collection.documents
    _write_lines(folder / "corpus.jsonl", ({"docid": id, **fields} for id, fields in _documents(documents)))

    def passages(rows: Iterable[int]) -> list[dict[str, str]]:
        return [{"docid": documents.ids[row], **documents[row]} for row in rows]

    def records(split: Split) -> Iterator[dict[str, Any]]:
        found = negatives.get(split.name, {})
        for row, (id, query) in enumerate(zip(split.queries.ids, _queries(split.queries), strict=True)):
            record = {"query_id": id, "query": query.pop("text"), **query, "positive_passages": passages(split.qrels.relevant(row))}
            yield record | {"negative_passages": passages(documents.rows[document] for document in found.get(id, ()))}

    for name, split in collection.splits.items():
        _write_lines(folder / f"{name}.jsonl", records(split))


def _documents(documents: Texts) -> Iterator[tuple[str, dict[str, str]]]:
    if "text" not in documents.columns:
        raise ValueError(f"documents have the fields {', '.join(documents.columns)}, but these layouts need a field `text`; rename one of them")
    return ((id, documents[row]) for row, id in enumerate(documents.ids))


def _queries(queries: Texts) -> Iterator[dict[str, Any]]:
    for row in range(len(queries)):
        yield queries[row] | ({ANSWERS: read_answers(queries, row)} if ANSWERS in queries.columns else {})


def _query_ids(splits: Iterable[Split]) -> dict[str, list[str]]:
    """By split, in the order of its queries."""
    splits, known = list(splits), {}
    named = ((id, query) for split in splits for id, query in zip(split.queries.ids, _queries(split.queries), strict=True))
    clash = any(known.setdefault(id, query) != query for id, query in named)
    return {split.name: [f"{split.name}:{id}" if clash else id for id in split.queries.ids] for split in splits}


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
