"""Tables that Hugging Face's package datasets loads, from the hub or local files and folders."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from pyserini_ance.data.formats.builder import judged_only
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, extension, grade_of
from pyserini_ance.data.formats.records import EXTENSIONS, Record, check_columns, read_named_rows
from pyserini_ance.data.trec import Judgment
from pyserini_ance.recipe.components import Settings

Columns = Mapping[str, str | None]
SAVED = ("state.json", "dataset_dict.json")  # the files of a folder that save_to_disk wrote

# The names of the columns, unless `columns` says otherwise, and those that a table need not have.
DOCUMENTS: Columns = {"id": "_id", "title": "title", "text": "text"}
QUERIES: Columns = {"id": "_id", "text": "text", "answers": None}
JUDGMENTS: Columns = {"query": "query-id", "document": "corpus-id", "grade": "score"}
OPTIONAL = ("title", "answers", "grade")


class Table(Settings):
    """A table that the package datasets loads, or a file, and the names of its columns.

    | table | `columns`, with their defaults |
    |---|---|
    | documents | `id: _id`, `title: title`, `text: text`; `title: null` if there is no title |
    | queries | `id: _id`, `text: text`, `answers: null`: no answers, or a column with lists of strings |
    | judgments | `query: query-id`, `document: corpus-id`, `grade: score`; `grade: null`: all are relevant |

    `path` is a name on the hub (with `name`, its configuration), a folder, or a file:
    parquet, JSON lines, CSV, TSV. `split` is the table's own split; a file has only one, which has no name.
    Values of a file stay as they are written. In CSV files of a hub data set or a folder, the package
    datasets reads columns of digits as numbers: 007 is 7 there.
    """

    path: str
    """A name on the hub, a folder, or a file (parquet, JSON lines, CSV, TSV)."""
    name: str | None = None
    """The configuration of a hub data set."""
    split: str | None = None
    """The table's own split; null: `corpus` of documents, `queries` of queries, and of judgments the
    recipe's name of the split."""
    columns: dict[str, str | None] = {}  # noqa: RUF012  pydantic copies defaults
    """The names of the table's columns, where they differ from the defaults above."""
    names_or_paths = frozenset({"path"})


class Datasets(Format):
    """Tables of documents, queries and judgments, each with the names of its columns.

    For example, NFCorpus has the documents {path: BeIR/nfcorpus, name: corpus}, the queries {path:
    BeIR/nfcorpus, name: queries}, and as judgments of a split {path: BeIR/nfcorpus-qrels, split: train}.
    """

    kind: str = "datasets"
    documents: Table
    """The table of documents."""
    queries: Table
    """The table of queries."""
    splits: dict[str, Table] = Field(min_length=1)
    """The table of judgments of each split."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        tables: dict[str, tuple[Table, Columns]] = {
            "documents": (self.documents, DOCUMENTS),
            "queries": (self.queries, QUERIES),
        }
        tables |= {f"splits.{name}": (table, JUDGMENTS) for name, table in self.splits.items()}
        for key, (table, known) in tables.items():
            for name, column in table.columns.items():
                if name not in known or (column is None and name not in OPTIONAL):
                    expected = f"the names of columns for {', '.join(known)}; correct it"
                    raise ValueError(f"{key}.columns: {name}: {column}; expected {expected}")
        return self

    def files(self) -> list[tuple[str, Path]]:
        """The local files and folders; files of hub data sets are not known."""
        splits = {f"data.splits.{name}": table for name, table in self.splits.items()}
        tables = {"data.documents": self.documents, "data.queries": self.queries, **splits}
        paths = [(f"{key}.path", Path(table.path).expanduser()) for key, table in tables.items()]
        return [(key, path) for key, path in paths if path.exists()]

    @property
    def shows_changes(self) -> bool:
        return len(self.files()) == 2 + len(self.splits)

    def raw_data(self) -> RawData:
        rows, fields = _rows(self.queries, "data.queries", QUERIES, "queries")
        id, answers = fields.pop("id"), fields.pop("answers", None)
        entries = [row.entry(row.id(id), fields, [answers] if answers else []) for row in rows]
        splits = {}
        for name, table in self.splits.items():
            rows, columns = _rows(table, f"data.splits.{name}", JUDGMENTS, name)
            splits[name] = judged_only(entries, [_judgment(row, columns) for row in rows])
        rows, texts = _rows(self.documents, "data.documents", DOCUMENTS, "corpus")
        id = texts.pop("id")
        return RawData((row.entry(row.id(id), texts) for row in rows), splits)


def _rows(table: Table, key: str, defaults: Columns, split: str) -> tuple[Iterator[Record], dict[str, str]]:
    """The rows, numbered from 1, and the columns that are read, by their names in the recipe.

    Raises ValueError, before a row is read, for a table that cannot be loaded or lacks a column.
    """
    from datasets.exceptions import DatasetsError

    columns = {name: column for name, column in {**defaults, **table.columns}.items() if column is not None}
    path = Path(table.path).expanduser()
    named = list(columns.values())
    if path.is_file() and extension(path) in EXTENSIONS:
        return read_named_rows(path, named, key), columns
    table = table.model_copy(update={"split": table.split or split})
    try:
        loaded = _load(table, path)
    except (OSError, ValueError, KeyError, RuntimeError, DatasetsError) as error:
        raise ValueError(
            f"{key}: the package datasets cannot load {table!r}: {error}; correct path, name or split"
        ) from error
    check_columns(named, loaded.column_names, table.path, key)
    where = Path(table.path, table.name or "", table.split or "")
    numbered = enumerate(loaded.select_columns(named), start=1)
    return (Record(Line(where, number, ""), row) for number, row in numbered), columns


def _load(table: Table, path: Path) -> Any:
    import datasets

    if any((path / name).is_file() for name in SAVED):
        saved = datasets.load_from_disk(str(path))
        return saved[table.split] if isinstance(saved, datasets.DatasetDict) else saved
    if path.is_file():
        expected = f"{', '.join(EXTENSIONS)}, text files plain or .gz"
        raise ValueError(f"extension {path.suffix!r}; expected {expected}")
    # The package's own cache knows local files by their times alone.
    mode = "force_redownload" if path.is_dir() else None
    name = str(path.absolute()) if path.is_dir() else table.path
    return datasets.load_dataset(name, table.name, split=table.split, download_mode=mode)


def _judgment(row: Record, columns: Mapping[str, str]) -> Judgment:
    query, document = row.id(columns["query"]), row.id(columns["document"])
    grade = columns.get("grade", "")
    value = row.values.get(grade) if grade else 1
    cure = "correct the row, or set `columns: {grade: ...}` to another column, or null"
    return Judgment(row.line, query, document, grade_of(row.line, value, grade, cure))
