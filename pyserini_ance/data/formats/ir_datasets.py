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
            splits[name] = (_query(*one) for one in queries), (_judgment(*one) for one in qrels)
        return RawData((_document(*one) for one in documents), splits)


def _records(load: Callable[[str], Any], name: str, kind: str, key: str) -> Iterator[tuple[Line, Any]]:
    """Iterate over the records of a kind (docs, queries, qrels), numbered from 1.

    Raises ValueError, before a record is read, for a data set that does not exist or has no records of this
    kind.
    """
    try:
        dataset = load(name)
        records = getattr(dataset, f"{kind}_iter")
    except (KeyError, AttributeError) as error:
        lacks = f"no data set {name!r}" if isinstance(error, KeyError) else f"no {kind} in {name!r}"
        raise ValueError(f"{key}: ir_datasets has {lacks}; see https://ir-datasets.com") from error
    return _numbered(records, Path("ir_datasets", name, kind))


def _numbered(records: Callable[[], Iterator[Any]], where: Path) -> Iterator[tuple[Line, Any]]:
    number = 0
    try:
        for number, record in enumerate(records(), start=1):  # the call may download the data set
            yield Line(where, number, ""), record
    except (RuntimeError, UnicodeError, EOFError, zlib.error) as error:  # parsers do not report the position
        problem = f"ir_datasets stops here ({type(error).__name__}: {error})"
        cure = "follow its message, or delete its file so that it is downloaded again"
        raise Line(where, number + 1, "").error(problem, "files that it can read", cure) from error


def _document(line: Line, record: Any) -> Entry:
    fields = record._asdict().items()
    strings = {name: value for name, value in fields if isinstance(value, str) and name != "doc_id"}
    if MSMARCO <= strings.keys() <= MSMARCO | {"headings"}:
        strings = {"text" if name == "body" else name: value for name, value in strings.items()}
    if "text" not in strings:
        strings = {"text": _text(line, record)}
    return Entry(line, Record(line, record._asdict()).id("doc_id"), strings)


def _query(line: Line, record: Any) -> Entry:
    id = Record(line, record._asdict()).id("query_id")
    answers = getattr(record, "answers", None)
    return Entry(line, id, {"text": _text(line, record)}, None if answers is None else list(answers))


def _text(line: Line, record: Any) -> str:
    text = getattr(record, "text", None)
    if isinstance(text, str):
        return text
    if not hasattr(record, "default_text"):
        problem = f"a record with the fields {', '.join(record._fields)}"
        cure = "upgrade ir_datasets, or read the data set's files with another kind"
        raise line.error(problem, "`text`, or a default text", cure)
    return record.default_text()


def _judgment(line: Line, record: Any) -> Judgment:
    values = Record(line, record._asdict())
    cure = "use a data set whose grades are whole numbers"
    grade = grade_of(line, record.relevance, "relevance", cure)
    return Judgment(line, values.id("query_id"), values.id("doc_id"), grade)
