"""The builder of texts: it checks the entries and judgments that an adapter yields, and stores texts.

What the recipe allows is left out and counted: documents without text, judgments of unknown ids.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import batched, islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import PLURALS, Side, Texts
from pyserini_ance.data.collection_cache import TextsWriter
from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, Line, LineOrigins, is_writable, shown
from pyserini_ance.data.formats.text_files import find_file, read_lines
from pyserini_ance.data.strings import ROWS_PER_BATCH, Strings
from pyserini_ance.data.trec import Judgment as Judgment
from pyserini_ance.data.trec import trec_judgments
from pyserini_ance.recipe.components import Settings
from pyserini_ance.storage.progress import progress_bar

DELAY_SECONDS = 2  # a faster reading shows no bar
DOCUMENTS = "documents without text"
JUDGMENTS = "judgments of documents without text"
SHOWN = 5
LONGEST_NUMBER = 20  # digits of an id that may have lost leading zeros
# Of the judgments: so many are skipped with a warning that the ids of two files may differ.
SUSPICIOUS_SHARE = 0.1

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A document or query as it was read.

    All entries of one kind have the same fields; questions have `answers`.
    """

    line: Line
    id: str
    fields: dict[str, str]
    answers: list[str] | None = None


def build_texts(
    entries: Iterable[Entry],
    noun: str,
    path: Path | None = None,
    check: Callable[[Texts, LineOrigins], None] = lambda texts, origins: None,
    empty_cure: str = "give it one, or delete it and its judgments",
) -> Texts:
    """Check all entries and return them as texts.

    noun: what errors call an entry. path: a new Arrow file that documents are written to and memory-mapped
    from, so that few of them are in memory at a time; None keeps them in memory. check: called with all texts
    and their lines at the end. empty_cure: what errors say to do about an entry without text.

    Raises ValueError for an id that is empty, holds blanks or occurs twice, and for a text that is empty or
    holds a NUL.
    """
    fields: dict[str, str] = {}
    origins = LineOrigins()
    blocks: list[list[pa.Array]] = []  # in memory
    writer: TextsWriter | None = None
    with (
        ExitStack() as stack,
        progress_bar(desc=f"read {noun} texts", unit=" texts", delay=DELAY_SECONDS, leave=False) as bar,
    ):
        for block in batched(entries, ROWS_PER_BATCH):
            for entry in block:
                _check(entry, noun, empty_cure)
                fields = fields or entry.fields
                if entry.fields.keys() != fields.keys():
                    problem = f"{noun} {shown(entry.id)} has the fields {', '.join(entry.fields)}"
                    expected = f"{', '.join(fields)}, like the entries before it"
                    raise entry.line.error(problem, expected, "add the missing fields, or remove the others")
                origins.add(entry.line)
            columns = [[entry.id for entry in block]]
            columns += [[entry.fields[name] for entry in block] for name in fields]
            if path:
                writer = writer or stack.enter_context(closing(TextsWriter(path, list(fields))))
                writer.append(columns)
            else:
                answers = [None if entry.answers is None else json.dumps(entry.answers) for entry in block]
                blocks.append([pa.array(values, pa.large_string()) for values in (*columns, answers)])
            bar.update(len(block))
        texts = writer.finish() if writer else _in_memory(list(fields), blocks)
    if isinstance(texts.ids, Strings) and (repeat := texts.ids.first_repeat()):
        raise repeated_id(noun, texts.ids[repeat[0]], *map(origins.line, repeat))
    check(texts, origins)
    return texts


def _in_memory(fields: Sequence[str], blocks: Sequence[Sequence[pa.Array]]) -> Texts:
    """Texts of blocks of ids, fields and answers; without the answers if no entry has any."""
    if not blocks:
        return Texts([], {})
    ids, *columns, answers = map(pa.chunked_array, zip(*blocks, strict=True))
    texts = {name: Strings(values) for name, values in zip(fields, columns, strict=True)}
    if answers.null_count < len(answers):
        texts[ANSWERS] = Strings(answers.fill_null("[]"))
    return Texts(Strings(ids), texts)


