"""Answer questions with a reader from the passages of a ranking, and measure the answers against gold
answers.

The output folder is a query log; at the end it also has `measures.json`, and `first-K.jsonl` for each number
K of passages read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.papers.answer_scores import measure_answers
from benchmarks.papers.readers import READERS
from benchmarks.papers.readers.base import OpenReader, Passage, Reader
from pyserini_ance.data.answer_matching import ANSWERS, FIELD, read_answers
from pyserini_ance.data.trec import best_first
from pyserini_ance.evaluation.metrics import row_of
from pyserini_ance.recipe.load import read_settings
from pyserini_ance.reports.ranking_inputs import RankingInput
from pyserini_ance.reports.reranking import QueryLog
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.progress import progress_bar


@dataclass(frozen=True)
class Answering:
    """Answers to the questions of `ranked`, from the first `cutoffs[i]` passages each; `cutoffs` rise."""

    ranked: RankingInput
    cutoffs: tuple[int, ...]
    folder: Path

    def begin(self, reader: Reader) -> None:
        """Check the input and start the query log, or continue it.

        Raises ValueError if questions have no answers, documents no text or not the fields that the reader
        reads, or the ranking fewer passages than the last cutoff; FileExistsError if the folder holds
        something else.
        """
        questions, documents = self.ranked.queries, self.ranked.collection.documents
        if ANSWERS not in questions.columns:
            raise ValueError(
                f"the questions of {self.ranked.split!r} have no answers to measure by; pass questions that "
                "have a list `answers`"
            )
        if FIELD not in documents.columns:
            raise ValueError(
                f"readers read the field {FIELD!r}, but documents have {', '.join(documents.columns)}"
            )
        reader.check_documents(documents.columns)
        self.ranked.check_hits(self.cutoffs[-1])
        settings = {"reader": reader.model_dump(mode="json"), "depths": list(self.cutoffs)}
        QueryLog(self.folder).begin({**settings, **self.ranked.identity}, reader.model)

    def read(self, reader: OpenReader) -> None:
        """Answer the questions that are not answered yet."""
        log = QueryLog(self.folder)
        done = log.records
        remaining = [question for question in self.ranked.ranked_queries if question not in done]
        for question in progress_bar(iterable=remaining, desc="read", unit="question"):
            log.append(self._record(question, reader))

    def rows(self, regular_expressions: bool = False) -> list[dict[str, Any]]:
        """Write the predictions and `measures.json`; returns the rows of a table, one per cutoff.

        Questions without passages count as answered wrongly.
        """
        records, questions = QueryLog(self.folder).records, self.ranked.queries
        gold = {question: read_answers(questions, row) for row, question in enumerate(questions.ids)}
        rows = []
        for position, cutoff in enumerate(self.cutoffs):
            answers = {question: record["answers"][position] for question, record in records.items()}
            told = [{"id": id, "question": self._text(id), **answer} for id, answer in answers.items()]
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in told)
            write_whole(self.folder / f"first-{cutoff}.jsonl", "".join(lines))
            texts = {question: answer["answer"] for question, answer in answers.items()}
            rows.append({"passages": cutoff, **measure_answers(texts, gold, regular_expressions)})
        measures = {"questions": len(gold), "with passages": len(records), "rows": rows}
        write_json(self.folder / "measures.json", measures)
        return rows

    def _record(self, question: str, reader: OpenReader) -> dict[str, Any]:
        documents, hits = self.ranked.collection.documents, self.ranked.run[question]
        ids = best_first(hits)[: self.cutoffs[-1]]
        passages = [Passage(documents[row_of(documents, id)], hits[id]) for id in ids]
        answers = [
            {
                "answer": answer.text,
                "passage": None if answer.passage is None else ids[answer.passage],
                "score": answer.score,
            }
            for answer in reader.answers(self._text(question), passages, self.cutoffs)
        ]
        return {"query": question, "answers": answers}

    def _text(self, question: str) -> str:
        return self.ranked.queries.columns["text"][self.ranked.queries.rows[question]]


def make_reader(kind: str, model: str, settings: Sequence[str]) -> Reader:
    """The reader of that kind, with `key=value` settings.

    Raises ValueError with the unknown key or the wrong value.
    """
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise ValueError(
            f"{wrong[0]!r} is not a setting of a reader; expected key=value, such as answer_tokens=10"
        )
    values = dict(setting.split("=", 1) for setting in settings)
    return read_settings(READERS[kind], {"kind": kind, "model": model, **values}, f"reader {kind}")
