"""The builder of texts: it checks the entries that an adapter yields, and stores them."""

import json
from collections.abc import Iterable, Iterator
from itertools import batched, chain
from pathlib import Path

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.formats.lines import LineOrigins, is_utf8, shown
from pyserini_ance.data.formats.records import Entry
from pyserini_ance.data.texts import ROWS_PER_BATCH, Strings, Texts, store_texts, texts_of
from pyserini_ance.data.trec import Judgment
from pyserini_ance.storage.progress import progress_bar

DELAY_SECONDS = 2  # a faster reading shows no bar


def judged_only(queries: Iterable[Entry], judgments: list[Judgment]) -> tuple[list[Entry], list[Judgment]]:
    """Select the queries that a split judges, if one file has the queries of all splits."""
    judged = {judgment.query for judgment in judgments}
    return [entry for entry in queries if entry.id in judged], judgments


def build_texts(entries: Iterable[Entry], noun: str, path: Path | None = None) -> Texts:
    """Check all entries and return them as texts.

    noun: what errors call an entry; a `query` may have answers. path: a new Arrow file that texts are written
    to and memory-mapped from, so that few of them are in memory at a time; None keeps them in memory.

    Raises ValueError for an id that is empty, holds blanks or occurs twice, and for a text that is empty or
    holds a NUL.
    """
    entries = iter(entries)
    first = next(entries, None)
    if first is None:
        return Texts([], {})
    fields, origins = list(first.fields), LineOrigins()
    names = [*fields, ANSWERS] if noun == "query" else fields

    def blocks() -> Iterator[list[list[str]]]:
        for block in batched(chain([first], entries), ROWS_PER_BATCH):
            for entry in block:
                _check(entry, noun)
                if entry.fields.keys() != first.fields.keys():
                    problem = f"{noun} {entry.label} has the fields {', '.join(entry.fields)}"
                    expected = f"{', '.join(fields)}, like the entries before it"
                    raise entry.line.error(problem, expected, "add the missing fields, or remove the others")
                origins.add(entry.line)
            columns: list[list[str]] = [[entry.id for entry in block]]
            columns += [[entry.fields[name] for entry in block] for name in fields]
            if noun == "query":
                columns.append([json.dumps(entry.answers or []) for entry in block])
            yield columns
            bar.update(len(block))

    with progress_bar(desc=f"read {noun} texts", unit=" texts", delay=DELAY_SECONDS, leave=False) as bar:
        texts = store_texts(names, blocks(), path) if path else texts_of(names, blocks())
    if noun == "query" and set(texts.columns[ANSWERS]) == {"[]"}:  # no entry has any
        texts = Texts(texts.ids, {name: texts.columns[name] for name in fields})
    if repeat := Strings.of(texts.ids).first_repeat():
        earlier, again = map(origins.line, repeat)
        problem = f"{noun} id {shown(texts.ids[repeat[0]])} was already given in {earlier.place}"
        raise again.error(problem, "each id once", "delete one of the two, or rename it")
    return texts


def is_empty(entry: Entry) -> bool:
    return all(not value or value.isspace() for value in entry.fields.values())


def _check(entry: Entry, noun: str) -> None:
    if entry.id.split() != [entry.id]:
        cure = "rename it in all files (columns of run files are separated by blanks)"
        raise entry.line.error(f"{noun} id {shown(entry.id)}", "an id without blanks", cure)
    if is_empty(entry):
        cure = "give it one, or delete it and its judgments"
        if noun == "document":
            cure += ", or skip it: empty_documents in data.skip (encode: --empty-documents skip)"
        expected = f"a text in {' or '.join(entry.fields)}"
        raise entry.line.error(f"{noun} {entry.label} is empty", expected, cure)
    written = "".join((entry.id, *entry.fields.values(), *(entry.answers or ())))
    if "\0" in written or not is_utf8(written):
        problem = f"{noun} {entry.label} holds a NUL character or half a surrogate pair"
        raise entry.line.error(problem, "text that can be written as UTF-8", "remove the character")
