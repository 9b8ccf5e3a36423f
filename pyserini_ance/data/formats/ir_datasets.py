"""Data sets of the package ir_datasets, by name.

The package downloads them or explains how to obtain them.
"""

import importlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, grade_of
from pyserini_ance.data.formats.records import Entry, Record
from pyserini_ance.data.trec import Judgment

# The fields of MS MARCO's documents; their second edition has `headings` as well. News articles have further
# fields.
MSMARCO = {"url", "title", "body"}
DEFAULT = "default_text"  # the text of a record without the field `text`
TEXTS = (str, str | None)  # fields that may be null, which is an empty text
PIP = "python -m pip install ir-datasets"


class IrDatasets(Format):
    """Data sets of ir_datasets.

    `documents` is the name of a data set (beir/nfcorpus), and `splits` maps split names to data sets with
    queries and judgments (beir/nfcorpus/train). A document has the fields of ir_datasets that are strings,
    with their names. The `body` of MS MARCO's documents (both editions) becomes `text`, as in kind
    `msmarco_doc`. If no field is called `text`, the only field is `text`, the default text of ir_datasets.
    Queries have `text` by the same rule.

    Source: MacAvaney et al. 2021, arXiv:2103.02280.
    """

    kind: str = "ir_datasets"
    documents: str
    """The data set with the documents."""
    splits: dict[str, str]
    """The data set with the queries and judgments of each split."""

    def raw_data(self) -> RawData:
        try:
            load = importlib.import_module("ir_datasets").load
        except ImportError as error:
            raise RuntimeError(f"data.kind is ir_datasets, but {error}; install it: {PIP}") from error
        documents = _records(load, self.documents, "docs", "data.documents")
        splits = {}
        for name, dataset in self.splits.items():
            queries, qrels = (
                _records(load, dataset, kind, f"data.splits.{name}") for kind in ("queries", "qrels")
            )
            splits[name] = map(_query, queries), map(_judgment, qrels)
        return RawData(map(_document, documents), splits)


def _records(load: Callable[[str], Any], name: str, kind: str, key: str) -> Iterator[Record]:
    """Iterate over the records of a kind (docs, queries, qrels), numbered from 1.

    Raises ValueError, before a record is read, for a data set that does not exist or has no records of this
    kind.
    """
    try:
        records = getattr(load(name), f"{kind}_iter")
    except (KeyError, AttributeError) as error:
        lacks = f"no data set {name!r}" if isinstance(error, KeyError) else f"no {kind} in {name!r}"
        raise ValueError(f"{key}: ir_datasets has {lacks}; see https://ir-datasets.com") from error
    return _numbered(records, Path("ir_datasets", name, kind))


def _numbered(records: Callable[[], Iterator[Any]], where: Path) -> Iterator[Record]:
    number = 0
    try:
        for number, record in enumerate(records(), start=1):  # the call may download the data set
            values, kinds = record._asdict(), getattr(type(record), "__annotations__", {})
            values |= {name: "" for name, kind in kinds.items() if kind in TEXTS and values[name] is None}
            if not isinstance(values.get("text"), str) and hasattr(record, DEFAULT):
                values[DEFAULT] = record.default_text()
            yield Record(Line(where, number, ""), values)
    except (RuntimeError, OSError, UnicodeError, EOFError, zlib.error) as error:  # which names no position
        problem = f"ir_datasets stops here ({type(error).__name__}: {error})"
        cure = "follow its message, or delete its file so that it is downloaded again"
        raise Line(where, number + 1, "").error(problem, "files that it can read", cure) from error


def _document(record: Record) -> Entry:
    strings = {name: value for name, value in record.values.items() if isinstance(value, str)}
    strings = {name: value for name, value in strings.items() if name not in ("doc_id", DEFAULT)}
    if MSMARCO <= strings.keys() <= MSMARCO | {"headings"}:
        strings = {"text" if name == "body" else name: value for name, value in strings.items()}
    if "text" not in strings:
        strings = {"text": record.text(DEFAULT)}
    return Entry(record.line, record.id("doc_id"), strings)


def _query(record: Record) -> Entry:
    text = record.text(DEFAULT if DEFAULT in record.values else "text")
    answers = record.values.get("answers")
    answers = None if answers is None else list(answers)
    return Entry(record.line, record.id("query_id"), {"text": text}, answers)


def _judgment(record: Record) -> Judgment:
    cure = "use a data set whose grades are whole numbers"
    grade = grade_of(record.line, record.values["relevance"], "relevance", cure)
    return Judgment(record.line, record.id("query_id"), record.id("doc_id"), grade)
