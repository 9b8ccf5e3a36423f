"""Answer matching: cases by hand, and real ones against Pyserini's `has_answers` in a subprocess."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from pyserini_ance.data.answer_matching import Patterns, Text, Tokens, contain_answers
from pyserini_ance.data.texts import Texts

CASES = [
    ("Sung by Linda Davis, in 1993.", "linda DAVIS", True),
    ("Sung by Linda  \n Davis", "Linda Davis", True),
    ("Sung by Linda-Davis", "Linda Davis", False),
    ("Sung by Linda-Davis", "linda - davis", True),
    ("Belinda Davison", "Linda Davis", False),
    ("He was born in Paraná", "Parana\u0301", True),
    ("He was born in Paraná", "Parana", False),
    ("in 1,993", "993", True),
    ("in 11993", "1993", False),
    ("snake_case", "snake", True),
    ("a\u00a0b\u200bc", "a b c", True),
    ("Ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ", True),
    ("ΟΣ'Α", "ος ' α", True),  # noqa: RUF001  Greek letters, whose lower case depends on their neighbours
    ("STRASSE", "straße", False),
    ("the 🙂 face", "🙂", True),
    ("newer \u0558 letters", "\u0558", True),  # regex: a letter; Python 3.12: not assigned, a blank
    ("newer\u05c8letters", "newer", False),
    ("\U00010d40 digits", "\U00010d40", True),
    ("anything", "", False),
    ("anything", " \u200b ", False),
    ("", "x", False),
]


@pytest.mark.parametrize(("text", "answer", "expected"), CASES)
def test_an_answer_matches_a_run_of_tokens(text, answer, expected):
    assert Tokens([answer]).match(Text(text)) is expected
    assert Tokens(["nowhere to be found", answer]).match(Text(text)) is expected


def test_answers_as_regular_expressions():
    text = Text("Mount McKinley is\n20,320 feet high, in Paraná")
    assert Patterns([r"20,?\d{3} f(ee|oo)t"]).match(text) and Patterns(["^20"]).match(text)
    assert all(Patterns([each]).match(text) for each in ("mckinley", "parana\u0301", "paran\u00e1$"))
    assert not Patterns(["ft", "^Paran"]).match(text)
    odd = ["f(ee", "a{99999999999}", "(" * 9999, r"\e"]
    assert list(Patterns(["feet", *odd]).skipped) == odd


def test_pairs_ordered_by_document():
    questions = {0: Tokens(["b"]), 3: Patterns(["^a b$"]), 4: Tokens([])}
    documents = Texts(["x", "y", "z"], {"text": ["a b", "unread", "a c b"]})
    rows = np.array([0, 0, 0, 2, 2])
    found = contain_answers(questions, documents, np.array([4, 3, 0, 0, 3]), rows)
    assert found.tolist() == [False, True, True, True, False]
    assert not len(contain_answers(questions, documents, rows[:0], rows[:0]))
    with pytest.raises(ValueError, match="searched in the field 'text', but documents have body"):
        contain_answers(questions, Texts(["x"], {"body": ["a"]}), rows[:0], rows[:0])


PYSERINI = """
import json, sys
from pyserini.eval.evaluate_dpr_retrieval import SimpleTokenizer, has_answers
tokenizer, pairs = SimpleTokenizer(), json.load(sys.stdin)
def match(text, answer):
    return [has_answers(text, [answer], tokenizer, kind) for kind in (False, True)]
print(json.dumps([match(text, answer) for text, answer in pairs]))
"""


def test_real_questions_agree_with_pyserini(shared_data):
    """40 questions against 25 passages each, including their own, and the cases that contain a token."""
    with gzip.open(shared_data / "nq-oracle" / "nq-open-oracle.jsonl.gz", "rt") as file:
        records = [json.loads(line) for _, line in zip(range(400), file, strict=False)]
    passages = [record["ctxs"][0]["text"] for record in records]
    asked = [(q, answer) for q in range(0, 400, 10) for answer in records[q]["answers"]]
    pairs = [(passages[(q + 13 * i) % 400], answer) for q, answer in asked for i in range(25)]
    pairs += [(text, answer) for text, answer, _ in CASES if answer.strip(" \u200b")]
    command = [sys.executable, "-c", PYSERINI]
    done = subprocess.run(command, input=json.dumps(pairs), capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout.splitlines()[-1])
    found = [Tokens([answer]).match(Text(text)) for text, answer in pairs]
    assert found == [tokens for tokens, _ in expected]
    assert 40 <= sum(tokens for tokens, _ in expected) < 200
    for (text, answer), (_, matches) in zip(pairs, expected, strict=True):
        patterns = Patterns([answer])
        assert patterns.skipped or patterns.match(Text(text)) == matches
