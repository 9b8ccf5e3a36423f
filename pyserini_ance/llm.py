"""Ask a language model behind any OpenAI-compatible server: each text once, within a budget.

A journal, a file of JSON lines, keeps the answers. A request is noted there with the most that it can cost
before it is sent, and with its answer and what it cost less when this has come. So the sum of all lines is
what was spent, at whatever moment a process was killed, and no answer is asked for twice.
"""

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator

from pyserini_ance.storage.files import append_json_line, beside, read_json_lines, sha256_json
from pyserini_ance.storage.locks import locked
from pyserini_ance.storage.progress import progress_bar

if TYPE_CHECKING:
    from openai import OpenAI

KEY = "OPENAI_API_KEY"
OPENAI = "api.openai.com"
THREADS = 8
ATTEMPTS = 4
FAILURES = THREADS * ATTEMPTS  # in a row, after which a server counts as down
TIMEOUT_SECONDS = 120.0
CONNECT_SECONDS = 10.0
PAUSE_SECONDS = 0.5  # before the first repetition; four times as long before each other
MAX_PAUSE_SECONDS = 30.0  # that a server may ask for
ANSWER_TOKENS = 512  # of an answer, with what a model writes before it
CHAT_TOKENS = 64  # that a server may put around a text
REFUSING = (401, 402, 403, 404)  # statuses that every request would get
FINAL = (400, 405, 413, 415, 422)  # and those that one text would get again
THOUGHTS = re.compile(r"\A.*</think>|<think>.*", re.DOTALL)  # before an answer; a prompt may begin them
log = logging.getLogger(__name__)


class Server(NamedTuple):
    """A model by name, and the address of its API, such as http://localhost:8000/v1.

    max_requests, max_tokens: the budget; None: no limit. The key is in the environment alone (OPENAI_API_KEY;
    a local server needs none).
    """

    url: str
    model: str
    max_requests: int | None = None
    max_tokens: int | None = None

    @property
    def host(self) -> str:
        """Host and port. Raises ValueError for an address that is none, or that holds a password or a key."""
        parts = urlsplit(self.url)
        is_named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if not is_named or "@" in parts.netloc or parts.query:
            raise ValueError(
                "the address of a language model is not of the form http://localhost:8000/v1; a key belongs "
                f"in the environment: {KEY}"
            )
        return parts.netloc

    def allows(self, requests: int, tokens: int) -> bool:
        """Whether so much in total is within the budget."""
        limits = ((self.max_requests, requests), (self.max_tokens, tokens))
        return all(limit is None or spent <= limit for limit, spent in limits)


ServerUrl = Annotated[str, AfterValidator(lambda url: Server(url, "").host and url)]  # raises as `host`


class Answers(NamedTuple):
    """texts: the answer to each text; None where there is none. new: the number that came in this call.
    failed: the number of texts whose requests failed. requests, tokens: spent of the budget, earlier calls
    included.
    """

    texts: list[str | None]
    new: int
    failed: int
    requests: int
    tokens: int


class Failure(NamedTuple):
    """reason: in words, without the key. is_sent: the server may have got the request. may_cost: it may have
    written an answer."""

    reason: str
    is_sent: bool = True
    may_cost: bool = True
    status: int = 0
    pause_seconds: float = 0.0


def read_prompt(path: Path, *fields: str) -> str:
    """The text of a prompt file. Raises ValueError if it lacks one of the fields, such as {text}."""
    prompt = path.read_text(encoding="utf-8", errors="replace")
    missing = [f"{{{field}}}" for field in fields if f"{{{field}}}" not in prompt]
    if missing:
        raise ValueError(f"{path} lacks {' and '.join(missing)}, the place of what the model has to read")
    return prompt


