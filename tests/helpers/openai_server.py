"""A server on loopback with OpenAI's API, whose answers a class below it gives, well or badly."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class OpenAiServer:
    """url: the address of the API. keys: the authorizations that it has got."""

    def __init__(self) -> None:
        self.keys, self.lock = set(), threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str, body: dict | None) -> tuple[dict | str | int, dict[str, Any]]:
        """JSON, text or a status, and how the answer breaks: after so many `bytes`, or of a length with
        `missing_bytes`. body: None for a GET."""
        raise NotImplementedError

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def handler(own) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                own.keys.add(self.headers["Authorization"])
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.say(*own.answer(self.path, json.loads(body)))

            def do_GET(self) -> None:
                self.say(*own.answer(self.path, None))

            def say(self, said: dict | str | int, broken: dict[str, Any]) -> None:
                status = said if isinstance(said, int) else 200
                if isinstance(said, int):  # as some servers do, with all that they know
                    said = {"error": {"message": f"no: {self.headers['Authorization']}"}}
                kind = "text/plain" if isinstance(said, str) else "application/json"
                text = said if isinstance(said, str) else json.dumps(said)
                data = text.encode()[: broken.get("bytes")]
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data) + broken.get("missing_bytes", 0)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words: Any) -> None:
                pass

        return Handler
