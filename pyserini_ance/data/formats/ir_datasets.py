"""Data sets by the names that the package ir_datasets gives them; it downloads them, or says how they are to be had."""

import importlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts
from pyserini_ance.data.formats.lines import Line, json_id, shown

MSMARCO = {"url", "title", "body"}  # of its documents, and with `headings` of their second edition; a newspaper's have others beside these
PIP = "python -m pip install ir-datasets"


class IrDatasets(Format):
    """`documents` names a data set (beir/nfcorpus), and `splits` those with the queries and judgments (beir/nfcorpus/train).

    A document has those of its fields that are strings, as ir_datasets names them, but for the `body` of MS MARCO's documents
    (of both editions), which is `text`, as in kind `msmarco_doc`. Where none is called `text`, it has `text` alone, what
    ir_datasets takes as its default text. Queries have `text` by the same rule. MacAvaney et al. 2021, arXiv:2103.02280.
    """

    kind: str = "ir_datasets"
    documents: str
    splits: dict[str, str]

    def parts(self) -> Parts:
        load = _package().load
        documents = _records(load, self.documents, "docs", "data.documents")
        splits = {}
        for name, dataset in self.splits.items():
            queries, qrels = (_records(load, dataset, part, f"data.splits.{name}") for part in ("queries", "qrels"))
            splits[name] = (_query(*one) for one in queries), (_judgment(*one) for one in qrels)
        return Parts((_document(*one) for one in documents), splits)


def _package() -> Any:
    try:
        return importlib.import_module("ir_datasets")
    except ImportError as error:
        raise RuntimeError(f"data.kind is ir_datasets, but the package of that name cannot be imported ({error}); install it: {PIP}") from error


def _records(load: Callable[[str], Any], name: str, part: str, key: str) -> Iterator[tuple[Line, Any]]:
    """Each record, numbered from 1. Raises ValueError, before any is read, for a data set that is not there, or has no such part."""
    try:
        dataset = load(name)
    except KeyError as error:
        raise ValueError(f"{key}: ir_datasets knows no data set {name!r}; names are listed at https://ir-datasets.com") from error
    records = getattr(dataset, f"{part}_iter", None)
    if records is None:
        raise ValueError(f"{key}: {name!r} of ir_datasets has no {part}; name a data set that has, see https://ir-datasets.com/{name}")
    return _numbered(records, Path("ir_datasets", name, part))


def _numbered(records: Callable[[], Iterator[Any]], where: Path) -> Iterator[tuple[Line, Any]]:
    number = 0
    try:
        for number, record in enumerate(records(), start=1):  # the call may download the data set
            yield Line(where, number, ""), record
    except (RuntimeError, UnicodeError, EOFError, zlib.error) as error:  # of its parsers, which do not say where
        found = f"ir_datasets stops here ({type(error).__name__}: {error})"
        cure = "do what it says, or delete its file and let it download it again"
        raise Line(where, number + 1, "").error(found, "files that it can read", cure) from error


def _document(line: Line, record: Any) -> Entry:
    strings = {name: value for name, value in record._asdict().items() if isinstance(value, str) and name != "doc_id"}
    if MSMARCO <= strings.keys() <= MSMARCO | {"headings"}:
        strings = {"text" if name == "body" else name: value for name, value in strings.items()}
    return Entry(line, _id(line, record, "doc_id"), strings if "text" in strings else {"text": _text(line, record)})


def _query(line: Line, record: Any) -> Entry:
    answers = getattr(record, "answers", None)
    return Entry(line, _id(line, record, "query_id"), {"text": _text(line, record)}, None if answers is None else list(answers))


def _id(line: Line, record: Any, key: str) -> str:
    id = json_id(line, record._asdict(), key)
    if id.startswith("\ufeff"):  # ir_datasets leaves it there, where it would make another id
        raise line.error(f"{key} {shown(id)}", "an id without a byte order mark", "remove the mark, EF BB BF, from the start of the file")
    return id


def _text(line: Line, record: Any) -> str:
    text = getattr(record, "text", None)
    if isinstance(text, str):
        return text
    if not hasattr(record, "default_text"):
        cure = "upgrade ir_datasets, or read the data set's files by another kind"
        raise line.error(f"a record with the fields {', '.join(record._fields)}", "`text`, or a default text", cure)
    return record.default_text()


def _judgment(line: Line, record: Any) -> Judgment:
    ids = (_id(line, record, key) for key in ("query_id", "doc_id"))
    if type(record.relevance) is not int:
        raise line.error(f"relevance {shown(record.relevance)}", "a whole number", "name a data set with judgments by whole grades")
    return Judgment(line, *ids, record.relevance)
