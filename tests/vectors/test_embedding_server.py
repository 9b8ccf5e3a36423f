"""Documents encoded by a server of OpenAI's embeddings API, which answers well, badly or not at all."""

import logging
import re
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.embedding_server import embedding_server
from helpers.language_model import KEY

from pyserini_ance import llm
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.llm import Server
from pyserini_ance.vectors import embedding_server as engine
from pyserini_ance.vectors import encoding
from pyserini_ance.vectors.encoding import encode_shards
from pyserini_ance.vectors.vector_store import written_windows

RECORDS = [{"text": "word " * length} for length in np.random.default_rng(0).integers(0, 60, 200).tolist()]


@pytest.fixture(autouse=True)
def quick(quick_language_model, monkeypatch):
    """Requests are repeated at once; windows of 64 texts."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 64)


@pytest.fixture(scope="module")
def encoder(tiny_bert) -> Encoder:
    settings = {"pooling": "mean", "tokenization": {"document": {"length_tokens": 48}}}
    return initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1)


def encoded(folder: Path, encoder: Encoder, url: str | None = None, model: str = "ours") -> np.ndarray:
    tokenizer = encoder.tokenizer
    tokens = TokenStore.of_lists(tokenizer.ids("document", RECORDS), tokenizer.specials["document"])
    by_server = url and partial(engine.encode, Server(url, model))
    settings = "document", "fp32", 256, "documents", World()
    return np.array(encode_shards(folder, {}, encoder, tokens, *settings, engine=by_server)[:])


def sometimes(status: int, vectors: np.ndarray, number: int) -> np.ndarray | int:
    return status if number % 3 == 0 else vectors


@pytest.mark.parametrize(
    "change", [lambda vectors, _: vectors, partial(sometimes, 500), partial(sometimes, 429)]
)
def test_the_server_reads_what_our_tower_reads(encoder, tmp_path, caplog, change):
    """Each text once, and the 32 that are compared; a request that fails is repeated."""
    caplog.set_level(logging.INFO, "pyserini_ance")
    with embedding_server(encoder, change) as server:
        found = encoded(tmp_path / "http", encoder, server.url)
    np.testing.assert_allclose(found, encoded(tmp_path / "inline", encoder), atol=1e-5)
    before, after, _ = encoder.tokenizer.specials["document"]
    ids = [[*[*before, *own][:47], *after] for own in encoder.tokenizer.ids("document", RECORDS)]
    assert sorted(server.asked[32:]) == sorted(ids) and server.keys == {f"Bearer {KEY}"}
    said, compared = (record.message for record in caplog.records)
    assert said == f"{server.host} gets the token ids of 200 texts for ours"
    cosines = "32 vectors of ours have a cosine of 1.00000 to 1.00000 with ours"
    assert compared == f"{server.host}: {cosines}, and 1.000 to 1.000 times their length"


SCALED = r"1\.00000 with ours, and 0\.\d+ to 0\.\d+ times their length; expected 0\.999"
WRONG = {
    "other weights": (lambda vectors, _: vectors[:, ::-1], r"a cosine of -?0\.\d+ to 0\.\d+ with ours"),
    "normalized": (lambda vectors, _: vectors / np.linalg.norm(vectors, axis=1, keepdims=True), SCALED),
    "no numbers": (lambda vectors, _: vectors * np.nan, "a cosine of nan to nan"),
    "half of the numbers": (lambda vectors, _: vectors[:, :16], r"shape \(32, 16\); expected \(32, 32\)"),
    "too few": (lambda vectors, _: vectors[1:], r"shape \(31, 32\); expected \(32, 32\)"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_other_vectors_than_ours_are_refused_with_the_numbers(encoder, tmp_path, change, message):
    with embedding_server(encoder, change) as server, pytest.raises(RuntimeError, match=message):
        encoded(tmp_path, encoder, server.url)
    assert server.requests == 1 and not written_windows(tmp_path / "0-of-1")


def slow(request: int, vectors: np.ndarray, number: int) -> np.ndarray:
    """The request of this number, or each (0), is answered when nobody waits any more."""
    if request in (0, number):
        time.sleep(3 if request else 0.5)
    return vectors


def test_a_slow_answer_is_asked_for_again(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(llm, "TIMEOUT_SECONDS", 2.0)
    with embedding_server(encoder, partial(slow, 3)) as server:
        found = encoded(tmp_path / "http", encoder, server.url)
    np.testing.assert_allclose(found, encoded(tmp_path / "inline", encoder), atol=1e-5)
    assert server.requests > 1 + 7  # 32 texts that are compared, and 64, 64, 64 and 8


def test_a_server_that_is_always_too_slow_fails(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(llm, "TIMEOUT_SECONDS", 0.1)
    message = "does not answer in time: timed out; what is encoded stays"
    with (
        embedding_server(encoder, partial(slow, 0)) as server,
        pytest.raises(ConnectionError, match=f"{server.host} {message}"),
    ):
        encoded(tmp_path, encoder, server.url)


def test_a_server_that_dies_keeps_what_is_encoded(encoder, tmp_path):
    """It dies in the second window of 64 texts; the next server gets no text of the first."""
    with (
        embedding_server(encoder, lambda vectors, number: 503 if number > 3 else vectors) as server,
        pytest.raises(ConnectionError, match="answers: .*; what is encoded stays"),
    ):
        encoded(tmp_path / "http", encoder, server.url)
    assert written_windows(tmp_path / "http/0-of-1") == {(0, 64)}
    with pytest.raises(ConnectionError, match=rf"{server.host} cannot be reached"):
        encoded(tmp_path / "http", encoder, server.url)
    with embedding_server(encoder) as server:
        found = encoded(tmp_path / "http", encoder, server.url)
    assert len(server.asked) == 32 + 200 - 64
    np.testing.assert_allclose(found, encoded(tmp_path / "inline", encoder), atol=1e-5)


def test_a_refusal_is_not_repeated_and_tells_no_key(encoder, tmp_path):
    with embedding_server(encoder, lambda *_: 401) as server, pytest.raises(ConnectionError) as error:
        encoded(tmp_path, encoder, server.url)
    assert server.requests == 1 and KEY not in str(error.value)
    assert re.search(r"401.*\[key\].*check OPENAI_API_KEY, the name of the model", str(error.value))
