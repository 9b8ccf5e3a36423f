import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.language_model import KEY, language_model
from helpers.waiting import until

from pyserini_ance import llm
from pyserini_ance.adapt.documents import Passage
from pyserini_ance.adapt.questions import (
    JOURNAL,
    PROMPTS,
    copy_prompt,
    read_questions,
    texts_to_send,
    write_questions,
)
from pyserini_ance.llm import Server

PASSAGES = [Passage(f"p{number}", f"Title {number}", f"All of item {number}.") for number in range(30)]


pytestmark = pytest.mark.usefixtures("quick_language_model")


@pytest.fixture
def prompt(tmp_path) -> Path:
    path = tmp_path / "prompt.txt"
    path.write_text("{number} {title}: {text}\n")
    return path


def rank(questions: list[str]) -> list[list[str]]:
    """As a retriever that finds items by their number, the ninth one nowhere."""
    return [[f"p{words}", "p1000"] if words != "9" else ["p8"] for words in
            ("".join(filter(str.isdigit, question)) for question in questions)]  # fmt: skip


def item(text: str) -> int:
    return int(text.removesuffix(".").rpartition(" ")[2])


def test_questions_find_their_passage_and_come_once(prompt, tmp_path):
    def reply(text, count):
        number = item(text)
        odd = {3: "I'm sorry, but I cannot help with that.", 4: "Who made  ITEM 2?", 5: 400, 6: ""}
        return odd.get(number, f"1. Who made item {number}?\n2. What is item {number}?\n3. Why {number}?")

    with language_model(reply) as model:
        found = write_questions(PASSAGES[:10], Server(model.url, "small"), prompt, tmp_path, rank)
        assert set(model.asked) == {f"2 Title {n}: All of item {n}." for n in range(10)}
        assert set(model.asked.values()) == {1}
    first = [("p0", "Who made item 0?"), ("p0", "What is item 0?"), ("p1", "Who made item 1?")]
    assert found.kept[:3] == first
    assert {passage for passage, _ in found.kept} == {"p0", "p1", "p2", "p7", "p8"}
    assert (found.answers.texts.count(None), found.answers.failed, found.garbage) == (1, 1, 2)
    assert (found.repeated, found.lost, len(found.kept)) == (1, 2, 10)
    assert (found.answers.requests, found.answers.tokens) == (10, 90)


def test_an_edited_prompt_is_asked_anew_within_the_budget_of_the_folder(prompt, tmp_path):
    with language_model(lambda text, count: f"What is item {item(text)}?") as model:
        server = Server(model.url, "small", max_requests=35)
        assert len(write_questions(PASSAGES, server, prompt, tmp_path, rank).kept) == 29
        prompt.write_text("Write in verse. {text}")
        found = write_questions(PASSAGES, server, prompt, tmp_path, rank)
        assert (found.answers.texts.count(None), found.answers.requests) == (25, 35)
        assert model.asked.total() == 35
        prompt.write_text("Write.")
        with pytest.raises(ValueError, match=r"prompt\.txt lacks \{text\}"):
            write_questions(PASSAGES, server, prompt, tmp_path, rank)


CHILD = """
import sys
from pathlib import Path
from pyserini_ance.adapt.documents import Passage
from pyserini_ance.adapt.questions import write_questions
from pyserini_ance.llm import Server
folder, url = sys.argv[1:]
passages = [Passage(f"p{number}", f"Title {number}", f"All of item {number}.") for number in range(30)]
server = Server(url, "small", max_requests=40)
write_questions(passages, server, Path(folder, "prompt.txt"), Path(folder), lambda questions: [])
"""


