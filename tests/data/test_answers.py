"""Answers in texts: made-up cases with results by hand, real ones against Pyserini's `has_answers` in a process of its own."""

import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from pyserini_ance.data.answers import Patterns, Text, Tokens, contain, read_answers, spaced_tokens
from pyserini_ance.data.collection import Texts

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
    ("ΟΣ'Α", "ος ' α", True),
    ("STRASSE", "straße", False),
    ("the 🙂 face", "🙂", True),
    ("anything", "", False),
    ("anything", " \u200b ", False),
    ("", "x", False),
]


@pytest.mark.parametrize(("text", "answer", "expected"), CASES)
def test_an_answer_is_a_run_of_tokens(text, answer, expected):
    assert Tokens([answer]).are_in(Text(text)) is expected
    assert Tokens(["nowhere to be found", answer]).are_in(Text(text)) is expected


def test_tokens_by_hand():
    assert spaced_tokens("It's 3.5\tkm_\u2028ÉA") == " it ' s 3 . 5 km _ éa "
    assert spaced_tokens(" \n") == "  "


def test_no_answers_are_in_no_text():
    assert not Tokens([]).are_in(Text("a")) and not Patterns([]).are_in(Text("a"))


def test_answers_as_regular_expressions():
    text = Text("Mount McKinley is\n20,320 feet high, in Paraná")
    assert Patterns([r"20,?\d{3} f(ee|oo)t"]).are_in(text) and Patterns(["^20"]).are_in(text)
    assert Patterns(["mckinley"]).are_in(text) and Patterns(["parana\u0301"]).are_in(text) and Patterns(["paran\u00e1$"]).are_in(text)
    assert not Patterns(["ft", "^Paran"]).are_in(text)
    with pytest.raises(re.error):
        Patterns(["f(ee"])


def test_pairs_by_rising_document():
    questions = {0: Tokens(["b"]), 3: Patterns(["^a b$"]), 4: Tokens([])}
    documents, rows = ["a b", "unread", "a c b"], np.array([0, 0, 0, 2, 2])
    assert contain(questions, documents, np.array([4, 3, 0, 0, 3]), rows).tolist() == [False, True, True, True, False]
    assert contain(questions, documents, np.array([], int), np.array([], int)).tolist() == []


def test_answers_of_a_row():
    assert read_answers(Texts(["q"], {"text": ["?"], "answers": [json.dumps(["é", "b c"])]}), 0) == ["é", "b c"]


PYSERINI = """
import json, sys
from pyserini.eval.evaluate_dpr_retrieval import SimpleTokenizer, has_answers
tokenizer, pairs = SimpleTokenizer(), json.load(sys.stdin)
print(json.dumps([[has_answers(text, [answer], tokenizer, kind) for kind in (False, True)] for text, answer in pairs]))
"""


def test_real_questions_agree_with_pyserini(shared_data):
    """40 questions against 25 passages each, their own among them; and the cases above that hold a token."""
    with gzip.open(shared_data / "nq-oracle" / "nq-open-oracle.jsonl.gz", "rt") as file:
        records = [json.loads(line) for _, line in zip(range(400), file, strict=False)]
    passages = [record["ctxs"][0]["text"] for record in records]
    pairs = [(passages[(10 * q + 13 * i) % 400], answer) for q in range(40) for i in range(25) for answer in records[10 * q]["answers"]]
    pairs += [(text, answer) for text, answer, _ in CASES if answer.strip(" \u200b")]
    done = subprocess.run([sys.executable, "-c", PYSERINI], input=json.dumps(pairs), capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout.splitlines()[-1])
    assert [Tokens([answer]).are_in(Text(text)) for text, answer in pairs] == [tokens for tokens, _ in expected]
    assert 40 <= sum(tokens for tokens, _ in expected) < 200
    patterns = [(pair, matches) for pair, (_, matches) in zip(pairs, expected, strict=True) if _compiles(pair[1])]
    assert [Patterns([answer]).are_in(Text(text)) for (text, answer), _ in patterns] == [matches for _, matches in patterns]


def _compiles(pattern: str) -> bool:
    try:
        return bool(re.compile(pattern))
    except re.error:
        return False
