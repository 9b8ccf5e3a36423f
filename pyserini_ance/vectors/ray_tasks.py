"""Encode windows as tasks of the Ray cluster that `ray.init` finds; a window comes whole or not at all.

A task has the threads of the process that submits it, or a GPU where that process encodes on one: on the same
type of processor, vectors are those of that process bit for bit.
"""

import hashlib
import io
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from types import ModuleType
from typing import Any

import numpy as np
import torch

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.encoder import Encoder, to_device
from pyserini_ance.vectors.encoding import Windows

ADDRESS = "RAY_ADDRESS"
CONNECT_SECONDS = 20
RETRIES = 8  # of a window whose worker or machine has died
TASKS_PER_PLACE = 2  # in flight: one is encoded, and the next has its tokens there

log = logging.getLogger(__name__)
_encoders: dict[str, Encoder] = {}  # in a worker: the last one, by the digest of its parts


def encode(windows: Windows, done: Callable[[int], object]) -> Generator[tuple[int, np.ndarray]]:
    """Encode by tasks, as an Engine. Raises RuntimeError without Ray or a cluster, and for a failed task."""
    ray = _connected()
    tokens, device, threads = windows.tokens, windows.encoder.device.type, torch.get_num_threads()
    encoder, parts = windows.encoder, io.BytesIO()  # a worker makes an encoder of them for its device
    torch.save((encoder.config, encoder.towers, encoder.tokenizer), parts)
    digest, stored = hashlib.sha256(parts.getbuffer()).hexdigest(), ray.put(parts.getvalue())
    del parts
    kind, needed = ("CPU", threads) if device == "cpu" else ("GPU", 1)
    if not any(node["Alive"] and node["Resources"].get(kind, 0) >= needed for node in ray.nodes()):
        log.warning("Ray: waiting for a machine with %d %ss; `threads` sets the CPUs of a task", needed, kind)
    task = ray.remote(max_retries=RETRIES, **{"num_cpus": 1, f"num_{kind.lower()}s": needed})(encode_window)
    settings = windows.side, windows.precision, windows.tokens_per_batch
    waiting = windows.bounds[::-1]
    running: dict[Any, int] = {}  # the first row of a window by its task
    try:
        while waiting or running:
            places = max(1, int(ray.cluster_resources().get(kind, 0) // needed))  # a cluster may grow
            while waiting and len(running) < TASKS_PER_PLACE * places:
                start, stop = waiting.pop()
                ids, mask = tokens.batch(np.arange(start, stop), encoder.length_tokens(windows.side))
                offsets, specials = np.append(0, mask.sum(1).cumsum()), Specials((), (), tokens.specials.pad)
                own = TokenStore(ids[mask.astype(bool)].astype(np.uint32), offsets, specials)
                # A list keeps Ray from fetching the encoder for each task.
                running[task.remote(digest, [stored], device, threads, own, *settings)] = start
            (ended,), _ = ray.wait(list(running))
            start, vectors = running.pop(ended), ray.get(ended)
            done(len(vectors))
            yield start, vectors
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        raise RuntimeError(f"encoding.engine: ray: {cause}; the command with --resume continues") from error
    finally:
        for ended in running:
            ray.cancel(ended)


def encode_window(
    digest: str, stored: list[Any], device: str, threads: int, tokens: TokenStore, *settings: Any
) -> np.ndarray:
    """In a worker: the vectors (W, D) of all of `tokens`; `stored` refers to the encoder's parts."""
    import ray

    torch.set_num_threads(threads)
    if digest not in _encoders:
        _encoders.clear()
        parts = io.BytesIO(ray.get(stored[0]))
        config, towers, tokenizer = torch.load(parts, map_location=device, weights_only=False)
        _encoders[digest] = Encoder(config, towers, tokenizer, device)
    encoder = _encoders[digest]
    vectors = torch.empty((len(tokens), encoder.dimension), device=device)
    for rows, batch in encoder.encode_on_device(tokens, np.arange(len(tokens)), *settings):
        vectors[to_device(encoder.device, rows)[0]] = batch
    return vectors.cpu().numpy()


def _connected() -> ModuleType:
    """Ray, connected to the cluster that RAY_ADDRESS names, to one that runs here, or to a new one here."""
    try:
        import ray
    except ImportError:
        cure = "pip install 'pyserini_ance[ray]'"
        raise RuntimeError(f"encoding.engine: ray needs Ray; install it: {cure}") from None
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    on_termination = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL  # Ray sets a handler of its own
    named = os.environ.get(ADDRESS, "")
    host, _, port = named.rpartition("://")[2].rpartition(":")
    try:
        if port.isdecimal():  # Ray itself would try for a quarter of an hour
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, ValueError, RuntimeError) as error:
        named = f"{ADDRESS}={named}" if named else "this machine"
        cure = f"start one with `ray start --head`, or unset {ADDRESS}: Ray then starts one here"
        cure += "; one that was started with a token wants RAY_AUTH_MODE=token"
        raise RuntimeError(f"encoding.engine: ray: no cluster at {named} ({error}); {cure}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_termination)
    address, found = ray.get_runtime_context().gcs_address, ray.cluster_resources()
    log.info("Ray: the cluster at %s, %g CPUs, %g GPUs", address, found.get("CPU", 0), found.get("GPU", 0))
    return ray
