"""DPR's training files: questions with their answers, each with passages that were found for it.

A JSON list of {"question", "answers", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs"}; a passage has its id under
`passage_id` (NQ) or `psg_id` (TriviaQA). A question's id is its place in the file, from 0. Karpukhin et al. 2020,
arXiv:2004.04906.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.format import Entry, Judgment
from pyserini_ance.data.formats.lines import Line, json_answers, json_id, json_text, shown
from pyserini_ance.data.formats.records import read_list
from pyserini_ance.data.trec import write_run


def judged_questions(path: Path) -> tuple[list[Entry], list[Judgment]]:
    """The questions, and as relevant to each its positive contexts, in their order (DPR and ANCE train with the first)."""
    entries, judgments = [], []
    for place, (line, record) in enumerate(read_list(path)):
        entries.append(question(line, place, record))
        judgments += [Judgment(line, str(place), id, 1) for id in _passage_ids(line, record, "positive_ctxs")]
    return entries, judgments


def write_hard_negatives(path: Path, run: Path) -> None:
    """Write the hard negative contexts, which BM25 found and which hold no answer, in their order, as a TREC run.

    `{kind: run, file: RUN}` draws from it.
    """
    write_run(run, _hard_negatives(path), tag="dpr")


def question(line: Line, place: int, record: dict[str, Any]) -> Entry:
    answers = json_answers(line, record, "answers", "answer")
    if answers is None:
        raise line.error(f"a question without answers: {shown(record)}", "a list of strings under answers or answer", "give it one")
    return Entry(line, str(place), {"text": json_text(line, record, "question")}, answers)


def _hard_negatives(path: Path) -> Iterator[tuple[str, str, float]]:
    for place, (line, record) in enumerate(read_list(path)):
        for rank, id in enumerate(dict.fromkeys(_passage_ids(line, record, "hard_negative_ctxs")), start=1):
            yield str(place), id, -rank


def _passage_ids(line: Line, record: dict[str, Any], key: str) -> list[str]:
    contexts = record.get(key)
    if not isinstance(contexts, list) or not all(isinstance(context, dict) for context in contexts):
        raise line.error(f"{key} {shown(contexts)}", "a list of JSON objects, one a passage", f"write `{key}` as DPR's training files do")
    return [json_id(line, context, "passage_id", "psg_id") for context in contexts]
