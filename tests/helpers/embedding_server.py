"""A server on loopback that answers as vLLM's embeddings API does, by an encoder of ours, well or badly."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.encoder import Encoder

# Changes the vectors (T, D) of the request of this number, from 1 on, or gives a status in their place.
Change = Callable[[np.ndarray, int], "np.ndarray | int"]


class Embeddings:
    """url: the address of the API. encoders: by the models' names. asked: the token ids of the texts that it
    has answered. requests: their number so far. load: makes an encoder of an adapter's folder."""

    def __init__(self, encoders: dict[str, Encoder], change: Change, load: Callable[[Path], Encoder]):
        self.encoders, self.change, self.load = encoders, change, load
        self.asked, self.requests, self.keys = [], 0, set()
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def vectors(self, model: str, texts: list[list[int]]) -> np.ndarray:
        tokens, encoder = TokenStore.of_lists(texts, Specials((), (), 0)), self.encoders[model]
        vectors = np.empty((len(texts), encoder.dimension), np.float32)
        for rows, batch in encoder.encode_rows(tokens, np.arange(len(texts)), "document", "fp32"):
            vectors[rows] = batch
        return vectors

    def answer(self, path: str, body: dict) -> "dict | int | str":
        if path == "/v1/load_lora_adapter":
            self.encoders[body["lora_name"]] = self.load(Path(body["lora_path"]))
            return f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        with self.lock:
            self.requests += 1
            found = self.change(self.vectors(body["model"], body["input"]), self.requests)
            if isinstance(found, int):
                return found
            self.asked += body["input"]
        data = [
            {"object": "embedding", "index": i, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for i, vector in enumerate(np.ascontiguousarray(found, "<f4"))
        ]
        used = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data[::-1], "model": body["model"], "usage": used}

    def handler(own) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                own.keys.add(self.headers["Authorization"])
                self.say(own.answer(self.path, body))

            def do_GET(self) -> None:
                models = [{"id": name, "object": "model"} for name in own.encoders]
                self.say({"object": "list", "data": models})

            def say(self, said: "dict | int | str") -> None:
                status = said if isinstance(said, int) else 200
                if isinstance(said, int):
                    said = {"error": {"message": f"no: {self.headers['Authorization']}"}}
                self.send_response(status)
                self.send_header(
                    "Content-Type", "application/json" if isinstance(said, dict) else "text/plain"
                )
                data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words) -> None:
                pass

        return Handler


@contextmanager
def embedding_server(
    encoder: Encoder, change: Change = lambda vectors, _: vectors, load: Callable | None = None
) -> Iterator[Embeddings]:
    """It knows `encoder` as `ours`."""
    server = Embeddings({"ours": encoder}, change, load)
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
