"""Questions that a language model writes for passages, and those of them that find their passage again.

A synthetic question is material to train on, and no evidence of how good a retriever is.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance import llm
from pyserini_ance.adapt.documents import Passage
from pyserini_ance.data.formats.lines import BEYOND
from pyserini_ance.data.texts import text_key
from pyserini_ance.llm import Server
from pyserini_ance.storage.files import copy_whole

PROMPTS = Path(__file__).parent / "prompts"  # LANGUAGE-STYLE.txt
PROMPT_FILE = "prompt.txt"
JOURNAL = "answers.jsonl"
PER_PASSAGE = 2
MAX_CHARACTERS = 300  # of a question
FENCE = re.compile(r"^\s*```.*$", re.MULTILINE)
# 1. 2) (3) - * • > # Q1: Question 2:
MARK = re.compile(
    r"^(?:\(?\d{1,2}[.):]\s+|[-*•>#]+\s+|(?:q|question|query|frage|anfrage)\s*\d*\s*:\s*)+", re.I
)
QUOTES = " \t*_`\"'“”„«»,"
QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # Latin, Chinese and Japanese, Arabic
REFUSAL = re.compile(
    r"(i'm|i am|we're) (sorry|unable)|i can(not|'t)|as an ai|sorry|es tut mir leid|ich kann", re.I
)


class Questions(NamedTuple):
    """What a model has written.

    kept: (passage id, question). answers: to all passages, and what was spent so far, for this folder.
    garbage: answers without a question, such as refusals. repeated: questions that came before. lost:
    questions whose passage was not among the first k.
    """

    kept: list[tuple[str, str]]
    answers: llm.Answers
    garbage: int
    repeated: int
    lost: int


def copy_prompt(name: str, folder: Path) -> Path:
    """FOLDER/prompt.txt, for the user to edit: the one that is there, or a copy of the prompt `name`."""
    path = folder / PROMPT_FILE
    if not path.exists():
        copy_whole(PROMPTS / f"{name}.txt", path)
    return path


def texts_to_send(passages: Sequence[Passage], prompt: Path) -> list[str]:
    """What the model reads of each passage. Raises ValueError for a prompt without {text}."""
    template = llm.read_prompt(prompt, "text")
    fields = ({"title": one.title, "text": one.text, "number": PER_PASSAGE} for one in passages)
    return [llm.filled(template, each) for each in fields]


def write_questions(
    passages: Sequence[Passage],
    server: Server,
    prompt: Path,
    folder: Path,
    rank: Callable[[list[str]], list[list[str]]],
) -> Questions:
    """Have questions written for the passages, in their order while the budget lasts, and keep the good ones.

    A passage counts once, whatever was killed between: `folder` keeps the answers, and the budget is that of
    the folder. rank: the ids of the first k passages for each question. Raises as `llm.ask` does.
    """
    answers = llm.ask(server, texts_to_send(passages, prompt), folder / JOURNAL, label="questions")
    written: dict[str, tuple[str, str]] = {}
    garbage = repeated = 0
    for passage, answer in zip(passages, answers.texts, strict=True):
        if answer is None:
            continue
        questions = read_questions(answer)[:PER_PASSAGE]
        garbage += not questions
        for question in questions:
            repeated += text_key(question) in written
            written.setdefault(text_key(question), (passage.id, question))
    pairs = list(written.values())
    found = rank([question for _, question in pairs]) if pairs else []
    kept = [pair for pair, ids in zip(pairs, found, strict=True) if pair[0] in ids]
    return Questions(kept, answers, garbage, repeated, lost=len(pairs) - len(kept))


def read_questions(answer: str) -> list[str]:
    """The questions of an answer: one a line, or a list in JSON; with numbers, bullets, quotes, fences.

    Where a line ends as a question does, the others are what a model says around them.
    """
    text = FENCE.sub("", answer).strip()
    listed: list[str] = []
    start = min((at for at in map(text.find, "[{") if at >= 0), default=len(text))
    before = text[:start].rpartition("\n")[2].strip()
    with suppress(*BEYOND):
        if not before or before.endswith(":"):  # else a question quotes JSON
            listed = list(_texts_in(json.loads(text[start : max(map(text.rfind, "]}")) + 1])))
    lines = listed or text.splitlines()
    lines = [MARK.sub("", line.strip(QUOTES).lstrip("[")).strip(QUOTES) for line in lines]
    lines = [line for line in lines if any(map(str.isalpha, line)) and len(line) <= MAX_CHARACTERS]
    asking = [line for line in lines if line.endswith(QUESTION_MARKS)]
    return asking or [line for line in lines if not line.endswith(":") and not REFUSAL.match(line)]


def _texts_in(value: Any) -> Iterator[str]:
    """The texts of a value that JSON has given, in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value if isinstance(value, list) else value.values():
            yield from _texts_in(inner)