def filled(prompt: str, values: Mapping[str, object]) -> str:
    """The prompt with the values of its fields; other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), prompt).strip()


def max_tokens_of(text: str) -> int:
    """The most tokens that a request can cost: a tokenizer makes at most one of each byte."""
    return len(text.encode(errors="replace")) + CHAT_TOKENS + ANSWER_TOKENS


def announcement(server: Server, texts: Sequence[str], noun: str = "texts") -> str:
    """Say before the first request which host gets what, and the most tokens that it can cost."""
    tokens = sum(map(max_tokens_of, texts))
    tokens = tokens if server.max_tokens is None else min(tokens, server.max_tokens)
    requests = "" if server.max_requests is None else f", in at most {server.max_requests:,} requests"
    return (
        f"{server.host} gets {len(texts):,} {noun} for {server.model}{requests}: at most {tokens:,} tokens, "
        "prompts and answers together, if no request has to be repeated"
    )


class _Journal:
    """The answers by key, and the requests and tokens spent of one budget; the journal's lock is held."""

    def __init__(self, path: Path, budget: str):
        self.path, self.budget = path, budget
        records = read_json_lines(path)
        self.answers = {record["key"]: record["answer"] for record in records if "answer" in record}
        own = [record for record in records if record["budget"] == budget]
        self.requests = sum(record["requests"] for record in own)
        self.tokens = sum(record["tokens"] for record in own)

    def note(self, key: str, requests: int, tokens: int, answer: str | None = None) -> None:
        """Return when the line is on disk. Numbers are negative where less was spent than noted before."""
        record = {"key": key, "budget": self.budget, "requests": requests, "tokens": tokens}
        append_json_line(self.path, record if answer is None else {**record, "answer": answer}, durable=True)
        self.requests += requests
        self.tokens += tokens
        if answer is not None:
            self.answers[key] = answer


def ask(
    server: Server, texts: Sequence[str], path: Path, budget: str = "", label: str = "answers"
) -> Answers:
    """The model's answers to the texts, asked for in their order as long as the budget lasts.

    path: the journal. budget: the name under which it counts what is spent. A request that fails is repeated;
    a text whose requests all fail has no answer, and the next call asks for it again. Raises ConnectionError,
    with one line, if the server cannot be reached, refuses all requests, or fails FAILURES times in a row.
    """
    host = server.host
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(beside(path, "writing"), what=str(path)):
        journal = _Journal(path, budget)
        keys = [sha256_json([server.model, text]) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in journal.answers}
        known, failed = len(journal.answers), 0
        if missing:
            failed = _ask(server, missing, journal, label)
    if failed:
        log.warning("%s gave no answer to %d texts", host, failed)
    found = [journal.answers.get(key) for key in keys]
    return Answers(found, len(journal.answers) - known, failed, journal.requests, journal.tokens)


def _ask(server: Server, missing: Mapping[str, str], journal: _Journal, label: str) -> int:
    """Ask for the missing texts by key, and return the number of those whose requests failed."""
    waiting = deque((key, text, 1, 0.0) for key, text in missing.items())
    running: dict[Future[tuple[str, int] | Failure], tuple[str, str, int]] = {}
    before, reason = len(journal.answers), ""
    failed = failures_in_row = 0
    log.info(announcement(server, list(missing.values())))
    bar = progress_bar(total=len(missing), desc=label, unit="text", leave=False)
    # Each request is taken from the budget, so the client repeats none by itself.
    with client_of(server) as client, ThreadPoolExecutor(THREADS) as pool, bar:
        while waiting or running:
            while waiting and len(running) < THREADS:
                key, text, attempt, pause_seconds = waiting[0]
                most = max_tokens_of(text)
                if not server.allows(journal.requests + 1, journal.tokens + most):
                    break
                waiting.popleft()
                journal.note(key, 1, most)
                running[pool.submit(_send, client, server, text, pause_seconds)] = key, text, attempt
            if not running:
                break  # the budget is spent
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key, text, attempt = running.pop(future)
                most, result = max_tokens_of(text), future.result()
                if not isinstance(result, Failure):
                    answer, tokens = result
                    journal.note(key, 0, tokens - most, answer)
                    failures_in_row = 0
                    bar.update()
                    continue
                if not result.may_cost:
                    journal.note(key, 0 if result.is_sent else -1, -most)
                failures_in_row += 1
                is_last = attempt == ATTEMPTS or result.status in FINAL
                is_down = failures_in_row >= FAILURES or (is_last and not result.is_sent)
                if is_down or result.status in REFUSING:
                    reason = reason or result.reason
                    waiting.clear()  # what is on its way is still read
                elif is_last:
                    failed += 1
                    bar.update()
                elif not reason:
                    pause_seconds = result.pause_seconds or PAUSE_SECONDS * 4 ** (attempt - 1)
                    waiting.appendleft((key, text, attempt + 1, pause_seconds))
    if reason:
        raise ConnectionError(
            f"{server.host} {reason}; {len(journal.answers) - before:,} of {len(missing):,} texts were "
            f"answered, which {journal.path} keeps; the same command asks for the others"
        )
    return failed


