"""Training files that list passages, and tables of the package datasets, read by the package and by
reference.
"""

import io
import re
from pathlib import Path

import pyarrow.parquet
from data.formats import slow

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.datasets import Datasets
from pyserini_ance.data.formats.flagembedding import FlagEmbedding
from pyserini_ance.data.formats.tevatron import Tevatron

CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\n\r][^,\n\r]*|))([,\n])')


def tevatron(folder: Path) -> Collection:
    return Tevatron(splits={"train": folder / "train.jsonl", "dev": folder / "dev.jsonl"}).read()


def tevatron_slowly(folder: Path) -> dict:
    splits, passages = {}, []
    for name in ("train", "dev"):
        records = slow.records(folder / f"{name}.jsonl")
        judged = [slow.tevatron_question(record) for record in records]
        positives = [
            (question[0], record["positive_passages"])
            for question, record in zip(judged, records, strict=True)
        ]
        splits[name] = (
            judged,
            [(question, slow.id_of(one, "docid"), 1) for question, result in positives for one in result],
        )
        listed = [
            record[key]
            for record in records
            for key in ("positive_passages", "negative_passages")
            if key in record
        ]
        slow.need(all(isinstance(one, list) for one in listed))
        passages += [
            (slow.id_of(one, "docid"), {key: slow.text_of(one, key) for key in ("title", "text")})
            for result in listed
            for one in result
        ]
    return slow.collection(each_once(passages), splits)


def each_once(passages: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    first = dict(reversed(passages))
    slow.need(all(first[id] == fields for id, fields in passages))
    return list({id: (id, fields) for id, fields in passages}.values())


def flagembedding(folder: Path) -> Collection:
    return FlagEmbedding(corpus=folder / "pool.jsonl", splits={"train": folder / "train.jsonl"}).read()


def flagembedding_slowly(folder: Path) -> dict:
    pool = [slow.text_of(record, "text") for record in slow.records(folder / "pool.jsonl")]
    documents = each_once([(slow.id_of_text(text), {"text": text}) for text in pool])
    questions, judgments = [], []
    for position, record in enumerate(slow.records(folder / "train.jsonl")):
        questions.append((str(position), slow.text_of(record, "query"), None))
        slow.need(isinstance(record["pos"], list) and all(isinstance(text, str) for text in record["pos"]))
        judgments += [(str(position), slow.id_of_text(text), 1) for text in record["pos"]]
    return slow.collection(documents, {"train": (questions, judgments)})


def tables(folder: Path) -> Collection:
    """Documents as JSON lines, queries as CSV, judgments as parquet."""
    files = (folder / name for name in ("docs.jsonl", "queries.csv", "qrels.parquet"))
    documents, queries, qrels = ({"path": str(path) if path.exists() else f"{path}.gz"} for path in files)
    return Datasets(documents=documents, queries=queries, splits={"train": qrels}).read()


def tables_slowly(folder: Path) -> dict:
    records = slow.records(folder / "docs.jsonl")
    slow.need(all(key in records[0] for key in ("_id", "text", "title")))
    documents = [
        (slow.id_of(one, "_id"), {key: slow.text_of(one, key) for key in ("title", "text")})
        for one in records
    ]
    queries = [(row["_id"], row["text"], None) for row in csv_rows(folder / "queries.csv")]
    rows = pyarrow.parquet.read_table(io.BytesIO(slow.content(folder / "qrels.parquet"))).to_pylist()
    judgments = [
        (slow.id_of(row, "query-id"), slow.id_of(row, "corpus-id"), grade(row["score"])) for row in rows
    ]
    judged = {query for query, _, _ in judgments}
    return slow.collection(
        documents, {"train": ([query for query in queries if query[0] in judged], judgments)}
    )


def grade(value) -> int:
    slow.need(type(value) in (int, float) and value == int(value))
    return slow.grade(str(int(value)))


def csv_rows(path: Path) -> list[dict]:
    """Cells between commas.

    A quoted cell ends at the next double quote that is not doubled, and may hold line ends.
    """
    lines = [
        line.rstrip(b"\r").decode()
        for line in slow.content(path).removeprefix(slow.BYTE_ORDER_MARK).split(b"\n")
    ]
    slow.need(not any(line.startswith("\ufeff") or "\0" in line for line in lines))
    text, position, rows, cells = "\n".join(lines).removesuffix("\n") + "\n", 0, [], []
    while position < len(text):
        cell = CELL.match(text, position)
        cells.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        position = cell.end()
        if cell[3] == "\n":
            rows.append(cells)
            cells = []
    slow.need(all(len(cell) <= slow.CSV_CHARACTERS for row in rows for cell in row))
    header, *rows = [row for number, row in enumerate(rows) if number == 0 or row != [""]]
    slow.need(len(set(header)) == len(header) and {"_id", "text"} <= set(header))
    return [dict(zip(header, row, strict=True)) for row in rows]
