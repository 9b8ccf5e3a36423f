"""An interrupted tokenization resumes and ends with the same bytes as an uninterrupted one."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from pyserini_ance.data import token_store
from pyserini_ance.data import token_store as token_parts
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.token_store import LENGTHS, LOG, Specials, TokenWriter, open_or_build
from pyserini_ance.storage.publish import is_complete

TEXTS = Texts([f"d{n}" for n in range(23)], {"text": [" ".join(map(str, range(n % 7))) for n in range(23)]})
BUILDER = """
import sys, time
from pathlib import Path
from pyserini_ance.data import token_store
from pyserini_ance.data import token_store as token_parts
from data.test_token_parts import TEXTS, SPECIALS, ids

def tokenize(records):
    global blocks
    if blocks == 3:
        print("killed here", flush=True)
        sys.stdin.read()
    blocks += 1
    return ids(records)

blocks, token_store.TEXTS_PER_CALL, token_parts.SYNC_SECONDS = 0, 4, -1
token_store.open_or_build(Path(sys.argv[1]), TEXTS, tokenize, SPECIALS, 100, "texts")
"""
SPECIALS = Specials((1,), (2,), 0)


def ids(records: list[dict]) -> list[list[int]]:
    return [[int(word) + 3 for word in record["text"].split()] for record in records]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(token_store, "TEXTS_PER_CALL", 4)
    monkeypatch.setattr(token_parts, "SYNC_SECONDS", -1)


def build(folder, fail_at: int | None = None) -> list[int]:
    """The numbers of the tokenised texts, block by block."""
    blocks = []

    def tokenize(records):
        if len(blocks) == fail_at:
            raise OSError("No space left on device")
        blocks.append(len(records))
        return ids(records)

    open_or_build(folder, TEXTS, tokenize, SPECIALS, 100, "texts")
    return blocks


def content(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


@pytest.fixture
def whole(tmp_path) -> dict[str, bytes]:
    assert build(tmp_path / "whole") == [4] * 5 + [3]
    return content(tmp_path / "whole")


def test_tokenization_resumes_after_a_kill(tmp_path, whole):
    folder = tmp_path / "store"
    command = [sys.executable, "-c", BUILDER, folder]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, "tests"])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=paths
    ) as builder:
        assert builder.stdout.readline() == "killed here\n"
        os.kill(builder.pid, signal.SIGKILL)
    assert not is_complete(folder) and (tmp_path / ".store.parts" / LENGTHS).stat().st_size == 12 * 4
    assert build(folder) == [4, 4, 3]
    assert content(folder) == whole and not (tmp_path / ".store.parts").exists()


def test_an_error_keeps_finished_work(tmp_path, whole):
    with pytest.raises(OSError, match="No space left"):
        build(tmp_path / "store", fail_at=5)
    assert not (tmp_path / "store").exists()
    assert build(tmp_path / "store") == [3] and content(tmp_path / "store") == whole


@pytest.mark.parametrize(
    ("name", "damage", "remaining"),
    [
        ("ids.uint16", lambda data: data[:-1], [4, 4, 3]),
        ("ids.uint16", lambda data: data + b"half a block", [4, 3]),
        ("ids.uint16", lambda data: b"x" + data[1:], [4] * 5 + [3]),
        (LENGTHS, lambda data: data[:40] + b"x" + data[41:], [4, 4, 4, 3]),
        (LENGTHS, lambda data: b"", [4] * 5 + [3]),
        (LOG, lambda data: data[:-20], [4, 4, 3]),
        (LOG, lambda data: b"", [4] * 5 + [3]),
    ],
    ids=["cut short", "too long", "changed at first", "changed later", "gone", "a cut line", "no log"],
)
def test_data_that_does_not_match_the_log_is_made_again(tmp_path, whole, name, damage, remaining):
    with pytest.raises(OSError, match="No space left"):
        build(tmp_path / "store", fail_at=4)
    part = tmp_path / ".store.parts" / name
    part.write_bytes(damage(part.read_bytes()))
    assert build(tmp_path / "store") == remaining and content(tmp_path / "store") == whole


def test_a_log_line_is_written_every_two_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(token_parts, "SYNC_SECONDS", 3600)
    parts = TokenWriter(tmp_path / "parts", np.uint16)
    parts.append([[1, 2], []])
    parts.append([[3]])
    assert (tmp_path / "parts" / LOG).read_text() == ""
    parts.commit()
    parts.close()
    again = TokenWriter(tmp_path / "parts", np.uint16)
    assert (again.texts, again.tokens, again.lengths().tolist()) == (3, 3, [2, 0, 1])
    assert len((tmp_path / "parts" / LOG).read_text().splitlines()) == 1
    again.close()
