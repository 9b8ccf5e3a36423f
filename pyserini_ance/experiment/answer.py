"""Questions answered by a reader from the passages of a ranking, and measured by their gold answers.

An output folder is a query log, and at the end has `first-K.jsonl` for each number of passages read and `measures.json`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tqdm import tqdm

from pyserini_ance.data.answers import ANSWERS, FIELD, read_answers
from pyserini_ance.experiment.query_log import QueryLog
from pyserini_ance.experiment.ranked import Ranked
from pyserini_ance.measures.answers import measure_answers
from pyserini_ance.measures.evaluate import best_first, row_of
from pyserini_ance.readers.reader import OpenReader, Passage, Reader
from pyserini_ance.recipe.parts import part_class
from pyserini_ance.storage.files import write_json, write_whole


@dataclass(frozen=True)
class Answering:
    """Each question of `ranked` from its first passages, as many as each of the rising `depths` says."""

    ranked: Ranked
    depths: tuple[int, ...]
    folder: Path

    def begin(self, reader: Reader) -> None:
        """Raises ValueError for questions without answers, documents without text and a ranking that is not so deep, FileExistsError when
        the folder holds something else.
        """
        questions, documents = self.ranked.queries, self.ranked.collection.documents
        if ANSWERS not in questions.columns:
            raise ValueError(f"the questions of {self.ranked.split!r} have no answers to measure by; name questions that have a list `answers`")
        if FIELD not in documents.columns:
            raise ValueError(f"readers read the field {FIELD!r}, but documents have {', '.join(documents.columns)}")
        self.ranked.check_depth(self.depths[-1])
        self._log.begin({"reader": reader.model_dump(mode="json"), "depths": list(self.depths), **self.ranked.about}, reader.model)

    def read(self, reader: OpenReader) -> None:
        """Answer what is not answered yet."""
        done = self._log.records
        left = [question for question in self.ranked.asked if question not in done]
        for question in tqdm(left, desc="read", unit="question", mininterval=1):
            self._log.append(self._answered(question, reader))

    def rows(self, regular_expressions: bool = False) -> list[dict]:
        """Write the predictions and `measures.json`; the rows of a table. Questions without any passage count as answered wrongly."""
        records, questions = self._log.records, self.ranked.queries
        gold = {question: read_answers(questions, row) for row, question in enumerate(questions.ids)}
        rows = []
        for place, depth in enumerate(self.depths):
            answers = {question: record["answers"][place] for question, record in records.items()}
            write_whole(self.folder / f"first-{depth}.jsonl", "".join(self._lines(answers)))
            texts = {question: answer["answer"] for question, answer in answers.items()}
            rows.append({"passages": depth, **measure_answers(texts, gold, regular_expressions)})
        write_json(self.folder / "measures.json", {"questions": len(gold), "with passages": len(records), "rows": rows})
        return rows

    def _answered(self, question: str, reader: OpenReader) -> dict:
        documents, hits = self.ranked.collection.documents, self.ranked.run[question]
        found = best_first(hits)[: self.depths[-1]]
        passages = [Passage(documents[row_of(documents, document)], hits[document]) for document in found]
        answers = reader.answers(self._text(question), passages, self.depths)
        told = [{"answer": one.text, "passage": None if one.passage is None else found[one.passage], "score": one.score} for one in answers]
        return {"query": question, "answers": told}

    def _lines(self, answers: dict[str, dict]) -> Iterator[str]:
        for question, answer in answers.items():
            yield json.dumps({"id": question, "question": self._text(question), **answer}, ensure_ascii=False) + "\n"

    def _text(self, question: str) -> str:
        return self.ranked.queries.columns["text"][self.ranked.queries.rows[question]]

    @property
    def _log(self) -> QueryLog:
        return QueryLog(self.folder)


def make_reader(kind: str, model: str, settings: Sequence[str]) -> Reader:
    """The reader of that kind, with `key=value` settings. Raises ValueError naming the key that is unknown or has a wrong value."""
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise ValueError(f"{wrong[0]!r} is no setting of a reader; expected key=value, such as answer_tokens=10")
    given = dict(setting.split("=", 1) for setting in settings)
    try:
        return part_class("reader", kind).model_validate({"kind": kind, "model": model, **given})
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, one['loc'])) or kind}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors())
        raise ValueError(f"reader {kind}: {'; '.join(problems)}") from None