def client_of(server: Server, max_retries: int = 0) -> "OpenAI":
    from openai import OpenAI, Timeout

    timeout = Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS)
    return OpenAI(base_url=server.url, api_key=_key() or "none", max_retries=max_retries, timeout=timeout)


def _key() -> str:
    return os.environ.get(KEY, "").strip()


def _without_key(text: str) -> str:
    """Servers repeat what they got in messages; a word such as EMPTY, for a local server, is no secret."""
    return text.replace(_key(), "[key]") if len(_key()) > 8 else text


def _send(client: "OpenAI", server: Server, text: str, pause_seconds: float) -> tuple[str, int] | Failure:
    """The model's answer, and the tokens of prompt and answer as the server counts them."""
    time.sleep(pause_seconds)
    # OpenAI's reasoning models refuse the parameters that all other servers know.
    is_openai = urlsplit(server.url).hostname == OPENAI
    limits = {"max_completion_tokens": ANSWER_TOKENS} if is_openai else {"max_tokens": ANSWER_TOKENS}
    try:
        reply = client.chat.completions.with_raw_response.create(
            model=server.model,
            messages=[{"role": "user", "content": text}],
            extra_body=limits if is_openai else {**limits, "temperature": 0},
        )
        body = json.loads(_without_key(reply.text))
        answer = THOUGHTS.sub("", body["choices"][0]["message"]["content"] or "")
        if body["choices"][0].get("finish_reason") == "length":  # the last line is a part of one
            answer = answer[: answer.rfind("\n") + 1]
        used = (body.get("usage") or {}).get("total_tokens")
        return answer, used if isinstance(used, int) and used >= 0 else max_tokens_of(text)
    except Exception as error:
        return failure_of(error, "a chat model")


def failure_of(error: Exception, noun: str) -> Failure:
    """What went wrong with a request; `noun` is what should have answered. Raises other errors again."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        wait_seconds = error.response.headers.get("retry-after", "")
        pause = min(float(wait_seconds), MAX_PAUSE_SECONDS) if wait_seconds.isdecimal() else 0.0
        status, reason = error.status_code, f"answers: {' '.join(_without_key(str(error)).split())[:200]}"
        if status in REFUSING:
            reason += f" (check {KEY}, the name of the model, and the address, which may have to end in /v1)"
        return Failure(reason, may_cost=False, status=status, pause_seconds=pause)
    if isinstance(error, APIConnectionError):  # timeouts are some of these
        cause = error.__cause__ or error
        is_sent = (kind := type(cause).__name__) not in ("ConnectError", "ConnectTimeout")
        breaks = "does not answer in time" if kind == "ReadTimeout" else "breaks off"
        reason = f"{breaks if is_sent else 'cannot be reached'}: {_without_key(str(cause))}"
        return Failure(reason, is_sent, may_cost=is_sent)
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        return Failure(f"gives answers that are no answers of {noun}")
    raise error