def repeated_id(noun: str, id: str, first: Line, again: Line) -> ValueError:
    """The error to raise for an id that is given in two lines."""
    problem = f"{noun} id {shown(id)} was already given in {first.place}"
    return again.error(problem, "each id once", "delete one of the two, or rename it")


def is_empty(entry: Entry) -> bool:
    """Whether no field has more than blanks."""
    return all(not value or value.isspace() for value in entry.fields.values())


def _check(entry: Entry, noun: str, empty_cure: str) -> None:
    if entry.id.split() != [entry.id]:
        cure = "rename it in all files (columns of run files are separated by blanks)"
        raise entry.line.error(f"{noun} id {shown(entry.id)}", "an id without blanks", cure)
    values = entry.fields.values()
    if is_empty(entry):
        expected = f"a text in {' or '.join(entry.fields)}"
        raise entry.line.error(f"{noun} {shown(entry.id)} is empty", expected, empty_cure)
    if not all(map(is_writable, (entry.id, *values, *(entry.answers or ())))):
        problem = f"{noun} {shown(entry.id)} holds a NUL character or half a surrogate pair"
        raise entry.line.error(problem, "text that can be written as UTF-8", "remove the character")


class EmptyDocuments:
    """Leaves out documents without text and the judgments of them, and counts both.

    In memory are the ids of these documents and their lines. Consume the documents before the judgments.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._judgments: Counter[str] = Counter()

    def leave_out(self, documents: Iterable[Entry]) -> Iterator[Entry]:
        """Iterate over the documents that have a text. Raises ValueError for a repeated id of the others."""
        for document in documents:
            if is_empty(document):
                if first := self.lines.get(document.id):
                    raise repeated_id("document", document.id, first, document.line)
                self.lines[document.id] = document.line._replace(text="")
            else:
                yield document

    def check(self, documents: Texts, origins: LineOrigins) -> None:
        """Raise ValueError if one of `documents`, which have a text, has the id of one without."""
        for (id, line), row in zip(self.lines.items(), documents.rows_of(self.lines).tolist(), strict=True):
            if row >= 0:
                other = origins.line(row)
                problem = f"document {shown(id)} is empty, but has a text in {other.place}"
                raise line.error(problem, "each id once", "delete one of the two, or rename it")

    def leave_out_judgments(self, split: str, judgments: Iterable[Judgment]) -> Iterator[Judgment]:
        """Iterate over a split's judgments of the other documents."""
        for judgment in judgments:
            if judgment.document in self.lines:
                self._judgments[split] += 1
            else:
                yield judgment

    def counts(self) -> dict[str, int]:
        """What was left out, by description; the documents first."""
        documents = {DOCUMENTS: len(self.lines)} if self.lines else {}
        return documents | {f"{split} {JUDGMENTS}": count for split, count in self._judgments.items()}


