from pathlib import Path

import numpy as np
import pytest
from helpers.filter_fixture import candidates_of, table_of
from helpers.language_model import KEY, language_model
from pydantic import ValidationError

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.negatives.teachers.base import Pairs, TeacherContext
from pyserini_ance.negatives.teachers.llm import LlmTeacher, read_grade
from pyserini_ance.recipe.models import Bm25
from pyserini_ance.storage.files import sha256_json

# By query and document: what a good judge says.
LABELS = np.array([[3, 0, 2, 0, 1], [0, 3, 1, 3, 0]])
PAIRS = Pairs(*np.divmod(np.arange(10), 5), np.arange(10) // 5)
SCORES = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])  # of the student
pytestmark = pytest.mark.usefixtures("quick_language_model")


@pytest.fixture
def context(split_of, snapshot_of, tmp_path):
    """BM25 agrees with the student, but for documents 0 and 4 of query 1."""
    order = {0: range(5), 1: (0, 3, 2, 1, 4)}
    run = "".join(f"q{q} Q0 d{d} 1 {9 - rank} t\n" for q in order for rank, d in enumerate(order[q]))
    (tmp_path / "bm25.trec").write_text(run)
    snapshot = snapshot_of(split_of([0], [1]), np.eye(2), SCORES.T, bm25=tmp_path / "bm25.trec")
    snapshot.cache, snapshot.bm25 = tmp_path / "cache", Bm25(hits=5)
    return TeacherContext(snapshot)


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("{query} {document}")
    return path


def pair_of(text: str) -> tuple[int, int]:
    """Texts are `q0? d4!`."""
    query, document = text.split()
    return int(query[1]), int(document[1])


def label(text: str, count: int) -> str:
    return f"Grade: {LABELS[pair_of(text)]}"


def test_a_judge_grades_each_pair_once_and_its_grades_are_traced(context, prompt):
    with language_model(label) as model:
        teacher = LlmTeacher(url=model.url, model="judge", prompt=prompt)
        assert teacher.needs == frozenset() and teacher.files == (prompt,)
        assert teacher.score(PAIRS, context).tolist() == LABELS.ravel().tolist()
        assert teacher.score(PAIRS, context).tolist() == LABELS.ravel().tolist()
        assert set(model.asked.values()) == {1} and len(model.asked) == 10
        assert context.origins == {"llm judge": sha256_json(["judge", "{query} {document}"])}
        assert context.new_pairs == {"llm": 10}
        LlmTeacher(url=model.url, model="other", prompt=prompt).score(PAIRS, context)
        prompt.write_text("{query}  {document}")
        LlmTeacher(url=model.url, model="judge", prompt=prompt).score(PAIRS, context)
        assert model.asked.total() == 30
    written = [path.read_bytes() for path in context.cache.rglob("*.jsonl")]
    assert len(written) == 3 and not [data for data in written if KEY.encode() in data]
    with pytest.raises(ConnectionError):  # the server is gone
        LlmTeacher(url=model.url, model="new", prompt=prompt).score(PAIRS, context)


def test_the_budget_of_a_refresh_goes_where_bm25_and_the_student_disagree(context, prompt, caplog):
    with language_model(label) as model:
        teacher = LlmTeacher(url=model.url, model="judge", prompt=prompt, max_requests=2)
        assert teacher.needs == {"bm25"}
        grades = teacher.score(PAIRS, context).reshape(2, 5)
        assert {pair_of(text) for text in model.asked} == {(1, 0), (1, 4)}
        expected = np.full((2, 5), np.nan)
        expected[1, [0, 4]] = LABELS[1, [0, 4]]
        np.testing.assert_array_equal(grades, expected)
        assert "the budget of this refresh ended, or the server failed, before 8 of 10 pairs" in caplog.text
        assert set(context.origins) == {"bm25", "student", "llm judge"}
        np.testing.assert_array_equal(teacher.score(PAIRS, context).reshape(2, 5), expected)
        assert model.asked.total() == 2  # later calls of the refresh, and those after a kill, share it
        context.snapshot.weights = "later"
        assert np.isfinite(teacher.score(PAIRS, context)).sum() == 4
        more = LlmTeacher(url=model.url, model="judge", prompt=prompt, max_requests=100)
        assert more.score(PAIRS, context).tolist() == LABELS.ravel().tolist()
        assert set(model.asked.values()) == {1}


