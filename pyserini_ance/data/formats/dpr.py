"""Open-domain question answering as DPR distributes it: Wikipedia in passages, and questions with answers.

A training file is a JSON list of {"question", "answers", "positive_ctxs", "negative_ctxs",
"hard_negative_ctxs"}. A passage has its id under `passage_id` (NQ) or `psg_id` (TriviaQA). Hard negatives
were retrieved by BM25 and contain no answer.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.format import Format, RawData, read_queries
from pyserini_ance.data.formats.lines import Line, extension, find_file, read_lines, shown
from pyserini_ance.data.formats.records import Entry, Record
from pyserini_ance.data.formats.training_files import DPR, judged_questions
from pyserini_ance.data.trec import Judgment, trec_judgments
from pyserini_ance.recipe.components import Settings

PASSAGE = ["id", "text", "title"]

_STRING = r"""[uU]?(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]")


class Questions(Settings):
    """The files of a split: questions, and optionally TREC qrels.

    `questions` is a training file of DPR (.json), which lists relevant passages, or has one question per
    line: `question TAB answers`, where answers are a Python list (nq-test.qa.csv, Pyserini's
    topics.dpr.nq.test.txt), or {"question", "answer"} (topics.dpr.curated.test.txt). A split without
    judgments can be evaluated by the answers that passages contain (Success@k). Questions are numbered in
    order, from 0, as in Pyserini.
    """

    questions: Path
    """A training file of DPR (.json), or questions with answers, one per line."""
    positives: Path | None = None
    """A training file of DPR whose relevant passages are those of the questions of the same text: NQ's
    (biencoder-nq-train.json) lists 58,880 of the 79,168 training questions (nq-train.qa.csv). Null: none."""
    qrels: Path | None = None
    """A TREC qrels file; null: those of the training file, if it is one."""

    @model_validator(mode="after")
    def check_judgments(self) -> "Questions":
        if self.positives and (self.qrels or extension(self.questions) == ".json"):
            other = "qrels" if self.qrels else "a training file as `questions`"
            raise ValueError(f"`positives` and {other} both give relevant passages; remove one of them")
        return self


def read_questions(path: Path) -> Texts:
    """Read all questions of such a file with their answers, judged or not."""
    return read_queries(judged_questions(path, DPR)[0] if extension(path) == ".json" else _questions(path))


class Dpr(Format):
    """DPR's data sets; `passages` is psgs_w100.tsv: a header and lines `id TAB text TAB title`.

    All positive contexts of a question are relevant. A stage's `positives` selects those that it trains with.

    Source: Karpukhin et al. 2020, arXiv:2004.04906.
    """

    kind: str = "dpr"
    passages: Path
    """The table of passages, psgs_w100.tsv."""
    splits: dict[str, Questions]
    """The files of each split."""
    question_marks: Literal["keep", "remove"] = "keep"
    """Whether a "?" that ends a question stays. The codes of DPR and ANCE remove it (`normalize_question`);
    so must whoever searches with such a model."""

    def raw_data(self) -> RawData:
        passages = find_file(self.passages, "data.passages")
        splits = {name: _judged(files, f"data.splits.{name}") for name, files in self.splits.items()}
        if self.question_marks == "remove":
            for name, (asked, judged) in splits.items():
                texts = ((one, one.fields["text"].strip().removesuffix("?")) for one in asked)
                splits[name] = [one._replace(fields={"text": text}) for one, text in texts], judged
        return RawData(_passages(passages), splits)


def _judged(files: Questions, key: str) -> tuple[Iterable[Entry], Iterable[Judgment] | None]:
    path = find_file(files.questions, f"{key}.questions")
    qrels = find_file(files.qrels, f"{key}.qrels") if files.qrels else None
    if files.positives:
        questions = list(_questions(path))
        return questions, _positives_of(questions, find_file(files.positives, f"{key}.positives"))
    if extension(path) != ".json":
        return _questions(path), trec_judgments(qrels) if qrels else None
    questions, positives = judged_questions(path, DPR)
    return questions, trec_judgments(qrels) if qrels else positives


def _passages(path: Path) -> Iterator[Entry]:
    for index, line in enumerate(read_lines(path)):
        if index == 0 and line.text.replace('"', "").split("\t") == PASSAGE:
            continue
        id, text, title = line.cells(PASSAGE, is_quoted=True)
        yield Entry(line, id, {"title": title, "text": text})


def _positives_of(questions: Iterable[Entry], path: Path) -> Iterator[Judgment]:
    """The judgments of a training file, of all questions of the same text.

    A text that no question has is the id of an unknown query, which `data.skip` decides about.
    """
    ids: dict[str, list[str]] = {}
    for question in questions:
        ids.setdefault(" ".join(question.fields["text"].split()), []).append(question.id)
    listed, judgments = judged_questions(path, DPR)
    texts = {question.id: " ".join(question.fields["text"].split()) for question in listed}
    for judgment in judgments:
        text = texts[judgment.query]
        for id in ids.get(text, [text]):
            yield judgment._replace(query=id)


def _questions(path: Path) -> Iterator[Entry]:
    for index, line in enumerate(read_lines(path)):
        if line.text.startswith("{"):
            yield DPR.read_question(index, Record.of(line))
        else:
            text, answers = line.cells(("question", "answers"), is_quoted=True)
            yield Entry(line, str(index), {"text": text}, literal_list(line, answers))


def literal_list(line: Line, text: str) -> list[str]:
    """Parse a list of strings in Python's syntax, without evaluating code.

    Raises ValueError for anything else, also for strings without commas between them, as NumPy prints them:
    Python would concatenate them into one answer.
    """
    # Strip blanks and tabs only. Python rejects the other characters that str.strip removes next to a list,
    # such as U+001D, which differs from \r in one bit.
    stripped = text.strip(" \t")
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            return ast.literal_eval(stripped if _LIST.fullmatch(stripped) else "")
    except (SyntaxError, ValueError):
        expected = "a Python list of strings such as ['1984']"
        raise line.error(f"answers {shown(text)}", expected, "correct or delete the line") from None
