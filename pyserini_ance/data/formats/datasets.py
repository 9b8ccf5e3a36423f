"""Tables that Hugging Face's package datasets loads, from the hub or local files and folders."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from pyserini_ance.data.formats.builder import Entry, judged_only
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, grade_of, json_answers, json_id, json_text
from pyserini_ance.data.formats.records import EXTENSIONS, check_columns, is_supported, read_named_rows
from pyserini_ance.data.trec import Judgment
from pyserini_ance.recipe.components import Settings

_POINT = re.compile(r"\.0*\Z")
SAVED = ("state.json", "dataset_dict.json")  # the files of a folder that save_to_disk wrote


class Table(Settings):
    """A table that the package datasets loads, or a file.

    `path` is a name on the hub (with `name`, its configuration), a folder, or a file:
    parquet, JSON lines, CSV, TSV. `split` is the table's own split; a file has only one, which has no name.
    Values of a file stay as they are written. In CSV files of a hub data set or a folder, the package
    datasets reads columns of digits as numbers: 007 is 7 there.
    """

    path: str
    """A name on the hub, a folder, or a file (parquet, JSON lines, CSV, TSV)."""
    name: str | None = None
    """The configuration of a hub data set."""
    split: str | None
    """The table's own split; by default `corpus` of documents, `queries` of queries, and of judgments the
    recipe's name of the split."""

    @property
    def names_or_paths(self) -> frozenset[str]:
        return frozenset({"path"})


class Texts(Table):
    """A table of documents or queries, with its columns."""

    id: str = "_id"
    """The column of ids."""
    text: str = "text"
    """The column of texts."""


class Documents(Texts):
    """The table of documents; `title: null` if there is no title."""

    split: str = "corpus"
    title: str | None = "title"
    """The column of titles; null: no titles."""


class Queries(Texts):
    """The table of queries; `answers` is a column with lists of strings."""

    split: str = "queries"
    answers: str | None = None
    """The column with lists of answers; null: no answers."""


class Judgments(Table):
    """The table of judgments and its columns.

    `split: null` is the table's split with the recipe's name of the split. `grade: null` makes all judged
    pairs relevant.
    """

    split: str | None = None
    """The table's own split; null: the recipe's name of the split."""
    query: str = "query-id"
    """The column of query ids."""
    document: str = "corpus-id"
    """The column of document ids."""
    grade: str | None = "score"
    """The column of grades; null: all judged pairs are relevant."""


class Datasets(Format):
    """Tables of documents, queries and judgments, each with the names of its columns.

    For example, NFCorpus has the documents {path: BeIR/nfcorpus, name: corpus}, the queries {path:
    BeIR/nfcorpus, name: queries}, and as judgments of a split {path: BeIR/nfcorpus-qrels, split: train}.
    """

    kind: str = "datasets"
    documents: Documents
    """The table of documents."""
    queries: Queries
    """The table of queries."""
    splits: dict[str, Judgments] = Field(min_length=1)
    """The table of judgments of each split."""

    def files(self) -> list[tuple[str, Path]]:
        """The local files, and the folders with those inside them; files of hub data sets are not known."""
        splits = {f"data.splits.{name}": table for name, table in self.splits.items()}
        tables = {"data.documents": self.documents, "data.queries": self.queries, **splits}
        paths = [(f"{key}.path", Path(table.path).expanduser()) for key, table in tables.items()]
        folders = ((key, folder) for key, path in paths for folder in sorted(path.glob("*/**/")))
        return [(key, path) for key, path in paths if path.exists()] + [*folders]

    def raw_data(self) -> RawData:
        documents, queries = self.documents, self.queries
        rows = _rows(queries, "data.queries", queries.id, queries.text, queries.answers)
        entries = [_query(line, row, queries) for line, row in rows]
        splits = {}
        for name, table in self.splits.items():
            table = table.model_copy(update={"split": table.split or name})
            rows = _rows(table, f"data.splits.{name}", table.query, table.document, table.grade)
            splits[name] = judged_only(entries, [_judgment(line, row, table) for line, row in rows])
        rows = _rows(documents, "data.documents", documents.id, documents.text, documents.title)
        return RawData((_document(line, row, documents) for line, row in rows), splits)


def _rows(table: Table, key: str, *columns: str | None) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Iterate over the rows, numbered from 1.

    Raises ValueError, before a row is read, for a table that cannot be loaded or lacks a column.
    """
    from datasets.exceptions import DatasetsError

    path, named = Path(table.path).expanduser(), [column for column in columns if column is not None]
    if path.is_file() and is_supported(path):
        return read_named_rows(path, named, key)
    try:
        loaded = _load(table, path)
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise ValueError(
            f"{key}: the package datasets cannot load {table!r}: {error}; correct path, name or split"
        ) from error
    check_columns(named, loaded.column_names, table.path, key)
    where = Path(table.path, table.name or "", table.split or "")
    numbered = enumerate(loaded.select_columns(named), start=1)
    return ((Line(where, number, ""), row) for number, row in numbered)


def _load(table: Table, path: Path) -> Any:
    import datasets

    if any((path / name).is_file() for name in SAVED):
        saved = datasets.load_from_disk(str(path))
        return saved[table.split] if isinstance(saved, datasets.DatasetDict) else saved
    if path.is_file():
        expected = f"{', '.join(EXTENSIONS)}, text files plain or .gz"
        raise ValueError(f"extension {path.suffix!r}; expected {expected}")
    return datasets.load_dataset(table.path, table.name, split=table.split)


def _document(line: Line, row: dict[str, Any], table: Documents) -> Entry:
    title = {"title": json_text(line, row, table.title)} if table.title else {}
    return Entry(line, json_id(line, row, table.id), {**title, "text": json_text(line, row, table.text)})


def _query(line: Line, row: dict[str, Any], table: Queries) -> Entry:
    answers = json_answers(line, row, table.answers) if table.answers else None
    return Entry(line, json_id(line, row, table.id), {"text": json_text(line, row, table.text)}, answers)


def _judgment(line: Line, row: dict[str, Any], table: Judgments) -> Judgment:
    query, document = json_id(line, row, table.query), json_id(line, row, table.document)
    # Some tables write grades as strings, and others as numbers with a decimal point.
    value = 1 if table.grade is None else _POINT.sub("", str(row.get(table.grade)))
    cure = "correct the row, or set `grade` to another column, or null"
    return Judgment(line, query, document, grade_of(line, value, f"{table.grade}", cure))
