"""A language model as judge: grades from 0 to 3, where its requests tell the most."""

import logging
import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance import llm
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.encoders.cross_encoder_model import record_text
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext
from pyserini_ance.negatives.teachers.hybrid import Student, min_max
from pyserini_ance.negatives.teachers.rankings import Bm25Teacher
from pyserini_ance.storage.files import sha256_json

LENGTH_WORDS = 400  # of a document, which the model reads
KEY = "stages.<stage>.terms.<term>.teacher.prompt"
# The grades of TREC's deep learning tracks, as Thomas et al. 2023, arXiv:2309.10621, have models give them.
PROMPT = """Grade how well the document answers the query:
3: it is about the query and contains the exact answer
2: it has some answer, but unclear, or hidden among other things
1: it is on the subject, and does not answer
0: it has nothing to do with the query

Query: {query}

Document: {document}

Reply with the grade alone, one digit."""
SCALE = re.compile(r"\d\s*(?:-|to|bis)\s*\d|(?:/|out of|von)\s*3")  # 0 to 3; 2/3
GRADE = re.compile(r"(?<![\w.,-])[0-3](?![\w-]|[.,]\d)")
log = logging.getLogger(__name__)


class LlmTeacher(Teacher):
    """Grades from 0 to 3 that a language model gives, behind any OpenAI-compatible server.

    A pair is asked for once, whatever run asks. The key comes from the environment alone: OPENAI_API_KEY. A
    pair without a grade does not count in the loss and is not relevant to a filter.
    Source: Thakur et al. 2025, arXiv:2505.16967 (RLHN), whose judges relabel hard negatives.
    """

    kind: Literal["llm"] = "llm"
    url: llm.ServerUrl
    """The address of the server's API, such as http://localhost:8000/v1."""
    model: str
    """The name of the model there."""
    prompt: Path | None = None
    """A text file with {query} and {document}; null: the grades of TREC's deep learning tracks."""
    max_requests: PositiveInt | None = None
    """The number of requests for each refresh; null: one for each pair that has no grade yet. A limit is
    spent on the pairs whose scores by BM25 and the student differ most."""

    highest = 3.0

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"bm25"} if self.max_requests else ())

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.prompt is None else (find_file(self.prompt, KEY),)

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        order = np.arange(len(pairs))
        if self.max_requests:
            scores = (teacher.score(pairs, context) for teacher in (Bm25Teacher(), Student()))
            bm25, student = (min_max(one, pairs.groups) for one in scores)
            order = np.argsort(-np.abs(bm25 - student), kind="stable")
        grades = np.full(len(pairs), np.nan, np.float32)
        grades[order] = context.snapshot.world.on_main(lambda: self._grades(pairs, order, context))
        return grades

    def _grades(self, pairs: Pairs, order: np.ndarray, context: TeacherContext) -> list[float]:
        """The grades of the pairs in this order; NaN for those without one."""
        snapshot = context.snapshot
        prompt = llm.read_prompt(self.files[0], "query", "document") if self.files else PROMPT
        judge = sha256_json([self.model, prompt])
        context.origins[f"{self.kind} {self.model}"] = judge
        queries, documents = snapshot.split.queries.columns["text"], snapshot.collection.documents
        texts = []
        for query, row in zip(pairs.queries[order].tolist(), pairs.documents[order].tolist(), strict=True):
            words = record_text(documents[row]).split()[:LENGTH_WORDS]
            texts.append(llm.filled(prompt, {"query": queries[query], "document": " ".join(words)}))
        server = llm.Server(self.url, self.model, self.max_requests)
        # All calls of one refresh share its budget, as do those after a kill.
        refresh = sha256_json([snapshot.weights, str(snapshot.model), str(snapshot.scratch)])
        journal = context.cache / "judged" / f"{judge[:32]}.jsonl"
        answers = llm.ask(server, texts, journal, refresh, label=f"grades of {self.model}")
        context.new_pairs[self.kind] += answers.new
        grades = [np.nan if answer is None else read_grade(answer) for answer in answers.texts]
        if without := answers.texts.count(None):
            lost = f"before {without} of {len(pairs)} pairs; they have no grade and do not count"
            log.warning("teacher llm: the budget of this refresh ended, or the server failed, %s", lost)
        if garbage := int(np.isnan(grades).sum()) - without:
            log.warning("teacher llm: %d answers of %s name no grade from 0 to 3", garbage, self.model)
        return grades


def read_grade(answer: str) -> float:
    """The one grade that an answer names; NaN for none, and for several."""
    grades = set(GRADE.findall(SCALE.sub("", answer)))
    return float(grades.pop()) if len(grades) == 1 else np.nan
