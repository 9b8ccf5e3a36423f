"""Encode windows by a server that speaks OpenAI's embeddings API: vLLM, text-embeddings-inference.

It gets token ids, so that template, special tokens and length are those that our towers read. It does not
tell which weights it has and how it pools: before each encoding some of its vectors are compared with ours.
"""

import logging
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.adapters import adapters_of
from pyserini_ance.encoders.load_save import save_as_peft
from pyserini_ance.llm import ATTEMPTS, THREADS, Server, client_of, failure_of
from pyserini_ance.vectors.encoding import Windows, encode_some

if TYPE_CHECKING:
    from openai import OpenAI

TEXTS_PER_REQUEST = 32  # as many as text-embeddings-inference takes unless it is told otherwise
TEXTS_COMPARED = 32
MIN_COSINE = 0.999  # half precision keeps more
MAX_LENGTH_ERROR = 0.01
CONTINUES = (
    "what is encoded stays; the command with --resume continues, by other means with encoding.engine=inline"
)

log = logging.getLogger(__name__)


def encode(
    server: Server, windows: Windows, done: Callable[[int], object]
) -> Generator[tuple[int, np.ndarray]]:
    """As an Engine. Raises ConnectionError if the server fails, RuntimeError if its vectors are not ours."""
    rows = np.concatenate([np.arange(start, stop) for start, stop in windows.bounds])
    log.info("%s gets the token ids of %s texts for %s", server.host, f"{len(rows):,}", server.model)
    with client_of(server, ATTEMPTS - 1) as client, ThreadPoolExecutor(THREADS) as pool:
        ask = partial(_vectors, client, server, windows)
        places = np.linspace(0, len(rows) - 1, min(len(rows), TEXTS_COMPARED)).astype(np.int64)
        _compare(server, windows, rows[places], ask(rows[places]))
        for start, stop in windows.bounds:
            firsts = range(start, stop, TEXTS_PER_REQUEST)
            requests = [np.arange(first, min(first + TEXTS_PER_REQUEST, stop)) for first in firsts]
            parts = []
            for part in pool.map(ask, requests):
                parts.append(part)
                done(len(part))
            yield start, np.concatenate(parts)


def load_adapter(server: Server, encoder: Path, folder: Path, weights: str) -> str:
    """The model's name at the server, which is vLLM if the encoder in a folder has adapters for documents: it
    is then told to read these, by the name of their `weights`, from `folder`, which it must see.

    Raises ConnectionError if it does not load them.
    """
    adapters = adapters_of(encoder)
    if adapters is None or adapters.are_new or "document" not in adapters.sides:
        return server.model
    name = f"{server.model}-{weights[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    save_as_peft(encoder, folder, server.model)
    with client_of(server, ATTEMPTS - 1) as client:
        try:
            if name not in {model.id for model in client.models.list()}:
                asked = {"lora_name": name, "lora_path": str(folder.absolute())}
                client.post("/load_lora_adapter", body=asked, cast_to=str)
        except Exception as error:
            reason = failure_of(error, "vLLM").reason
            cure = "vLLM needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            raise ConnectionError(f"{server.host} {reason}, when asked to load {folder}; {cure}") from None
    return name


def _vectors(client: "OpenAI", server: Server, windows: Windows, rows: np.ndarray) -> np.ndarray:
    """The server's vectors (R, D) float32 of the texts `rows` (R,)."""
    encoder = windows.encoder
    ids, mask = windows.tokens.batch(rows, encoder.length_tokens(windows.side))
    texts = [own[: int(length)].tolist() for own, length in zip(ids, mask.sum(1), strict=True)]
    try:
        reply = client.embeddings.create(model=server.model, input=texts)
        found = sorted(reply.data, key=lambda one: one.index)
        vectors = np.array([one.embedding for one in found], np.float32)
    except Exception as error:
        reason = failure_of(error, "an embedding model").reason
        raise ConnectionError(f"{server.host} {reason}; {CONTINUES}") from None
    if vectors.shape != (expected := (len(rows), encoder.dimension)):
        raise RuntimeError(
            f"{server.host} gives {server.model}'s vectors as numbers of shape {vectors.shape}; expected "
            f"{expected}, as the encoder has"
        )
    return vectors


def _compare(server: Server, windows: Windows, rows: np.ndarray, found: np.ndarray) -> None:
    """Raise RuntimeError if the server's vectors (R, D) of `rows` (R,) are not ours."""
    settings = windows.side, windows.precision, windows.tokens_per_batch
    own = encode_some(windows.encoder, windows.tokens, rows, *settings, "sample", World())
    lengths, own_lengths = np.linalg.norm(found, axis=1), np.linalg.norm(own, axis=1)
    cosines = np.einsum("rd,rd->r", own, found) / (lengths * own_lengths)
    ratios = lengths / own_lengths
    said = (
        f"{server.host}: {len(rows)} vectors of {server.model} have a cosine of {cosines.min():.5f} to "
        f"{cosines.max():.5f} with ours, and {ratios.min():.3f} to {ratios.max():.3f} times their length"
    )
    if not (cosines.min() >= MIN_COSINE and np.abs(ratios - 1).max() <= MAX_LENGTH_ERROR):  # NaN is neither
        raise RuntimeError(
            f"{said}; expected {MIN_COSINE} or more, and lengths within {MAX_LENGTH_ERROR:.0%}: it has other "
            f"weights, or pools, normalizes or cuts in another way. Let it serve these weights; {CONTINUES}"
        )
    log.info("%s", said)
