"""Join the processes that torchrun started: find one another, then make torch's process group."""

import functools
import itertools
import json
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pyserini_ance.distributed.peers import POLL_SECONDS, Peers, open_books
from pyserini_ance.storage.owner import this_process

COLLECTIVE_SECONDS = 50  # all are there when one begins: who does not come within it is lost
BACKEND_SECONDS = 60  # for torch itself: World gives up first and can say why, but gloo lets no process exit before
START_SECONDS = 600  # the first import from a slow disk can take minutes on some hosts
_turns = itertools.count()  # a process can join again, after it has left: every world has keys of its own


def device_of(setting: str) -> str:
    """This process's device: `setting` is a recipe's (auto, cpu, cuda, cuda:N); with a GPU a process, its LOCAL_RANK's from N on."""
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if "LOCAL_RANK" not in os.environ:
        return "cuda" if setting == "auto" else setting
    first, processes = int(setting.partition(":")[2] or 0), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if first + processes > (gpus := torch.cuda.device_count()):
        asked = f"{processes} processes of this host, the first on GPU {first}"
        raise ValueError(f"{asked}, have no GPU each: torch sees {gpus}; fewer --nproc-per-node, or device=cpu")
    return f"cuda:{first + int(os.environ['LOCAL_RANK'])}"


def join(device: str) -> Peers:
    """Make the process group, and the watch over its members; returns when all are there."""
    if device != "cpu":
        torch.cuda.set_device(device)
    store, rank, size = _rendezvous()
    name = f"pyserini_ance/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_turns)}"
    books = _books(name)
    open_books(books, rank)
    owners = _owners(books, rank, size)
    backend, timeout = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timedelta(seconds=BACKEND_SECONDS)
    dist.init_process_group(backend, store=dist.PrefixStore(name, store), rank=rank, world_size=size, timeout=timeout)
    return Peers(rank, owners, books)


def _owners(books: dist.Store, rank: int, size: int) -> list[dict[str, Any]]:
    books.set(f"who/{rank}", json.dumps(this_process()))
    until = time.monotonic() + START_SECONDS
    while missing := [other for other in range(size) if not books.check([f"who/{other}"])]:
        if time.monotonic() > until:
            raise RuntimeError(f"of {size} processes {missing} did not start within {START_SECONDS} s; see their own messages")
        time.sleep(POLL_SECONDS)
    return [json.loads(who) for who in books.multi_get([f"who/{other}" for other in range(size)])]


@functools.cache
def _rendezvous() -> tuple[dist.Store, int, int]:
    """The store that torchrun's agent or process 0 holds, open while this process lives, its rank, and how many there are."""
    return next(dist.rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))


def _books(name: str) -> dist.Store:
    """A connection of our own to the same store: torch's may be busy."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    own = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=BACKEND_SECONDS), wait_for_workers=False)
    return dist.PrefixStore(name, own)
