"""Training files that list passages with each question, as in DPR, Tevatron and FlagEmbedding.

A file is one JSON list of records, or has one record per line. Each format describes its records by a Layout.
"""

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, LineOrigins, find_file, shown
from pyserini_ance.data.formats.records import TEXT, TITLE_AND_TEXT, Entry, Record, read_records
from pyserini_ance.data.texts import Texts
from pyserini_ance.data.trec import Hit, Judgment


class Layout(NamedTuple):
    """The keys of a record.

    positives, negatives: the keys under which a record lists passages, best first. question: the key of its
    text. question_id: the key of its id; "": its id is its index in the file, from 0. answers, passage_ids:
    keys of the answers and of a passage's id, of which a record has one. Without passage_ids, passages are
    plain texts, and their ids are made of these. The texts of passages that are only ranked or judged are not
    read.
    """

    name: str
    positives: str
    negatives: str
    question: str
    question_id: str = ""
    answers: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()

    def id_of_question(self, index: int, record: Record) -> str:
        return record.id(self.question_id) if self.question_id else str(index)

    def read_question(self, index: int, record: Record) -> Entry:
        return record.entry(self.id_of_question(index, record), {"text": self.question}, self.answers)

    def id_of_passage(self, passage: Record) -> str:
        return passage.id(*self.passage_ids) if self.passage_ids else text_id(passage.text("text"))

    def read_passage(self, passage: Record) -> Entry:
        entry = passage.entry(self.id_of_passage(passage), TITLE_AND_TEXT if self.passage_ids else TEXT)
        return entry._replace(has_id=bool(self.passage_ids))

    def passages(self, record: Record, key: str) -> list[Record]:
        """The passages that a record lists under `key`, a plain text under the key `text`.

        Raises ValueError if they are not listed as the format lists them.
        """
        listed, kind = record.values.get(key), dict if self.passage_ids else str
        if not isinstance(listed, list) or not all(isinstance(passage, kind) for passage in listed):
            expected = f"a list of {'JSON objects' if self.passage_ids else 'strings'}, one per passage"
            cure = f"write `{key}` as {self.name}'s training files do"
            raise record.line.error(f"{key} {shown(listed)}", expected, cure)
        return [Record(record.line, one if self.passage_ids else {"text": one}) for one in listed]

    def listed(self, record: Record) -> list[Entry]:
        """All passages that a record lists; it may have no negatives."""
        keys = [self.positives, *([self.negatives] if self.negatives in record.values else [])]
        return [self.read_passage(passage) for key in keys for passage in self.passages(record, key)]


DPR = Layout(
    "DPR",
    "positive_ctxs",
    "hard_negative_ctxs",
    "question",
    answers=("answers", "answer"),
    passage_ids=("passage_id", "psg_id"),
)
TEVATRON = Layout(
    "Tevatron",
    "positive_passages",
    "negative_passages",
    "query",
    question_id="query_id",
    answers=("answers",),
    passage_ids=("docid",),
)
FLAGEMBEDDING = Layout("FlagEmbedding", "pos", "neg", "query")
LAYOUTS = (DPR, TEVATRON, FLAGEMBEDDING)