def test_what_a_judge_says_badly_has_no_grade_and_stops_nothing(context, prompt, caplog):
    odd = {(0, 1): "I cannot tell.", (0, 2): "1 or 2", (1, 4): 400}
    with language_model(lambda text, count: odd.get(pair_of(text)) or label(text, count)) as model:
        grades = LlmTeacher(url=model.url, model="judge", prompt=prompt).score(PAIRS, context)
    expected = LABELS.astype(float)
    expected[(0, 0, 1), (1, 2, 4)] = np.nan
    np.testing.assert_array_equal(grades.reshape(2, 5), expected)
    assert "2 answers of judge name no grade from 0 to 3" in caplog.text
    assert "before 1 of 10 pairs" in caplog.text


@pytest.mark.parametrize("then", ["drop", "promote"])
def test_a_filter_drops_or_promotes_what_a_judge_finds_relevant(context, prompt, then):
    """Query 1 is also answered by document 3."""
    with language_model(label) as model:
        judge = {"kind": "llm", "url": model.url, "model": "judge", "prompt": prompt}
        asks = {"kind": "teacher", "teacher": judge, "max_score": 2, "then": then}
        snapshot = context.snapshot
        table = table_of(Ann(top_k=5, filters=[asks]), snapshot)
        assert table.candidates.tolist() == [[1, 2, 3, 4, PADDING], [4, 2, 0, PADDING, PADDING]]
        assert (table.promoted is not None and table.promoted.tolist() == [[1, 3]]) == (then == "promote")
        assert snapshot.judges == {"llm judge": sha256_json(["judge", "{query} {document}"])}
        assert len(model.asked) == 8  # not for the known positives, with max_score


def graded_by_all(world: World, folder: Path, url: str) -> list[float]:
    found = candidates_of([[0], [2]], [[1, 2], [0, 1]])
    found.snapshot.world = world
    found.snapshot.cache = folder
    context = TeacherContext(found.snapshot)
    rows = np.arange(6)
    return LlmTeacher(url=url, model="judge").score(Pairs(rows // 3, rows % 3, rows // 3), context).tolist()


def test_one_process_asks_for_all(run_processes, tmp_path):
    with language_model(lambda text, count: "no grade" if "document 2" in text else "1") as model:
        ends = run_processes(2, graded_by_all, tmp_path, model.url)
    np.testing.assert_equal(ends, [[1, 1, np.nan, 1, 1, np.nan]] * 2)
    assert set(model.asked.values()) == {1} and len(model.asked) == 6


def test_documents_are_cut_to_the_words_that_the_judge_reads(split_of, snapshot_of, tmp_path, monkeypatch):
    monkeypatch.setattr("pyserini_ance.negatives.teachers.llm.LENGTH_WORDS", 3)
    snapshot = snapshot_of(split_of([0]), np.eye(1), np.eye(1), ["one two  three four"])
    snapshot.cache = tmp_path
    context = TeacherContext(snapshot)
    one = Pairs(*np.zeros((3, 1), int))
    with language_model(lambda text, count: "2") as model:
        assert LlmTeacher(url=model.url, model="judge").score(one, context).tolist() == [2]
    (text,) = model.asked
    assert "Query: q0?\n\nDocument: one two three\n\nReply with the grade alone" in text


GRADES = {"2": 2, "**3**": 3, "Grade: 1.": 1, "2/3": 2, "I give 2 out of 3": 2, '{"grade": 0}': 0}
GRADES |= {"On a scale from 0 to 3 or 0-3: 1": 1}
GRADES |= dict.fromkeys(("4", "13", "2.5", "-1", "1 or 2", "relevant", ""), np.nan)


@pytest.mark.parametrize("answer, grade", GRADES.items())
def test_the_grade_in_an_answer(answer, grade):
    np.testing.assert_equal(read_grade(answer), grade)


def test_an_address_or_prompt_that_cannot_be_is_found_before_training(tmp_path, prompt, context):
    with pytest.raises(ValidationError, match=r"url\n.*a key belongs in the environment: OPENAI_API_KEY"):
        LlmTeacher(url="https://me:secret@host/v1", model="judge")
    with pytest.raises(FileNotFoundError, match=r"none\.txt.*teacher\.prompt"):
        _ = LlmTeacher(url="http://host/v1", model="judge", prompt=tmp_path / "none.txt").files
    prompt.write_text("{query}")
    with pytest.raises(ValueError, match=r"prompt\.txt lacks \{document\}"):
        LlmTeacher(url="http://host/v1", model="judge", prompt=prompt).score(PAIRS, context)
