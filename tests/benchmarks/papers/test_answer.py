"""The command over passages of SQuAD's kind, with a random reader; its table by hand and by a slow pass."""

import json

import pytest
from helpers.small_set import ONE_STEP, make_finished_run

from benchmarks.papers import __main__ as papers
from benchmarks.papers import question_answering
from benchmarks.papers.readers.base import Answer
from pyserini_ance.reports.ranking_inputs import open_ranking

PASSAGES = "id\ttext\ttitle\n1\tAaron is a prophet.\tA\n2\tThe year 1984.\tB\n3\tIt was 1985 in the U.S.\tC\n"
QUESTIONS = [("which year", ["1984"], "2"), ("where", ["the US", "1985"], "3"), ("who", ["Aaron"], "1")]
RANKING = "0 Q0 3 1 3.0 t\n0 Q0 2 2 2.0 t\n1 Q0 2 1 2.0 t\n1 Q0 3 2 1.0 t\n"  # nothing for the third
SETTINGS = ["length_tokens=40", "overlap_tokens=4", "question_tokens=12", "answer_tokens=5"]


@pytest.fixture
def run(small_recipe, tmp_path):
    (tmp_path / "psgs.tsv").write_text(PASSAGES)
    asked = [{"question": q, "answers": a, "positive_ctxs": [{"passage_id": p}]} for q, a, p in QUESTIONS]
    (tmp_path / "dev.json").write_text(json.dumps([{**one, "hard_negative_ctxs": []} for one in asked]))
    splits = {name: {"questions": str(tmp_path / "dev.json")} for name in ("train", "dev")}
    data = {"kind": "dpr", "passages": str(tmp_path / "psgs.tsv"), "splits": splits}
    final = {"split": "dev", "measures": ["Success@2"]}
    cache = str(tmp_path / "cache")
    recipe = small_recipe({"only": ONE_STEP}, data=data, final_evaluation=final, cache=cache)
    return make_finished_run(tmp_path / "run", recipe, {"dev": ""}, {"run.dev.trec": RANKING})


class FirstWords:
    """Answers with the last passage's last word but one, to be measured by hand."""

    def __init__(self, fail_after: int | None = None):
        self.asked, self.fail_after = [], fail_after

    def answers(self, question, passages, cutoffs):
        if len(self.asked) == self.fail_after:
            raise KeyboardInterrupt
        self.asked.append((question, [passage.score for passage in passages]))
        texts = [passages[:cutoff][-1].record["text"] for cutoff in cutoffs]
        asked, most = zip(texts, cutoffs, strict=True), len(passages)
        return [Answer(" ".join(text.split()[-2:]), 1.0, min(cutoff, most) - 1) for text, cutoff in asked]


def answered(run, folder):
    return question_answering.Answering(open_ranking(str(run.folder)), (1, 2), folder)


def test_the_table_and_the_predictions_by_hand(run, tmp_path):
    reader, answering = FirstWords(), answered(run, tmp_path / "out")
    answering.begin(question_answering.make_reader("extractive", "m", SETTINGS))
    answering.read(reader)
    assert reader.asked == [("which year", [3.0, 2.0]), ("where", [2.0, 1.0])]
    # first 1: "the U.S." and "year 1984."; first 2: "year 1984." and "the U.S."; of three questions
    one, two = answering.rows()
    assert one == {"passages": 1, "EM": 0, "F1": 0}
    assert two == {"passages": 2, "EM": pytest.approx(1 / 3), "F1": pytest.approx((2 / 3 + 1) / 3)}
    lines = [json.loads(line) for line in (tmp_path / "out" / "first-2.jsonl").read_text().splitlines()]
    assert lines == [
        {"id": "0", "question": "which year", "answer": "year 1984.", "passage": "2", "score": 1.0},
        {"id": "1", "question": "where", "answer": "the U.S.", "passage": "3", "score": 1.0},
    ]
    measures = json.loads((tmp_path / "out" / "measures.json").read_text())
    assert measures == {"questions": 3, "with passages": 2, "rows": [one, two]}


def test_an_interrupted_command_continues(run, tmp_path):
    answering, reader = answered(run, tmp_path / "out"), question_answering.make_reader("extractive", "m", [])
    answering.begin(reader)
    with pytest.raises(KeyboardInterrupt):
        answering.read(FirstWords(fail_after=1))
    again = FirstWords()
    answering.begin(reader)
    answering.read(again)
    assert [question for question, _ in again.asked] == ["where"]
    assert answering.rows()[1]["EM"] == pytest.approx(1 / 3)
    with pytest.raises(FileExistsError, match="was made with reader .*'model': 'm'.*, not .*'model': 'n'"):
        answering.begin(question_answering.make_reader("extractive", "n", []))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["answer_token=3"], r"answer_token: unknown key 'answer_token' \(did you mean 'answer_tokens'\?\)"),
        (["template={titel} {text}"], "template is '{titel} {text}', but .* has no field titel "),
    ],
)
def test_invalid_requests_are_refused(run, tiny_reader, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        papers.main(["answer", str(run.folder), f"--model={tiny_reader}", f"--output={tmp_path}/out", *words])
    assert not (tmp_path / "out").exists()
