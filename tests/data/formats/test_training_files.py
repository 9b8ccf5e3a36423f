import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from pyserini_ance.data.answer_matching import Text, Tokens
from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.dpr import LAYOUT
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.records import read_list
from pyserini_ance.data.formats.training_files import _each_once, judged_questions, listed_negatives


def contexts(*ids: str, key: str = "passage_id") -> list[dict]:
    return [{"title": "T", "text": "x", "score": "1.5", key: id} for id in ids]


def record(question: str, positive=(), hard=(), key: str = "passage_id") -> dict:
    result = {"positive_ctxs": contexts(*positive, key=key), "hard_negative_ctxs": contexts(*hard, key=key)}
    return {
        "question": question,
        "answers": ["a", "b"],
        **result,
        "negative_ctxs": contexts("8", "9", key=key),
    }


@pytest.fixture
def write(tmp_path):
    def write(*records: dict):
        (tmp_path / "train.json").write_text(json.dumps(records, indent=4))
        return tmp_path / "train.json"

    return write


@pytest.mark.parametrize("key", ["passage_id", "psg_id"])
def test_positives_keep_their_order(write, key):
    questions, positives = judged_questions(
        write(record("q", ["7", "3", "7"], key=key), record("none"), record("r", ["3"], key=key)), LAYOUT
    )
    assert [(entry.id, entry.fields, entry.answers) for entry in questions] == [
        ("0", {"text": "q"}, ["a", "b"]),
        ("1", {"text": "none"}, ["a", "b"]),
        ("2", {"text": "r"}, ["a", "b"]),
    ]
    assert [judgment[1:] for judgment in positives] == [
        ("0", "7", 1),
        ("0", "3", 1),
        ("0", "7", 1),
        ("2", "3", 1),
    ]


def test_hard_negatives_keep_their_order(write):
    path = write(record("q", ["7"], ["5", "4", "5", "6"]), record("none"), record("r", hard=["4"]))
    pairs = list(listed_negatives(path, LAYOUT))
    assert [pair[1:] for pair in pairs] == [("0", "5"), ("0", "4"), ("0", "5"), ("0", "6"), ("2", "4")]
    assert [line for line, *_ in pairs] == [2, 2, 2, 2, 80]


def test_records_may_be_one_per_line(tmp_path, write):
    records = [record("q", ["7"], ["5"]), record("r", ["3"])]
    (tmp_path / "lines.json").write_text("".join(json.dumps(one) + "\n" for one in records))
    plain, lines = (judged_questions(path, LAYOUT) for path in (write(*records), tmp_path / "lines.json"))
    assert [entry[1:] for entry in plain[0]] == [entry[1:] for entry in lines[0]]
    assert [judgment[1:] for judgment in plain[1]] == [judgment[1:] for judgment in lines[1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive_ctxs": None}, "positive_ctxs None; expected a list of JSON objects"),
        ({"positive_ctxs": ["7"]}, r"positive_ctxs \['7'\]; expected a list of JSON objects"),
        ({"positive_ctxs": [{"text": "x"}]}, "id None; expected a string under passage_id or psg_id"),
        (
            {"answers": None},
            "a question without answers: .*; expected a list of strings under answers or answer",
        ),
        ({"answers": "['a']"}, "answers .*; expected a list of strings"),
        ({"answers": ["a", 1984]}, "answers .*1984.*; expected a list of strings"),
        ({"question": ["q"]}, r"question \['q'\]; expected a string"),
    ],
)
def test_malformed_input_is_an_error(write, change, message):
    path = write(record("q", ["7"]), record("r", ["7"]) | change)
    number = path.read_text().split("\n").index("    {", 3) + 1
    with pytest.raises(ValueError, match=rf"train\.json, line {number}, item 2: {message}"):
        judged_questions(path, LAYOUT)


def test_a_question_without_a_list_of_hard_negatives_is_an_error(write):
    path = write({key: value for key, value in record("q").items() if key != "hard_negative_ctxs"})
    with pytest.raises(
        ValueError,
        match=r"train\.json, line 2, item 1: hard_negative_ctxs None; expected a list.* as DPR's training "
        r"files do",
    ):
        list(listed_negatives(path, LAYOUT))


@pytest.mark.parametrize("id", ["", "a b", "\ud83d3", "a\0"])
def test_a_negative_without_id_is_an_error(write, id):
    path = write(record("q", ["7"]) | {"hard_negative_ctxs": [{"passage_id": id}]})
    with pytest.raises(ValueError, match=r"train\.json, line 2, item 1: .*id .*; expected"):
        list(listed_negatives(path, LAYOUT))


def test_real_questions(shared_data):
    path = shared_data / "dpr" / "nq-dev.sample.json.gz"
    questions, positives = judged_questions(path, LAYOUT)
    assert questions[0].fields == {"text": "who sings does he love me with reba"}
    assert [entry.answers[0] for entry in questions] == [
        "Linda Davis",
        "the Saint Lawrence River",
        "July 5 , 2018",
        "Roy Raymond",
        "2002",
    ]
    first = {judgment.query: judgment.document for judgment in reversed(positives)}
    assert first == {"0": "11828866", "1": "151960", "2": "20766125", "3": "13258931", "4": "4441861"}
    with gzip.open(path) as file:
        listed = [
            (str(number), c["passage_id"])
            for number, record in enumerate(json.load(file))
            for c in record["hard_negative_ctxs"]
        ]
    assert [pair[1:] for pair in listed_negatives(path, LAYOUT)] == listed
    assert len(listed) == 96 + 95 + 98 + 100 + 94


def test_real_positives_contain_an_answer_and_hard_negatives_do_not(shared_data):
    """DPR's choice agrees with the answer matching here, except in one of 483 passages, on where a token
    ends.
    """
    path = shared_data / "dpr" / "nq-dev.sample.json.gz"
    questions, _ = judged_questions(path, LAYOUT)

    def holding(key: str) -> list[bool]:
        return [
            Tokens(entry.answers).match(Text(context["text"]))
            for entry, (_, record) in zip(questions, read_list(path), strict=True)
            for context in record[key]
        ]

    assert holding("positive_ctxs") == [True] * 22
    assert (len(holding("hard_negative_ctxs")), sum(holding("hard_negative_ctxs"))) == (483, 1)


def test_deduplication_keeps_no_passages_in_memory():
    passages = (
        Entry(Line(Path("corpus"), n, ""), f"d{n % 200}", {"text": f"{n % 200:0100000d}"}) for n in range(400)
    )
    tracemalloc.start()
    try:
        ids = [passage.id for passage in _each_once(passages)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ids == [f"d{n}" for n in range(200)] and peak < 2_000_000  # of 20 MB


def test_deduplication_takes_few_bytes_per_id():
    """At most 60 bytes; a dictionary of ids takes 130."""
    file = Path("corpus")
    passages = (Entry(Line(file, n, ""), f"document-{n}", {"text": "text"}) for n in range(10_000))
    tracemalloc.start()
    try:
        kept = sum(1 for _ in _each_once(passages)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept[0] == 10_000 and kept[1] < 60 * 10_000