@pytest.mark.long
def test_a_process_killed_in_the_middle_loses_what_was_on_its_way_and_no_more(prompt, tmp_path):
    """The budget counts what was on its way; the key is in no file and in no output."""
    journal = tmp_path / JOURNAL
    hold = True

    def reply(text, count):
        if item(text) >= 12 and hold:
            until(lambda: not hold)
        return f"What is item {item(text)}?"

    def answered() -> set[str]:
        lines = journal.read_text().splitlines() if journal.exists() else []
        return {record["key"] for record in map(json.loads, lines) if "answer" in record}

    with language_model(reply) as model, open(tmp_path / "log", "w") as log:
        environment = {**os.environ, llm.KEY: KEY, "OPENAI_LOG": "debug"}
        command = [sys.executable, "-c", CHILD, str(tmp_path), model.url]
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as child:
            try:
                until(lambda: len(answered()) == 12 and model.asked.total() == 12 + llm.THREADS, 120)
            finally:
                child.send_signal(signal.SIGKILL)
        hold = False
        with open(journal, "a") as file:
            file.write('{"key": "half a li')
        server = Server(model.url, "small", max_requests=40)
        found = write_questions(PASSAGES, server, prompt, tmp_path, rank)
        again = {item(text) for text, count in model.asked.items() if count > 1}
        assert again == set(range(12, 12 + llm.THREADS))
        assert found.answers.requests == model.asked.total() == 30 + llm.THREADS
        assert None not in found.answers.texts
        repeated = write_questions(PASSAGES, server, prompt, tmp_path, rank)
        assert repeated == found._replace(answers=found.answers._replace(new=0))
        assert write_questions(PASSAGES, server, prompt, tmp_path / "other", rank).kept == found.kept
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 4 and not [data for data in written if KEY.encode() in data]


@pytest.mark.parametrize(
    ("answer", "questions"),
    [
        ("What is a?\nWhat is b?", ["What is a?", "What is b?"]),
        ("1. What is a?\n2) What is b?\n(3) What is c?", ["What is a?", "What is b?", "What is c?"]),
        ("- What is a?\n* **What is b?**\n\u2022 `What is c?`", ["What is a?", "What is b?", "What is c?"]),
        ("Here are two questions:\n\nQ1: What is a?\nQuestion 2: \"What is b?\"\nI hope this helps!",
         ["What is a?", "What is b?"]),
        ("\u201eWas ist a?\u201c\nFrage 2: Was ist b?", ["Was ist a?", "Was ist b?"]),
        ('```json\n["What is a?", "What is [b]?"]\n```', ["What is a?", "What is [b]?"]),
        ('Sure: ["What is a?",\n "What is b?"] Good luck!', ["What is a?", "What is b?"]),
        ('{"questions": [{"q": "What is a?"}, {"q": "What is b?"}]}', ["What is a?", "What is b?"]),
        ('["What is a?",\n"What is b?",\n"What is', ["What is a?", "What is b?"]),
        ("What is a [1]?", ["What is a [1]?"]),
        ('How is ["a", "b"] read?\nWhich is JSON?', ['How is ["a", "b"] read?', "Which is JSON?"]),
        ("Keywords:\n1. heat pump noise\n2. 3.5 inch disk", ["heat pump noise", "3.5 inch disk"]),
        ("\u8fd9\u662f\u4ec0\u4e48\uff1f", ["\u8fd9\u662f\u4ec0\u4e48\uff1f"]),
        ("I'm sorry, but I can't help.", []),
        ("", []),
        ("...\n---\n```", []),
        ("long " * 100 + "?", []),
    ],
)  # fmt: skip
def test_what_models_write_around_questions(answer, questions):
    assert read_questions(answer) == questions


def test_every_shipped_prompt_has_the_fields_and_is_copied_once(tmp_path):
    names = [path.stem for path in PROMPTS.glob("*.txt")]
    assert {"english-question", "english-keywords", "german-question"} <= set(names)
    for name in names:
        (tmp_path / name).mkdir()
        path = copy_prompt(name, tmp_path / name)
        (text,) = texts_to_send([Passage("p", "Of pumps", "A pump moves.")], path)
        words = " ".join(text.split())
        assert "Of pumps" in words and "A pump moves." in words and " 2 " in words
        assert "{" not in text
    path.write_text("my own {text}")
    assert copy_prompt("english-question", path.parent).read_text() == "my own {text}"


def test_the_announcement_counts_prompts_and_answers(prompt):
    server = Server("http://localhost:8000/v1", "small")
    most = sum(llm.max_tokens_of(text) for text in texts_to_send(PASSAGES, prompt))
    said = llm.announcement(server, texts_to_send(PASSAGES, prompt), "passages")
    assert said.startswith(f"localhost:8000 gets 30 passages for small: at most {most:,} tokens")
