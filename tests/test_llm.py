import json
import logging
import re
import threading
from pathlib import Path

import pytest
from helpers.language_model import KEY, language_model

from pyserini_ance import llm
from pyserini_ance.llm import Server, ask

TEXTS = [f"text {number}" for number in range(20)]
pytestmark = pytest.mark.usefixtures("quick_language_model")


@pytest.fixture
def journal(tmp_path) -> Path:
    return tmp_path / "made" / "answers.jsonl"


def lines_of(journal: Path) -> list[dict]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_a_text_is_asked_for_once_and_answers_keep_their_order(journal):
    with language_model(lambda text, count: f"about {text}") as model:
        server = Server(model.url, "small")
        first = ask(server, TEXTS[:5] + TEXTS[:2], journal)
        assert first.texts == [f"about {text}" for text in TEXTS[:5] + TEXTS[:2]]
        assert first[1:] == (5, 0, 5, 50)
        assert ask(server, TEXTS[:8], journal)[1:] == (3, 0, 8, 80)
        assert set(model.asked.values()) == {1} and len(model.asked) == 8
        assert model.bodies[0].items() >= {"model": "small", "temperature": 0}.items()
        ask(server._replace(model="other"), TEXTS[:1], journal)
        assert model.asked[TEXTS[0]] == 2
    assert ask(server, TEXTS[:8], journal).new == 0  # without a server


WRONG = {"500": 500, "429": 429, "half a body": ("an answer", {"missing_bytes": 40})}
WRONG["half of the JSON"] = ("an answer", {"bytes": 30})
WRONG["no choices"] = ("an answer", {"body": {"choices": []}})


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_request_that_goes_wrong_is_repeated(journal, wrong):
    def reply(text, count):
        return wrong if text == TEXTS[3] and count < 3 else "an answer"

    with language_model(reply) as model:
        answers = ask(Server(model.url, "small"), TEXTS, journal)
    assert answers.texts == ["an answer"] * 20
    assert model.asked[TEXTS[3]] == 3 and model.asked.total() == answers.requests == 22


@pytest.mark.parametrize(("wrong", "requests"), [(500, llm.ATTEMPTS), (400, 1), (WRONG["no choices"], 4)])
def test_a_text_that_always_goes_wrong_stops_no_other(journal, caplog, wrong, requests):
    """It is asked for again by the next call."""
    with language_model(lambda text, count: wrong if text == TEXTS[0] else "an answer") as model:
        answers = ask(Server(model.url, "small"), TEXTS, journal)
        assert answers.texts == [None] + ["an answer"] * 19 and answers.failed == 1
        assert model.asked[TEXTS[0]] == requests
        assert f"{model.host} gave no answer to 1 texts" in caplog.text
        model.reply = lambda text, count: "late"
        assert ask(Server(model.url, "small"), TEXTS, journal).texts[0] == "late"
        assert model.asked.total() == 20 + requests


def test_one_slow_answer_holds_up_no_other(journal):
    released = threading.Event()

    def reply(text, count):
        if text == TEXTS[0]:
            assert released.wait(30)
        elif text == TEXTS[-1]:
            released.set()
        return "an answer"

    with language_model(reply) as model:
        assert ask(Server(model.url, "small"), TEXTS, journal).texts == ["an answer"] * 20


def test_an_answer_that_never_comes_is_repeated(journal, monkeypatch):
    monkeypatch.setattr(llm, "TIMEOUT_SECONDS", 1.0)
    released = threading.Event()

    def reply(text, count):
        if text == TEXTS[0] and count == 1:
            released.wait(30)
        return "an answer"

    with language_model(reply) as model:
        answers = ask(Server(model.url, "small"), TEXTS[:2], journal)
        released.set()
    assert answers.texts == ["an answer"] * 2 and answers.requests >= 3
    # The server may have written an answer: the request counts with all that it may have cost.
    assert answers.tokens == 20 + (answers.requests - 2) * llm.max_tokens_of(TEXTS[0])


def test_an_answer_that_is_cut_loses_its_last_line(journal):
    reply = "one?\ntwo?\nthr", {"choice": {"finish_reason": "length"}}
    with language_model(lambda text, count: reply) as model:
        assert ask(Server(model.url, "small"), ["a"], journal).texts == ["one?\ntwo?\n"]


@pytest.mark.parametrize("content", [None, "", "<think>What do", "<think>What\ndo</think>", "Hm?</think>"])
def test_an_empty_answer_is_an_answer_and_thoughts_are_none(journal, content):
    with language_model(lambda text, count: (content, {})) as model:
        assert ask(Server(model.url, "small"), ["a"], journal)[:2] == ([""], 1)


def test_requests_end_with_the_budget_and_repeated_ones_count(journal):
    def reply(text, count):
        return 500 if text == TEXTS[1] and count < 3 else "an answer"

    with language_model(reply) as model:
        server = Server(model.url, "small", max_requests=7)
        answers = ask(server, TEXTS, journal)
        assert answers.requests == model.asked.total() == 7
        assert answers.new == sum(text is not None for text in answers.texts) < 7
        assert ask(server, TEXTS, journal).requests == model.asked.total() == 7
        assert ask(server, TEXTS, journal, budget="another").requests == 7
        assert ask(server._replace(max_requests=20), TEXTS, journal)[2:4] == (0, 15)
        assert model.asked.total() == 7 + 7 + 8


