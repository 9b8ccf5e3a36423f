"""A server on loopback that answers as chat models do, well or badly, and remembers what it was asked."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-test-0123456789abcdef"

# By its text and the number of requests with this text so far: an answer, a status, or how it goes wrong.
Reply = Callable[[str, int], "str | int | tuple"]


class LanguageModel:
    """url: the address of the API. asked: the number of requests by text. bodies: all of them."""

    def __init__(self, reply: Reply):
        self.reply, self.asked, self.bodies = reply, Counter(), []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def handler(model) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = body["messages"][0]["content"]
                with model.lock:
                    model.bodies.append(body)
                    model.asked[text] += 1
                    count = model.asked[text]
                answer = model.reply(text, count)
                status, more = 200, {}
                if isinstance(answer, tuple):
                    answer, more = answer
                if isinstance(answer, int):  # as some servers do, with all that they know
                    status, said = answer, {"error": {"message": f"no: {self.headers['Authorization']}"}}
                else:
                    choice = {"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
                    choice |= more.get("choice", {})
                    said = {"choices": [choice], "usage": {"total_tokens": 10}, **more.get("body", {})}
                data = json.dumps(said).encode()[: more.get("bytes")]
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data) + more.get("missing_bytes", 0)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words) -> None:
                pass

        return Handler


@contextmanager
def language_model(reply: Reply) -> Iterator[LanguageModel]:
    model = LanguageModel(reply)
    try:
        yield model
    finally:
        model.stop()
