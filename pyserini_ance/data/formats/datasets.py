"""Tables that Hugging Face's package datasets loads: BEIR's layout on the hub, local files, or folders it saved."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts
from pyserini_ance.data.formats.lines import Line, json_answers, json_id, json_text, shown, whole_number
from pyserini_ance.data.formats.named_rows import EXTENSIONS, is_read, read_named_rows, refuse_missing
from pyserini_ance.data.formats.tables import judged_only
from pyserini_ance.recipe.parts import Settings

_POINT = re.compile(r"\.0*\Z")
SAVED = ("state.json", "dataset_dict.json")  # what save_to_disk leaves in a folder


class Table(Settings):
    """`path` is a name on the hub (with `name`, its configuration, and `revision`), a folder, or a file: parquet, JSON lines, CSV, TSV.

    `split` is the table's own split; a file has but one, whatever its name. A file is read as it stands; in CSV files of
    a hub set or a folder, the package datasets takes columns of digits for numbers: 007 is 7 there.
    """

    path: str
    name: str | None = None
    split: str
    revision: str | None = None


class Documents(Table):
    """Columns: `title: null` where there is none. So also for queries and judgments; `grade: null` makes all judged relevant."""

    split: str = "corpus"
    id: str = "_id"
    text: str = "text"
    title: str | None = "title"


class Queries(Table):
    split: str = "queries"
    id: str = "_id"
    text: str = "text"
    answers: str | None = None


class Judgments(Table):
    """`split: null` is the one that is called as the recipe calls it."""

    split: str | None = None
    query: str = "query-id"
    document: str = "corpus-id"
    grade: str | None = "score"


class Datasets(Format):
    """Three kinds of tables, each with the names of its columns. BEIR/nfcorpus: {path: BeIR/nfcorpus, name: corpus}, {path:
    BeIR/nfcorpus, name: queries}, and as judgments of a split {path: BeIR/nfcorpus-qrels, split: train}.
    """

    kind: str = "datasets"
    documents: Documents
    queries: Queries
    splits: dict[str, Judgments] = Field(min_length=1)

    def parts(self) -> Parts:
        documents = _rows(self.documents, "data.documents", self.documents.id, self.documents.text, self.documents.title)
        queries = _rows(self.queries, "data.queries", self.queries.id, self.queries.text, self.queries.answers)
        entries = [_query(line, row, self.queries) for line, row in queries]
        splits = {}
        for name, table in self.splits.items():
            table = table.model_copy(update={"split": table.split or name})
            rows = _rows(table, f"data.splits.{name}", table.query, table.document, table.grade)
            splits[name] = judged_only(entries, [_judgment(line, row, table) for line, row in rows])
        return Parts((_document(line, row, self.documents) for line, row in documents), splits)


def _rows(table: Table, key: str, *columns: str | None) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Each row, numbered from 1. Raises ValueError, before any is read, for a table that cannot be loaded or lacks a column."""
    from datasets.exceptions import DatasetsError

    path, wanted = Path(table.path).expanduser(), [column for column in columns if column is not None]
    if path.is_file() and is_read(path):
        return read_named_rows(path, wanted, key)
    try:
        loaded = _load(table, path)
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise ValueError(f"{key}: the package datasets cannot load {table!r}: {error}; correct path, name or split") from error
    refuse_missing(wanted, loaded.column_names, table.path, key)
    return _numbered(loaded.select_columns(wanted), Path(table.path, table.name or "", table.split))


def _load(table: Table, path: Path) -> Any:
    import datasets

    if any((path / name).is_file() for name in SAVED):
        saved = datasets.load_from_disk(str(path))
        return saved[table.split] if isinstance(saved, datasets.DatasetDict) else saved
    if path.is_file():
        raise ValueError(f"extension {path.suffix!r}; expected {', '.join(EXTENSIONS)}, texts plain or .gz")
    return datasets.load_dataset(table.path, table.name, split=table.split, revision=table.revision)


def _numbered(rows: Any, where: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    for number, row in enumerate(rows, start=1):
        yield Line(where, number, ""), row


def _document(line: Line, row: dict[str, Any], table: Documents) -> Entry:
    title = {"title": json_text(line, row, table.title)} if table.title else {}
    return Entry(line, json_id(line, row, table.id), {**title, "text": json_text(line, row, table.text)})


def _query(line: Line, row: dict[str, Any], table: Queries) -> Entry:
    answers = json_answers(line, row, table.answers) if table.answers else None
    return Entry(line, json_id(line, row, table.id), {"text": json_text(line, row, table.text)}, answers)


def _judgment(line: Line, row: dict[str, Any], table: Judgments) -> Judgment:
    return Judgment(line, json_id(line, row, table.query), json_id(line, row, table.document), _grade(line, row, table.grade))


def _grade(line: Line, row: dict[str, Any], column: str | None) -> int:
    """Some tables hold grades as strings, others as numbers with a point."""
    if column is None:
        return 1
    value = row.get(column)
    try:
        return whole_number(_POINT.sub("", str(value)))
    except ValueError:
        expected, cure = "a whole number of at most nine digits", "correct the row, or set `grade` to another column, or null"
        raise line.error(f"{column} {shown(value)}", expected, cure) from None