def test_tokens_end_with_the_budget_which_allows_the_most_that_a_request_can_cost(journal):
    most = llm.max_tokens_of(TEXTS[0])
    assert most == 6 + llm.CHAT_TOKENS + llm.ANSWER_TOKENS
    with language_model(lambda text, count: "an answer") as model:
        server = Server(model.url, "small", max_tokens=most - 1)
        assert ask(server, TEXTS[:10], journal).new == 0
        assert model.asked.total() == 0
        server = server._replace(max_tokens=most + 30)
        answers = ask(server, TEXTS[:10], journal)  # one at a time: each costs 10 tokens in the end
        assert (answers.new, answers.tokens) == (4, 40)
        model.reply = lambda text, count: ("an answer", {"body": {"usage": None}})
        answers = ask(server._replace(max_tokens=40 + 2 * most), TEXTS[:10], journal)
        assert (answers.new, answers.tokens) == (2, 40 + 2 * most)  # not counted by the server


def test_a_server_that_dies_ends_in_one_line_and_the_next_call_continues(journal):
    gone = threading.Event()

    def reply(text, count):
        if len(model.asked) > 12:
            gone.set()
        return "an answer"

    with language_model(reply) as model:
        server = Server(model.url, "small")
        threading.Thread(target=lambda: (gone.wait(), model.stop()), daemon=True).start()
        many = [f"text {number}" for number in range(300)]
        with pytest.raises(ConnectionError) as error:
            ask(server, many, journal)
    answered = sum("answer" in line for line in lines_of(journal))
    assert answered >= 4 and model.asked.total() < 300
    kept = f"{answered} of 300 texts were answered, which {journal} keeps"
    said = str(error.value)
    assert re.match(rf"{model.host} .*; {kept}; the same command", said) and "\n" not in said
    with language_model(lambda text, count: "another") as model:
        answers = ask(server._replace(url=model.url), many, journal)
        assert answers.new == model.asked.total() == 300 - answered
        assert answers.texts.count("an answer") == answered


def test_a_server_that_was_never_there_costs_nothing(journal):
    with language_model(lambda text, count: "an answer") as model:
        server = Server(model.url, "small", max_requests=100)
    with pytest.raises(ConnectionError, match=rf"{model.host} cannot be reached: .*; 0 of 20 texts "):
        ask(server, TEXTS, journal)
    assert sum(line["requests"] for line in lines_of(journal)) == 0
    assert sum(line["tokens"] for line in lines_of(journal)) == 0


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_all_is_asked_no_further(journal, status):
    with language_model(lambda text, count: status) as model:
        with pytest.raises(ConnectionError, match=rf"Error code: {status} .*check OPENAI_API_KEY.*; 0 of 20"):
            ask(Server(model.url, "small"), TEXTS, journal)
        assert model.asked.total() <= llm.THREADS


def test_a_server_that_fails_all_the_time_is_left(journal):
    with language_model(lambda text, count: 503) as model:
        with pytest.raises(ConnectionError, match=r"Error code: 503 - no: .*; 0 of 2,000 texts"):
            ask(Server(model.url, "small"), [str(number) for number in range(2000)], journal)
        assert model.asked.total() < llm.FAILURES + llm.THREADS


def test_the_key_stays_in_the_environment(journal, caplog, capfd):
    """Though the server repeats it in answers and errors."""
    caplog.set_level(logging.DEBUG)
    with language_model(lambda text, count: KEY if text != TEXTS[2] else 400) as model:
        server = Server(model.url, "small")
        assert ask(server, TEXTS[:3], journal).texts == ["[key]", "[key]", None]
        model.reply = lambda text, count: 401
        with pytest.raises(ConnectionError) as error:
            ask(server, TEXTS, journal)
    assert "no: Bearer [key]" in str(error.value)
    seen = [caplog.text, *capfd.readouterr(), repr(server), repr(error.value), journal.read_text()]
    assert not [text for text in seen if KEY in text]


def test_a_torn_line_is_repaired(journal):
    with language_model(lambda text, count: "an answer") as model:
        server = Server(model.url, "small")
        ask(server, TEXTS[:3], journal)
        whole = journal.read_bytes()
        journal.write_bytes(whole[:-9])  # a part of the last answer
        answers = ask(server, TEXTS[:3], journal)
        assert answers.texts == ["an answer"] * 3 and answers.new == 1
        assert len(lines_of(journal)) == 7  # the request whose answer was lost stays counted
        assert answers.requests == model.asked.total() == 4


OWN = "http://localhost:8000/v1; a key belongs in the environment: OPENAI_API_KEY"
URLS = ["localhost:8000", "ftp://a/v1", "http://", "https://me:secret@host/v1", "https://host/v1?key=secret"]
ADDRESSES = {**dict.fromkeys(URLS, OWN), "http://localhost:80a/v1": "Port could not be .* '80a'"}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_is_none_or_has_a_key_is_refused_and_not_shown(journal, url):
    with pytest.raises(ValueError, match=ADDRESSES[url]) as error:
        ask(Server(url, "small"), TEXTS, journal)
    assert "secret" not in str(error.value)


def test_the_announcement_names_host_texts_and_the_most_tokens():
    server = Server("https://models.example/v1", "small")
    most = sum(map(llm.max_tokens_of, TEXTS))
    said = f"models.example gets 20 texts for small: at most {most:,} tokens, prompts and answers together, "
    said += "if no request has to be repeated"
    assert llm.announcement(server, TEXTS) == said
    limited = llm.announcement(server._replace(max_requests=7, max_tokens=1000), TEXTS, "passages")
    expected = "models.example gets 20 passages for small, in at most 7 requests: at most 1,000 "
    assert limited.startswith(expected)


def test_fields_of_a_prompt(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text('Read {text} {n} times, answer {"grade": {x}}\n')
    values = {"text": "{n}", "n": 2}
    assert llm.filled(llm.read_prompt(path, "text"), values) == 'Read {n} 2 times, answer {"grade": {x}}'
    with pytest.raises(ValueError, match=r"prompt\.txt lacks \{query\} and \{more\}"):
        llm.read_prompt(path, "query", "text", "more")
