"""Shard tasks: which shards there are, who encodes them, and what becomes of those of a process that ends."""

import json
import os
import subprocess

import numpy as np
import pytest

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.storage import liveness
from pyserini_ance.storage.claim import CLAIM
from pyserini_ance.storage.publish import is_complete
from pyserini_ance.vectors.encoding import encode_shards
from pyserini_ance.vectors.shard_tasks import EncodedTexts, Shard, ShardTasks, text_windows

TEXTS, TOKENS_PER_BATCH = 50, 10  # windows of 4 texts
KEY = {"weights": "w", "precision": "fp32"}


class StubEncoder:
    """The vector of a text is its row, and the rows of its batch in the order in which they are encoded."""

    dimension = 2

    def __init__(self, before=lambda rows: None):
        self.before, self.encoded = before, []

    def length_tokens(self, side):
        return 8

    def encode_rows(self, tokens, rows, side, precision, tokens_per_batch):
        self.before(rows)
        self.encoded.append(rows.tolist())
        yield rows[::-1], np.stack([rows[::-1], np.full(len(rows), rows.sum())], 1).astype(np.float32)


@pytest.fixture
def make(tmp_path):
    def tasks(shards: int = 3, **settings) -> ShardTasks:
        tokens = TokenStore.of_lists([[1] * (i % 5) for i in range(TEXTS)], Specials((), (), 0))
        how = "document", "fp32", TOKENS_PER_BATCH, "documents", World()
        return ShardTasks(tmp_path / "tasks", shards, KEY, StubEncoder(**settings), tokens, *how)

    return tasks


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/3/5", "a/b", "1/0", "-1/3", ""])
def test_a_shard_is_a_number_of_a_number(text):
    assert Shard.parse("3/3") == (3, 3) and str(Shard.parse("2/3")) == "2/3"
    with pytest.raises(ValueError, match=f"--shard {text}: expected I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("texts", [1, 15, 16, 17, 400, 100_000])
@pytest.mark.parametrize("tokens_per_batch", [1, 64, 8192])
def test_shards_are_whole_windows_that_cover_the_texts_once(texts, tokens_per_batch):
    windows = text_windows(texts, tokens_per_batch)
    assert windows[0] == 0 and windows[-1] == texts and (np.diff(windows) > 0).all()
    assert len(windows) - 1 >= min(texts, 9)
    for of in {1, 2, 7, len(windows) - 1} & set(range(1, len(windows))):
        parts = [Shard(number, of).cut(windows) for number in range(1, of + 1)]
        assert np.concatenate([part[:-1] for part in parts]).tolist() == windows[:-1].tolist()
        assert [part[-1] for part in parts] == [*(part[0] for part in parts[1:]), texts]
        lengths = [len(part) for part in parts]
        assert min(lengths) > 1 and max(lengths) - min(lengths) <= 1
    with pytest.raises(ValueError, match=rf"has {len(windows) - 1} shards at most"):
        Shard(1, len(windows)).cut(windows)


def test_vectors_do_not_depend_on_the_number_of_shards_nor_on_who_encodes(make, tmp_path):
    whole = make()
    assert whole.encode_free()
    expected = whole.vectors()[:]
    assert expected[:, 0].tolist() == list(range(TEXTS)) and len(set(expected[:, 1])) == 13
    for shards in (1, 5, 99):
        tasks = make(shards)
        tasks.folder = tmp_path / f"of-{shards}"
        tasks.encode_all()
        assert len(tasks.shards) == min(shards, 13)
        assert (tasks.vectors()[:] == expected).all()
    whole.key = {**KEY, "weights": "v"}
    with pytest.raises(RuntimeError, match="does not hold the vectors"):
        whole.vectors()


def test_what_is_complete_or_not_needed_is_not_encoded(make):
    first = make()
    needed = iter([True, True, False])
    assert not first.encode_free(lambda: next(needed))
    assert sorted(path.name for path in first.folder.iterdir()) == ["1-of-3", "2-of-3"]
    second = make()
    assert second.encode_free() and second.encode_free()
    assert [rows[0] for rows in second.encoder.encoded] == [32, 36, 40, 44, 48]
    assert first.encode_free() and len(first.encoder.encoded) == 8


def test_what_a_living_process_encodes_is_left_to_it(make):
    second, seen = make(), []

    def meanwhile(rows):
        if rows[0] == 0:  # the first claims task 1; the second takes the others
            seen.append(second.encode_free())

    process_of = liveness.this_process()
    with pytest.MonkeyPatch.context() as patch:  # another process of this host, which lives
        other = {**process_of, "pid": os.getppid(), "started": liveness._start_ticks(os.getppid())}
        patch.setattr("pyserini_ance.storage.publish.this_process", lambda: other)
        first = make(before=lambda rows: (patch.undo(), meanwhile(rows)))
        assert first.encode_free()
    assert seen == [False] and [rows[0] for rows in first.encoder.encoded] == [0, 4, 8, 12]
    assert second.encode_free()


def test_the_task_of_a_killed_process_is_made_again(make):
    tasks = make()
    with subprocess.Popen(["sleep", "600"]) as other:
        about = {**liveness.this_process(), "pid": other.pid, "started": liveness._start_ticks(other.pid)}
        (tasks.folder / "1-of-3/vectors").mkdir(parents=True)
        (tasks.folder / "1-of-3" / CLAIM).write_text(json.dumps({**about, "time": 0}))
        assert not tasks.encode_free() and len(tasks.encoder.encoded) == 9
        other.kill()
    assert tasks.encode_free() and len(tasks.encoder.encoded) == 13
    assert sorted(path.name for path in tasks.folder.iterdir()) == ["1-of-3", "2-of-3", "3-of-3"]


def test_the_task_of_a_silent_host_is_made_again_under_another_name(make, clock, monkeypatch):
    monkeypatch.setattr("pyserini_ance.vectors.shard_tasks.time", clock)
    tasks = make()
    silent = tasks.folder / "2-of-3"
    silent.mkdir(parents=True)
    claim = {"pid": 1, "host": "elsewhere", "process_table": "x", "started": 1, "time": 0}
    (silent / CLAIM).write_text(json.dumps(claim))
    start = clock.now
    tasks.encode_all()
    assert liveness.LOST_SECONDS <= clock.now - start < liveness.LOST_SECONDS + 1
    names = sorted(path.name for path in tasks.folder.iterdir())
    assert names == ["1-of-3", "2-of-3", "2-of-3.1", "3-of-3"] and not is_complete(silent)
    assert make().encode_free(), "another process knows at once that the task is complete"
    assert tasks.vectors()[:][:, 0].tolist() == list(range(TEXTS))


def test_a_damaged_shard_is_named(make):
    tasks = make()
    tasks.encode_all()
    path = tasks.folder / "2-of-3/vectors/vectors.float32"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RuntimeError, match=f"{path} is not what"):
        tasks.vectors()


def test_vectors_that_are_there_are_copied(make, tmp_path):
    tasks = make()
    tasks.encode_all()
    made = EncodedTexts(tasks.encoder, tasks.vectors())
    tasks.encoder.encoded.clear()
    how = "document", "fp32", TOKENS_PER_BATCH, "documents", World()
    copied = encode_shards(tmp_path / "copy", KEY, made, tasks.tokens, *how)
    assert (copied[:] == tasks.vectors()[:]).all() and tasks.encoder.encoded == []
