"""A server on loopback that answers as vLLM's embeddings API does, by an encoder of ours, well or badly."""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from helpers.openai_server import OpenAiServer

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.encoder import Encoder

# Changes the vectors (T, D) of the request of this number, from 1 on, or gives a status in their place.
Change = Callable[[np.ndarray, int], "np.ndarray | int"]


class Embeddings(OpenAiServer):
    """encoders: by the models' names. asked: the token ids of the texts that it
    has answered. requests: their number so far. load: makes an encoder of an adapter's folder."""

    def __init__(self, encoders: dict[str, Encoder], change: Change, load: Callable[[Path], Encoder]):
        self.encoders, self.change, self.load = encoders, change, load
        self.asked, self.requests = [], 0
        super().__init__()

    def vectors(self, model: str, texts: list[list[int]]) -> np.ndarray:
        tokens, encoder = TokenStore.of_lists(texts, Specials((), (), 0)), self.encoders[model]
        vectors = np.empty((len(texts), encoder.dimension), np.float32)
        for rows, batch in encoder.encode_on_device(tokens, np.arange(len(texts)), "document", "fp32"):
            vectors[rows] = batch
        return vectors

    def answer(self, path: str, body: dict | None) -> tuple[dict | str | int, dict]:
        if body is None:
            return {"object": "list", "data": [{"id": name, "object": "model"} for name in self.encoders]}, {}
        if path == "/v1/load_lora_adapter":
            self.encoders[body["lora_name"]] = self.load(Path(body["lora_path"]))
            return f"Success: LoRA adapter '{body['lora_name']}' added successfully.", {}
        with self.lock:
            self.requests += 1
            found = self.change(self.vectors(body["model"], body["input"]), self.requests)
            if isinstance(found, int):
                return found, {}
            self.asked += body["input"]
        data = [
            {"object": "embedding", "index": i, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for i, vector in enumerate(np.ascontiguousarray(found, "<f4"))
        ]
        used = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data[::-1], "model": body["model"], "usage": used}, {}


@contextmanager
def embedding_server(
    encoder: Encoder, change: Change = lambda vectors, _: vectors, load: Callable | None = None
) -> Iterator[Embeddings]:
    """It knows `encoder` as `ours`."""
    server = Embeddings({"ours": encoder}, change, load)
    try:
        yield server
    finally:
        server.stop()