def text_id(text: str) -> str:
    """The first 16 hexadecimal digits of the sha256 of the text in UTF-8; blanks count."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def layout_of(path: Path) -> Layout:
    """The layout of a training file. Raises ValueError if its first record has no known key."""
    first = next(read_records(path), Record(Line(path, 1, ""), {}))
    for layout in LAYOUTS:
        if layout.positives in first.values:
            return layout
    layouts = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    problem = f"a record with the keys {shown(list(first.values))}"
    raise first.line.error(problem, f"one that lists passages under {layouts}", "pass such a file")


class TrainingFileFormat(Format):
    """Training files, one for each split; `corpus`, if set, has one passage per line.

    Without a corpus, the documents are the passages that the splits list, each once. In a format without ids
    they also join those of the corpus. Listed negatives are not judged; the source
    `{kind: ranking, file: FILE}` draws from them.
    """

    corpus: Path | None = None
    """A file with one passage per line; null: the documents are the passages that the splits list."""
    splits: dict[str, Path]
    """The training file of each split."""
    layout: ClassVar[Layout]

    def of_splits(self, names: Iterable[str]) -> Self:
        """Restrict the data to these splits; all are read if the documents are passages that they list."""
        return self if self._lists_documents else super().of_splits(names)

    @property
    def _lists_documents(self) -> bool:
        return not self.corpus or not self.layout.passage_ids

    def raw_data(self) -> RawData:
        corpus = find_file(self.corpus, "data.corpus") if self.corpus else None
        files = {name: find_file(path, f"data.splits.{name}") for name, path in self.splits.items()}
        passages: Iterable[Entry] = map(self.layout.read_passage, read_records(corpus) if corpus else ())
        if self._lists_documents:
            records = chain.from_iterable(map(read_records, files.values()))
            passages = _each_once(chain(passages, chain.from_iterable(map(self.layout.listed, records))))
        splits = {name: judged_questions(path, self.layout) for name, path in files.items()}
        return RawData(passages, splits)


def judged_questions(path: Path, layout: Layout) -> tuple[list[Entry], list[Judgment]]:
    """The questions of a file, and their positives as judgments, in order.

    DPR and ANCE train with the first positive.
    """
    entries: list[Entry] = []
    judgments: list[Judgment] = []
    for index, record in enumerate(read_records(path)):
        question = layout.read_question(index, record)
        entries.append(question)
        judgments += [
            Judgment(record.line, question.id, layout.id_of_passage(passage), 1)
            for passage in layout.passages(record, layout.positives)
        ]
    return entries, judgments


def listed_hits(
    path: Path, layout: Layout, keys: Sequence[str], queries: Texts, scored: bool = False
) -> Iterator[Hit]:
    """The passages listed under `keys`, in order; `scored`: with scores, where a record has the key.

    A question without an id is each of the `queries` with its text, of which the data may leave out a "?" at
    its end; in the file that they were read from, only the one of its index.
    """
    by_text: dict[str, list[str]] = {}
    for id, text in () if layout.question_id else zip(queries.ids, queries.columns["text"], strict=True):
        by_text.setdefault(text, []).append(id)
    for index, record in enumerate(read_records(path)):
        ids = [layout.id_of_question(index, record)]
        if not layout.question_id:
            text = " ".join(record.text(layout.question).split())
            same = by_text.get(text) or by_text.get(text.removesuffix("?").rstrip(), [])
            ids = ids if ids[0] in same else same
        for key in keys:
            if scored and key not in record.values:
                continue
            passages = layout.passages(record, key)
            scores = _scores(record, layout, key) if scored else [0.0] * len(passages)
            for query, (passage, score) in product(ids, zip(passages, scores, strict=True)):
                yield record.line.number, query, layout.id_of_passage(passage), score


def _scores(record: Record, layout: Layout, key: str) -> list[float]:
    """The scores of the passages that a record lists under `key`."""
    listed, name = record.values[key], f"{key}_scores"
    scores = record.values.get(name)
    if layout.passage_ids:
        name, scores = f"{key}: score", [passage.get("score") for passage in listed]
    if (
        not isinstance(scores, list)
        or len(scores) != len(listed)
        or not all(type(score) in (int, float) and math.isfinite(score) for score in scores)
    ):
        expected = f"a finite number for each of its {len(listed)} passages"
        raise record.line.error(f"{name} {shown(scores)}", expected, "add the scores, or pass a TREC run")
    return [float(score) for score in scores]


def _each_once(passages: Iterable[Entry]) -> Iterator[Entry]:
    """Yield each passage at its first occurrence. Raises ValueError if an id occurs again with another text.

    In memory are each id, a hash of its fields and its position; passages need not be in memory.
    """
    rows: dict[str, int] = {}
    hashes, origins = array("q"), LineOrigins()
    for passage in passages:
        hashed, row = hash(tuple(passage.fields.values())), rows.setdefault(passage.id, len(rows))
        if row == len(hashes):
            hashes.append(hashed)
            origins.add(passage.line)
            yield passage
        elif hashes[row] != hashed:
            first = origins.line(row)
            problem = (
                f"passage {passage.id!r} is {shown(passage.fields)}, but it has another text in {first.place}"
            )
            cure = "correct one of the two, or set data.corpus to the file of the passages"
            raise passage.line.error(problem, "one text for an id", cure)


class Tevatron(TrainingFileFormat):
    """Tevatron's training files and, optionally, its corpus.

    A record has `query_id`, `query`, optionally `answers`, and two lists of passages {"docid", "title",
    "text"}. A line of `corpus` is such a passage.

    Source: Gao et al. 2022, arXiv:2203.05765.
    """

    kind: str = "tevatron"
    layout = TEVATRON


class FlagEmbedding(TrainingFileFormat):
    """FlagEmbedding's training files and, optionally, its candidate pool.

    The files have no ids. The id of a query is its index in its file, from 0. The id of a document is derived
    from its text (`text_id`), so that equal texts are one document across files.

    A record has `query`, and the lists of texts `pos` and optionally `neg`. A line of `corpus` (the candidate
    pool) is {"text"}; the documents are those of the pool, and the listed texts that it lacks. Scores, ids
    and prompts are ignored; set prompts by `encoder.tokenization.query.template`.

    Source: Xiao et al. 2023, arXiv:2309.07597.
    """

    kind: str = "flagembedding"
    layout = FLAGEMBEDDING
