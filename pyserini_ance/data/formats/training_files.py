"""Training files that list passages with each question, as in DPR, Tevatron and FlagEmbedding.

A file is one JSON list of records, or has one record per line. Each format describes its records by a Layout.
"""

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pyserini_ance.data.formats.builder import Entry, json_entry
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import (
    Line,
    LineOrigins,
    find_file,
    json_answers,
    json_id,
    json_text,
    shown,
)
from pyserini_ance.data.formats.records import Row, read_records
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

    def id_of_question(self, line: Line, index: int, record: dict[str, Any]) -> str:
        return json_id(line, record, self.question_id) if self.question_id else str(index)

    def read_question(self, line: Line, index: int, record: dict[str, Any]) -> Entry:
        fields = {"text": json_text(line, record, self.question)}
        answers = json_answers(line, record, *self.answers)
        return Entry(line, self.id_of_question(line, index, record), fields, answers)

    def id_of_passage(self, line: Line, passage: dict[str, Any]) -> str:
        if self.passage_ids:
            return json_id(line, passage, *self.passage_ids)
        return text_id(json_text(line, passage, "text"))

    def read_passage(self, line: Line, passage: dict[str, Any]) -> Entry:
        if self.passage_ids:
            return json_entry(line, passage, self.passage_ids)
        id = self.id_of_passage(line, passage)
        return Entry(line, id, {"text": passage["text"] or ""}, has_id=False)

    def passages(self, line: Line, record: dict[str, Any], key: str) -> list[dict[str, Any]]:
        """The passages that a record lists under `key`, a plain text as {"text": TEXT}.

        Raises ValueError if they are not listed as the format lists them.
        """
        listed, kind = record.get(key), dict if self.passage_ids else str
        if not isinstance(listed, list) or not all(isinstance(passage, kind) for passage in listed):
            expected = f"a list of {'JSON objects' if self.passage_ids else 'strings'}, one per passage"
            cure = f"write `{key}` as {self.name}'s training files do"
            raise line.error(f"{key} {shown(listed)}", expected, cure)
        return listed if self.passage_ids else [{"text": text} for text in listed]


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
    empty: Row = (Line(path, 1, ""), {})
    line, record = next(read_records(path), empty)
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    layouts = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    problem = f"a record with the keys {shown(list(record))}"
    raise line.error(problem, f"one that lists passages under {layouts}", "pass such a file")


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
        records = read_records(corpus) if corpus else ()
        passages: Iterable[Entry] = (self.layout.read_passage(*record) for record in records)
        if self._lists_documents:
            passages = _each_once(chain(passages, _listed(files.values(), self.layout)))
        splits = {name: judged_questions(path, self.layout) for name, path in files.items()}
        return RawData(passages, splits)


def judged_questions(path: Path, layout: Layout) -> tuple[list[Entry], list[Judgment]]:
    """The questions of a file, and their positives as judgments, in order.

    DPR and ANCE train with the first positive.
    """
    entries: list[Entry] = []
    judgments: list[Judgment] = []
    for index, (line, record) in enumerate(read_records(path)):
        question = layout.read_question(line, index, record)
        entries.append(question)
        judgments += [
            Judgment(line, question.id, layout.id_of_passage(line, passage), 1)
            for passage in layout.passages(line, record, layout.positives)
        ]
    return entries, judgments


def listed_hits(path: Path, layout: Layout, keys: Sequence[str], scored: bool = False) -> Iterator[Hit]:
    """The passages listed under `keys`, in order; `scored`: with scores, where a record has the key."""
    for index, (line, record) in enumerate(read_records(path)):
        query = layout.id_of_question(line, index, record)
        for key in keys:
            if scored and key not in record:
                continue
            passages = layout.passages(line, record, key)
            scores = _scores(line, record, layout, key) if scored else [0.0] * len(passages)
            for passage, score in zip(passages, scores, strict=True):
                yield line.number, query, layout.id_of_passage(line, passage), score


def _scores(line: Line, record: dict[str, Any], layout: Layout, key: str) -> list[float]:
    """The scores of the passages that a record lists under `key`."""
    name, scores = f"{key}_scores", record.get(f"{key}_scores")
    if layout.passage_ids:
        name, scores = f"{key}: score", [passage.get("score") for passage in record[key]]
    if (
        not isinstance(scores, list)
        or len(scores) != len(record[key])
        or not all(type(score) in (int, float) and math.isfinite(score) for score in scores)
    ):
        expected = f"a finite number for each of its {len(record[key])} passages"
        raise line.error(f"{name} {shown(scores)}", expected, "add the scores, or pass a TREC run")
    return [float(score) for score in scores]


def _listed(paths: Iterable[Path], layout: Layout) -> Iterator[Entry]:
    for path in paths:
        for line, record in read_records(path):
            for key in (layout.positives, *([layout.negatives] if layout.negatives in record else [])):
                for passage in layout.passages(line, record, key):
                    yield layout.read_passage(line, passage)


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
