"""A collection, rankings and judgments that a caller passes as mappings or records, checked as files are."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, FiniteFloat, PrivateAttr, TypeAdapter, ValidationError

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, shown
from pyserini_ance.data.formats.records import TEXT, TITLE_AND_TEXT, Entry, Record
from pyserini_ance.data.trec import Judgment, Qrels, Run, read_qrels, read_run
from pyserini_ance.recipe.load import read_settings
from pyserini_ance.recipe.splits import check_split_name

IDS = ("_id", "id")

# Records, or a mapping from ids to texts or to records without ids.
Records = Mapping[Any, Any] | Iterable[Any]
Grades = Mapping[str, Mapping[str, int]]
Id = Annotated[Any, AfterValidator(str)]
Grade = Annotated[int, Field(gt=-(10**9), lt=10**9)]  # as those of files


def make_collection(
    documents: Records, queries: Mapping[str, Records], judgments: Mapping[str, Grades], **settings: Any
) -> Collection:
    """Make a collection of data in memory, checked as that of files.

    documents: texts by id, or dicts with `text` and perhaps `title` by id; or records with an `_id` or `id`:
    a list of dicts, a pandas DataFrame, a Dataset. Other keys are ignored. queries: the same for each split,
    such as `{"train": {"q1": "a text"}}`; they may have `answers`, a list of strings. judgments: for each
    split, grades by query and document id, as `evaluate` takes them. Ids are strings or ints, which become
    strings. Queries without judgments are left out. settings: those of a recipe's `data` of every
    kind, such as `relevance_threshold`, and `skip` for what is skipped instead of an error.

    Raises ValueError naming the argument and the record, or the setting.
    """
    given = read_settings(_Given, settings, "make_collection")
    for name, value in (("queries", queries), ("judgments", judgments)):
        if not isinstance(value, Mapping) or not all(isinstance(split, str) for split in value):
            expected = "a mapping from the names of splits, such as {'train': ...}"
            raise ValueError(f"{name} is {shown(value)}; expected {expected}")
    if queries.keys() != judgments.keys():
        raise ValueError(
            f"queries has the splits {shown(list(queries))}, but judgments {shown(list(judgments))}; "
            "expected the same; pass both for each split"
        )
    splits = {}
    for name in queries:
        check_split_name(name)
        argument = f"judgments[{name!r}]"
        judged = [
            Judgment(_line(argument, query), str(query), str(document), grade)
            for query, grades in _checked(argument, dict[Any, dict[Any, Grade]], judgments[name]).items()
            for document, grade in grades.items()
        ]
        splits[name] = _entries(f"queries[{name!r}]", queries[name], TEXT), judged
    given._raw = RawData(_entries("documents", documents, TITLE_AND_TEXT), splits)
    return given.read()


class _Given(Format):
    """The records of a caller; the settings are arguments."""

    kind: str = "make_collection"
    _raw: RawData = PrivateAttr()

    def raw_data(self) -> RawData:
        return self._raw


def _entries(argument: str, given: Any, fields: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of records with an id and a text; only queries have answers."""
    if hasattr(given, "iterrows"):  # a DataFrame: a missing value is NaN, Parquet's lists are arrays
        given = given.reset_index() if given.index.name in IDS else given
        of_python = given.map(lambda value: value.tolist() if hasattr(value, "tolist") else value)
        given = of_python.astype(object).where(given.notna(), None).to_dict("records")
    if isinstance(given, str) or not isinstance(given, Iterable):
        expected = "a mapping from ids to texts, or records: a list of dicts, a DataFrame or a Dataset"
        raise ValueError(f"{argument} is {shown(given)}; expected {expected}")
    numbered: Iterable[tuple[Any, Any]] = enumerate(given)
    if isinstance(given, Mapping):  # a value is a text or a dict of fields
        numbered = (
            (id, {**(value if isinstance(value, Mapping) else {"text": value}), IDS[0]: id})
            for id, value in given.items()
        )
    for key, values in numbered:
        line = _line(argument, key)
        if not isinstance(values, Mapping):
            cure = "pass texts alone as a mapping from ids to texts"
            raise line.error(shown(values), "a dict with `id` and `text`", cure)
        record = Record(line, dict(values))
        yield record.entry(record.id(*IDS), fields, [] if "title" in fields else [ANSWERS])


def _line(argument: str, key: Any) -> Line:
    """The record of an argument, as Python would select it."""
    return Line(Path(f"{argument}[{shown(key)}]"), 0, "")


def run_of(scores: str | Path | Mapping[str, Mapping[str, float]]) -> Run:
    """A TREC run file, or scores by query and document. Raises ValueError, naming both, for a score that is
    not finite."""
    if isinstance(scores, str | Path):
        return read_run(Path(scores))
    return _checked("run", dict[Id, dict[Id, FiniteFloat]], scores)


def qrels_of(grades: str | Path | Mapping[str, Mapping[str, int]]) -> Qrels:
    """A TREC qrels file, or grades by query and document; numpy's whole numbers are such, too.

    Raises ValueError, naming query and document, for a grade that is no whole number of at most nine digits.
    """
    if isinstance(grades, str | Path):
        return read_qrels(Path(grades))
    return _checked("qrels", dict[Id, dict[Id, Grade]], grades)


def check_type(name: str, value: object, types: type | UnionType, expected: str) -> None:
    """Raise ValueError for an argument of another class."""
    if not isinstance(value, types):
        raise ValueError(f"{name} is of class {type(value).__name__}; expected {expected}")


def _checked(name: str, kind: Any, values: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part!r}]" for part in first["loc"])
        expected = "expected a mapping from ids of queries to mappings from ids of documents to numbers"
        raise ValueError(f"{name}{place}: {first['msg']}, got {shown(first['input'])}; {expected}") from None
