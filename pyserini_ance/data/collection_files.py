"""A collection in the files of BEIR and of Tevatron."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.answer_matching import ANSWERS, read_answers
from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.formats.records import TITLE_AND_TEXT
from pyserini_ance.data.trec import Qrels
from pyserini_ance.storage.files import whole_file, write_whole

log = logging.getLogger(__name__)
# Rows of documents, best first, for the row of a query.
NegativesOf = Callable[[int], Sequence[int]]


def write_beir(collection: Collection, folder: Path) -> None:
    """Write corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv into an existing folder.

    If two splits use one id for different queries, every id is prefixed with its split (`nq:17`).
    """
    splits, first = collection.splits.values(), dict[str, dict[str, Any]]()
    pairs = (pair for one in splits for pair in zip(one.queries.ids, _queries(one.queries), strict=True))
    has_clash = any(first.setdefault(id, query) != query for id, query in pairs)
    if has_clash and collection.ignore_identical_ids:
        raise ValueError(
            "two splits have one id for different queries, and ignore_identical_ids finds a query's document "
            "by its id; give each query an id of its own, or leave a split out"
        )
    ids = {one.name: [f"{one.name}:{id}" if has_clash else id for id in one.queries.ids] for one in splits}
    queries: dict[str, dict[str, Any]] = {}
    for name, split in collection.splits.items():
        queries |= dict(zip(ids[name], _queries(split.queries), strict=True))
    _write_corpus(folder, collection.documents, "_id")
    write_lines(folder / "queries.jsonl", ({"_id": id, **query} for id, query in queries.items()))
    judged = {name: zip(ids[name], collection.judgments(name).values(), strict=True) for name in ids}
    write_judgments(folder, {name: dict(pairs) for name, pairs in judged.items()})


def write_judgments(folder: Path, splits: Mapping[str, Qrels]) -> None:
    """Write qrels/SPLIT.tsv for each split."""
    (folder / "qrels").mkdir()
    for name, qrels in splits.items():
        rows = (f"{query}\t{one}\t{grade}\n" for query, of in qrels.items() for one, grade in of.items())
        write_whole(folder / "qrels" / f"{name}.tsv", "query-id\tcorpus-id\tscore\n" + "".join(rows))


def write_tevatron(collection: Collection, folder: Path) -> None:
    """Write corpus.jsonl and a training file SPLIT.jsonl, without negatives, for each split."""
    documents = collection.documents
    _write_corpus(folder, documents, "docid")
    for name, split in collection.splits.items():
        queries, judgments = len(split.queries), len(split.qrels.rows)
        kept, relevant = len(split.qrels.positives.anchors), len(split.qrels.positives.rows)
        if queries > kept or judgments > relevant or split.qrels.grades.max(initial=1) > 1:
            log.warning(
                "split %s keeps %s of %s queries and %s of %s judgments, as grade 1: Tevatron's files have "
                "relevant documents alone; --to beir keeps all",
                *(name, *(f"{count:,}" for count in (kept, queries, relevant, judgments))),
            )
        records = tevatron_records(split, documents, lambda query: ())
        write_lines(folder / f"{name}.jsonl", (one for one in records if one["positive_passages"]))


def tevatron_records(split: Split, documents: Texts, negatives_of: NegativesOf) -> Iterator[dict[str, Any]]:
    """A line of Tevatron's training file for each query of `split`."""

    def passages(rows: Iterable[int]) -> list[dict[str, str]]:
        return [{"docid": documents.ids[row], **documents[row]} for row in rows]

    for row, (id, query) in enumerate(zip(split.queries.ids, _queries(split.queries), strict=True)):
        yield {
            "query_id": id,
            "query": query.pop("text"),
            **query,
            "positive_passages": passages(split.qrels.relevant(row)),
            "negative_passages": passages(negatives_of(row)),
        }


def _write_corpus(folder: Path, documents: Texts, id_key: str) -> None:
    if "text" not in documents.columns:
        raise ValueError(
            f"documents have the fields {', '.join(documents.columns)}, but these formats need a field "
            "`text`; rename one of them"
        )
    if others := [name for name in documents.columns if name not in TITLE_AND_TEXT]:
        log.warning("the fields %s are written, but not read again: title and text alone are", others)
    records = ({id_key: id, **documents[row]} for row, id in enumerate(documents.ids))
    write_lines(folder / "corpus.jsonl", records)


def _queries(queries: Texts) -> Iterator[dict[str, Any]]:
    for row in range(len(queries)):
        yield queries[row] | ({ANSWERS: read_answers(queries, row)} if ANSWERS in queries.columns else {})


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """A line of JSON for each record, with `?` in place of half surrogate pairs, as `whole_file` writes."""
    with whole_file(path) as file:
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        file.writelines(line.encode(errors="replace") for line in lines)
