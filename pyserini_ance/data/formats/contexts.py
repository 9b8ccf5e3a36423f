"""Training files that list passages with each question: DPR's, Tevatron's, FlagEmbedding's. What they share is here.

A file is one JSON list of records, or one record a line. Each kind says by a Layout what a record holds.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts
from pyserini_ance.data.formats.gather import Origins
from pyserini_ance.data.formats.lines import Line, find_file, is_writable, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.lookup import RowsOfHashes, hash_of


class Layout(NamedTuple):
    """The keys under which a record lists passages, best first, and what a question (with its place from 0) and a passage become.

    `bare`: a passage is listed as its text alone; `passage` is then given {"text": it}.
    """

    name: str
    positives: str
    negatives: str
    question: Callable[[Line, int, dict[str, Any]], Entry]
    passage: Callable[[Line, dict[str, Any]], Entry]
    bare: bool = False


class ListingFormat(Format):
    """`splits` are files of questions with their passages; `corpus` has one passage a line.

    Without it, documents are the passages that the splits list, each once. What is listed as negative is not judged:
    `{kind: run, file: SPLIT}` draws from it.
    """

    corpus: Path | None = None
    splits: dict[str, Path]
    layout: ClassVar[Layout]

    def of_splits(self, names: Iterable[str]) -> Self:
        """Without a corpus, the documents are those of all splits."""
        return super().of_splits(names) if self.corpus else self

    def parts(self) -> Parts:
        corpus = find_file(self.corpus, "data.corpus") if self.corpus else None
        files = {name: find_file(path, f"data.splits.{name}") for name, path in self.splits.items()}
        passages = _corpus(corpus, self.layout) if corpus else _listed(files.values(), self.layout)
        may_repeat = not corpus or self.layout.bare  # what a corpus has ids of, it has once
        splits = {name: judged_questions(path, self.layout) for name, path in files.items()}
        return Parts(_each_once(passages) if may_repeat else passages, splits, [corpus] if corpus else list(files.values()))


def judged_questions(path: Path, layout: Layout) -> tuple[list[Entry], list[Judgment]]:
    """The questions, and as relevant to each its positives, in their order (DPR and ANCE train with the first)."""
    entries, judgments = [], []
    for place, (line, record) in enumerate(read_records(path)):
        question = layout.question(line, place, record)
        entries.append(question)
        judgments += [Judgment(line, question.id, passage.id, 1) for passage in _passages(line, record, layout, layout.positives)]
    return entries, judgments


def listed_negatives(path: Path, layout: Layout) -> Iterator[tuple[str, str]]:
    """Query and document ids of the negatives, in the order in which they are listed. Raises ValueError for what is no id."""
    for place, (line, record) in enumerate(read_records(path)):
        query = layout.question(line, place, record).id
        for passage in _passages(line, record, layout, layout.negatives):
            yield query, checked_id(line, passage.id)


def checked_id(line: Line, id: str) -> str:
    """The id of a passage that is listed. Raises ValueError for what is none."""
    if id.split() != [id] or not is_writable(id):
        raise line.error(f"passage id {shown(id)}", "an id without blanks, which can be written as UTF-8", "correct it")
    return id


def _corpus(path: Path, layout: Layout) -> Iterator[Entry]:
    return (layout.passage(line, record) for line, record in read_records(path))


def _listed(paths: Iterable[Path], layout: Layout) -> Iterator[Entry]:
    for path in paths:
        for line, record in read_records(path):
            yield from _passages(line, record, layout, layout.positives)
            if layout.negatives in record:
                yield from _passages(line, record, layout, layout.negatives)


def _each_once(passages: Iterable[Entry]) -> Iterator[Entry]:
    """Each id where it comes first. Raises ValueError when it comes again with another text.

    Of a passage a hash of its id, one of its fields and where it stood are kept: passages need not be in memory.
    """
    rows, hashes, origins = RowsOfHashes(), array("Q"), Origins()
    for passage in passages:
        hashed = hash_of("\0".join(passage.fields.values()).encode(errors="surrogatepass"))
        row = rows.row_of(hash_of(passage.id.encode(errors="surrogatepass")))
        if row == len(hashes):
            hashes.append(hashed)
            origins.add(passage.line)
            yield passage
        elif hashes[row] != hashed:
            first = origins.line(row)
            found = f"passage {passage.id!r} is {shown(passage.fields)}, but it has another text in {first.path}, line {first.number}"
            raise passage.line.error(found, "one text for an id", "correct one of the two, or name the passages' own file as data.corpus")


def _passages(line: Line, record: dict[str, Any], layout: Layout, key: str) -> list[Entry]:
    passages, kind = record.get(key), str if layout.bare else dict
    if not isinstance(passages, list) or not all(isinstance(passage, kind) for passage in passages):
        expected = f"a list of {'strings' if layout.bare else 'JSON objects'}, one a passage"
        raise line.error(f"{key} {shown(passages)}", expected, f"write `{key}` as {layout.name}'s training files do")
    return [layout.passage(line, {"text": passage} if layout.bare else passage) for passage in passages]
