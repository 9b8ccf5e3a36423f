"""A server on loopback that answers as chat models do, well or badly, and remembers what it was asked."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers.openai_server import OpenAiServer

KEY = "sk-test-0123456789abcdef"

# By its text and the number of requests with this text so far: an answer, a status, or how it goes wrong.
Reply = Callable[[str, int], "str | int | tuple"]


class LanguageModel(OpenAiServer):
    """asked: the number of requests by text. bodies: all of them."""

    def __init__(self, reply: Reply):
        self.reply, self.asked, self.bodies = reply, Counter(), []
        super().__init__()

    def answer(self, path: str, body: dict | None) -> tuple[dict | str | int, dict]:
        text = body["messages"][0]["content"]
        with self.lock:
            self.bodies.append(body)
            self.asked[text] += 1
            count = self.asked[text]
        answer, more = self.reply(text, count), {}
        if isinstance(answer, tuple):
            answer, more = answer
        if isinstance(answer, int):
            return answer, more
        choice = {"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        choice |= more.get("choice", {})
        return {"choices": [choice], "usage": {"total_tokens": 10}, **more.get("body", {})}, more


@contextmanager
def language_model(reply: Reply) -> Iterator[LanguageModel]:
    model = LanguageModel(reply)
    try:
        yield model
    finally:
        model.stop()