class UnknownIds:
    """The judgments of one split whose query or document does not exist; the first few are kept."""

    def __init__(self, split: str, queries: Texts, documents: Texts) -> None:
        self.count = 0
        self._split = split
        self._texts: dict[Side, Texts] = {"query": queries, "document": documents}
        self._counts: dict[Side, int] = {"query": 0, "document": 0}
        self._ids: dict[Side, list[str]] = {"query": [], "document": []}  # the first, each once
        self._first: list[Judgment] = []

    def add(self, judgment: Judgment, unknown_query: bool, unknown_document: bool) -> None:
        """Count a judgment whose query, or document, or both do not exist."""
        self.count += 1
        if len(self._first) < SHOWN:
            self._first.append(judgment)
        unknown: dict[Side, bool] = {"query": unknown_query, "document": unknown_document}
        for side, id in _ids(judgment):
            if unknown[side]:
                self._counts[side] += 1
                if len(self._ids[side]) <= SHOWN and id not in self._ids[side]:
                    self._ids[side].append(id)

    def refuse(self, skip: str) -> None:
        """Raise ValueError, with the number and the first ids of each side, if there are any.

        skip: the setting that ignores such judgments.
        """
        if not self.count:
            return
        examples = ", ".join(
            f"{j.line.short_place} {f'{j.query} {j.document}'[:SHOWN_CHARACTERS]}" for j in self._first
        )
        raise ValueError(
            f"{self.count} judgments of split {self._split!r} refer to a query or a document that does not "
            f"exist; {self._by_side()}; the first: {examples}; {self._lost_zeros()}correct the ids, add what "
            f"is missing, or skip such judgments with {skip}"
        )

    def warn(self, read: int) -> None:
        """Log a warning if they are a large share of the judgments that were `read`: skipping them may hide
        that the ids of two files differ."""
        if self.count > SUSPICIOUS_SHARE * read:
            log.warning(
                "split %s: %d of its %d judgments are skipped; %s. Are the ids of these files the same ones? "
                "If they are not, those judgments that fit do so by chance",
                self._split,
                self.count,
                read,
                self._by_side(),
            )

    def _by_side(self) -> str:
        return "; ".join(
            f"{count} name an unknown {side} ({_listed(self._ids[side])}), "
            f"the {PLURALS[side]} are {_listed(self._texts[side].ids)}"
            for side, count in self._counts.items()
            if count
        )

    def _lost_zeros(self) -> str:
        """A hint if an id exists with other leading zeros: a JSON number has none, and pandas drops them."""
        for judgment in self._first:
            for side, id in _ids(judgment):
                others = [id, *(id.lstrip("0").zfill(length) for length in range(1, LONGEST_NUMBER))]
                rows = self._texts[side].rows_of(others)
                if id.isdecimal() and rows[0] < 0 and (rows >= 0).any():
                    other = others[int((rows >= 0).argmax())]
                    return (
                        f"{side} {other!r} exists: was {id!r} written as a number, without its leading "
                        "zeros? Write ids as strings in all files; or "
                    )
        return ""


def _ids(judgment: Judgment) -> tuple[tuple[Side, str], ...]:
    return ("query", judgment.query), ("document", judgment.document)


def _listed(ids: Iterable[str]) -> str:
    """The first ids, shortened, as `1, 2, 4, 8, 9, ...`."""
    first = list(islice(ids, SHOWN + 1))
    shown = [id if len(id) <= SHOWN_CHARACTERS // 2 else f"{id[: SHOWN_CHARACTERS // 2]}..." for id in first]
    return ", ".join([*shown[:SHOWN], *(["..."] if len(first) > SHOWN else [])]) or "none"


class TrecQueries(Settings):
    """The files of a split: queries as `qid TAB text`, and TREC qrels."""

    queries: Path
    """The table of queries."""
    qrels: Path
    """The TREC qrels file."""


def trec_splits(splits: Mapping[str, TrecQueries]) -> dict[str, tuple[Iterator[Entry], Iterator[Judgment]]]:
    """The queries and judgments of each split.

    Raises FileNotFoundError with the key of a missing file, before anything is read.
    """
    contents = {}
    for name, files in splits.items():
        queries = find_file(files.queries, f"data.splits.{name}.queries")
        qrels = find_file(files.qrels, f"data.splits.{name}.qrels")
        contents[name] = tsv_entries(queries), trec_judgments(qrels)
    return contents


def tsv_entries(path: Path) -> Iterator[Entry]:
    """Entries of a table without header: id and text, separated by one tab."""
    for line in read_lines(path):
        id, text = line.cells(("id", "text"))  # which may be empty is the same for all formats
        yield Entry(line, id, {"text": text})


def judged_only(queries: Iterable[Entry], judgments: list[Judgment]) -> tuple[list[Entry], list[Judgment]]:
    """Select the queries that a split judges, if one file has the queries of all splits."""
    judged = {judgment.query for judgment in judgments}
    return [entry for entry in queries if entry.id in judged], judgments
