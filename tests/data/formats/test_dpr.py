import json

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.dpr import Dpr, _questions, read_questions

TEST = (
    'which year\t[\'1984\', "it\'s 1984"]\r\n"who is ""Ahärôn""?"\t"[\'Aaron\', ""Moses\' brother""]"\r\n'
    "unjudged\t['x']\r\n"
)
PASSAGES = (
    'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"") is\ta prophet."\tAaron\n2\tThe year 1984.\t"""1984"""\n'
    "3\tNo title.\t\n"
)
LISTS = {"[]": [], " [ 'a' ,u\"b\", ] ": ["a", "b"], "['a, \"b', '] [']": ['a, "b', "] ["]}
LISTS[r"""['it\'s', '\u00e9\\', ""]"""] = ["it's", "é\\", ""]


def record(question: str, positives: list[str], key: str = "passage_id") -> dict:
    contexts = [{"title": "", "text": "", key: id} for id in positives]
    lists = {"positive_ctxs": contexts, "negative_ctxs": [], "hard_negative_ctxs": []}
    return {"question": question, "answers": ["1984"], **lists}


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "psgs_w100.tsv").write_text(PASSAGES)
    records = [record("which  year", ["2", "1"]), record("no passage", []), record("who", ["1"], "psg_id")]
    (tmp_path / "train.json").write_text(json.dumps(records))
    (tmp_path / "test.qa.csv").write_text(TEST)
    (tmp_path / "test.qrels").write_text("1 0 1 1\n0 0 2 1\n")
    test = {"questions": tmp_path / "test.qa.csv", "qrels": tmp_path / "test.qrels"}
    splits = {"train": {"questions": tmp_path / "train.json"}, "test": test}
    return {"passages": tmp_path / "psgs_w100.tsv", "splits": splits}


def answers(split) -> list[list[str]]:
    return [read_answers(split.queries, row) for row in range(len(split.queries))]


def test_questions_may_have_their_passages_in_another_file(recipe, tmp_path):
    """By text, whatever the blanks; `keep_unjudged` keeps the others, in the order of the questions."""
    (tmp_path / "all.csv").write_text("who\t['a']\nno one\t['b']\nwhich year\t['c']\nwho\t['d']\n")
    train = {"questions": tmp_path / "all.csv", "positives": tmp_path / "train.json"}
    settings = {**recipe, "splits": {**recipe["splits"], "train": train}}
    records = [record("which  year", ["2", "1"]), record("who", ["1"])]
    (tmp_path / "train.json").write_text(json.dumps(records))
    data = Dpr.model_validate(settings)
    kept = data.read(trained_on={"train"}, keep_unjudged=True).split("train")
    assert list(kept.queries.columns["text"]) == ["who", "no one", "which year", "who"]
    assert [kept.qrels.relevant(row).tolist() for row in range(4)] == [[0], [], [1, 0], [0]]
    assert answers(kept) == [["a"], ["b"], ["c"], ["d"]]
    used = data.read(trained_on={"train"})
    assert used.split("train").queries.ids == ["0", "2", "3"]
    assert used.skipped["train queries without positives"] == 1
    with pytest.raises(ValueError, match="both give relevant passages"):
        Dpr.model_validate({**recipe, "splits": {"train": {**train, "qrels": tmp_path / "test.qrels"}}})


@pytest.mark.parametrize("header", ["", "\n\nid\ttext\ttitle\n"])
def test_passages_may_have_no_header_or_one_after_empty_lines(recipe, tmp_path, header):
    (tmp_path / "psgs_w100.tsv").write_text(header + PASSAGES.partition("\n")[2])
    assert Dpr(**recipe).read().documents.ids == ["1", "2", "3"]


def test_questions_are_read_without_passages_and_judgments(recipe, tmp_path):
    train = read_questions(tmp_path / "train.json")
    assert (train.ids, train.columns["text"]) == (["0", "1", "2"], ["which year", "no passage", "who"])
    del recipe["splits"]["test"]["qrels"]
    test = Dpr(**recipe).read().split("test")
    assert len(test.queries) == 3 and answers(test)[2] == ["x"] and not test.is_judged
    assert test.queries.ids == read_questions(tmp_path / "test.qa.csv").ids


def test_question_marks_at_the_end_are_kept_or_removed_as_in_the_codes_of_dpr_and_ance(recipe, tmp_path):
    """`if question[-1] == "?": question = question[:-1]`: one mark, and only at the end."""
    records = [record(text, ["2"]) for text in ("which year?", "really??", "why? he said", "who")]
    (tmp_path / "train.json").write_text(json.dumps(records))
    kept = Dpr.model_validate(recipe).read().split("train").queries
    removed = Dpr.model_validate({**recipe, "question_marks": "remove"}).read()
    assert list(kept.columns["text"]) == ["which year?", "really??", "why? he said", "who"]
    train = removed.split("train").queries
    assert list(train.columns["text"]) == ["which year", "really?", "why? he said", "who"]
    assert read_answers(train, 0) == ["1984"]
    assert list(removed.split("test").queries.columns["text"])[1] == 'who is "Ahärôn"'


@pytest.mark.parametrize("text, expected", LISTS.items())
def test_lists_of_answers(tmp_path, text, expected):
    (tmp_path / "test.txt").write_text(f"q\t{text}\n")
    assert [entry.answers for entry in _questions(tmp_path / "test.txt")] == [expected]


def test_qrels_replace_the_positives_of_the_file(recipe, tmp_path):
    recipe["splits"]["train"]["qrels"] = tmp_path / "test.qrels"
    train = Dpr(**recipe).read().split("train")
    assert [train.known_positives("query").of(row).tolist() for row in range(2)] == [[1], [0]]


def test_real_questions(shared_data):
    """tests/pyserini_bridge/test_readers.py compares their texts and answers with Pyserini's readers."""
    topics = {"nq": 3610, "trivia": 11313, "curated": 694}
    files = {f"openqa-topics/topics.dpr.{name}.test.txt.gz": count for name, count in topics.items()}
    for name, count in {**files, "dpr/nq_1000_dev_dpr.csv.gz": 1000}.items():
        questions = read_questions(shared_data / name)
        assert questions.ids == [str(number) for number in range(count)]
        assert all(read_answers(questions, row) for row in range(count))
