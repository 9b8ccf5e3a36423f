"""Open-domain question answering as DPR distributes it: Wikipedia in passages, questions with answers.

A training file is a JSON list of {"question", "answers", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs"}; a passage has
its id under `passage_id` (NQ) or `psg_id` (TriviaQA). Hard negatives were found by BM25 and hold no answer.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.contexts import Layout, judged_questions
from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts, read_queries
from pyserini_ance.data.formats.lines import Line, extension, find_file, json_answers, json_id, json_text, read_lines, shown
from pyserini_ance.data.formats.tables import trec_judgments
from pyserini_ance.recipe.parts import Settings

PASSAGE = ["id", "text", "title"]

_STRING = r"""[uU]?(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]")


def _question(line: Line, place: int, record: dict[str, Any]) -> Entry:
    answers = json_answers(line, record, "answers", "answer")
    if answers is None:
        raise line.error(f"a question without answers: {shown(record)}", "a list of strings under answers or answer", "give it one")
    return Entry(line, str(place), {"text": json_text(line, record, "question")}, answers)


def _passage(line: Line, record: dict[str, Any]) -> Entry:
    return Entry(line, json_id(line, record, "passage_id", "psg_id"), {key: json_text(line, record, key) for key in ("title", "text")})


LAYOUT = Layout("DPR", "positive_ctxs", "hard_negative_ctxs", _question, _passage)


class Questions(Settings):
    """A split: DPR's training file (.json), which says what is relevant; or a question a line, and TREC qrels, if there are any.
    Without, it can be tested on by the answers that passages hold (Success@k).

    A line is `question TAB answers`, a Python list (nq-test.qa.csv, Pyserini's topics.dpr.nq.test.txt), or {"question",
    "answer"} (topics.dpr.curated.test.txt). Questions are numbered in their order, from 0, as in Pyserini.
    """

    questions: Path
    qrels: Path | None = None


def read_questions(path: Path) -> Texts:
    """All questions of such a file with their answers, whether or not anything is known to be relevant to them."""
    return read_queries(judged_questions(path, LAYOUT)[0] if extension(path) == ".json" else _questions(path))


class Dpr(Format):
    """`passages` is psgs_w100.tsv: `id TAB text TAB title` and a header. Karpukhin et al. 2020, arXiv:2004.04906.

    All positive contexts of a question are relevant; with which of them a stage trains, its `positives` says.
    """

    kind: str = "dpr"
    passages: Path
    splits: dict[str, Questions]

    def parts(self) -> Parts:
        passages = find_file(self.passages, "data.passages")
        splits = {name: _judged(files, f"data.splits.{name}") for name, files in self.splits.items()}
        return Parts(_passages(passages), splits, [passages])


def _judged(files: Questions, key: str) -> tuple[Iterable[Entry], Iterable[Judgment] | None]:
    path = find_file(files.questions, f"{key}.questions")
    qrels = find_file(files.qrels, f"{key}.qrels") if files.qrels else None
    if extension(path) != ".json":
        return _questions(path), trec_judgments(qrels) if qrels else None
    questions, positives = judged_questions(path, LAYOUT)
    return questions, trec_judgments(qrels) if qrels else positives


def _passages(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        id, text, title = cells = line.quoted_cells(PASSAGE)
        if id != "id" and cells[1:] != PASSAGE[1:]:
            yield Entry(line, id, {"title": title, "text": text})
        elif line.number > 1 or cells != PASSAGE:
            # Of other columns (text and title may have changed places), or between two tables put together.
            expected = f"the header {' TAB '.join(PASSAGE)} in line 1, or none"
            raise line.error(f"a header {shown(line.text)}", expected, "delete the line, or write the columns in this order")


def _questions(path: Path) -> Iterator[Entry]:
    for place, line in enumerate(read_lines(path)):
        if line.text.startswith("{"):
            yield _question(line, place, line.json())
        else:
            text, answers = line.quoted_cells(("question", "answers"))
            yield Entry(line, str(place), {"text": text}, literal_list(line, answers))


def literal_list(line: Line, text: str) -> list[str]:
    """A list of strings as Python writes it: read, never run.

    Strings with no comma between them, as NumPy prints them, are refused: Python would take them together as one answer.
    """
    try:
        # Blanks and tabs only: what else str.strip takes away (U+001D, one bit from \r) Python itself refuses beside a list.
        stripped = text.strip(" \t")
        if not _LIST.fullmatch(stripped):
            raise ValueError
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            return ast.literal_eval(stripped)
    except (SyntaxError, ValueError):
        raise line.error(f"answers {shown(text)}", "a Python list of strings such as ['1984']", "correct or delete the line") from None
