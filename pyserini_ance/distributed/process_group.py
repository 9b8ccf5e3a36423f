"""Join the processes that torchrun started: devices, the rendezvous and the process group."""

import functools
import itertools
import json
import logging
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from pyserini_ance.distributed.peers import POLL_SECONDS, Peers, init_heartbeats
from pyserini_ance.storage.liveness import this_process

log = logging.getLogger(__name__)
COLLECTIVE_SECONDS = (
    50  # all processes are ready when a collective begins; one that does not join in time is lost
)
BACKEND_SECONDS = (
    60  # torch's own limit: World gives up earlier and says why, but gloo lets no process exit before
)
START_SECONDS = 600  # the first import from a slow disk can take minutes on some hosts
_joins = itertools.count()  # a process can join again after it has left: every world has its own keys


def device_of(setting: str) -> str:
    """Return this process's device for a recipe's `setting` (auto, cpu, cuda, cuda:N).

    Under torchrun every process has its own GPU: that of its LOCAL_RANK, counted from N. Raises ValueError
    when there are too few GPUs.
    """
    if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if "LOCAL_RANK" not in os.environ:
        return "cuda" if setting == "auto" else setting
    first, processes = int(setting.partition(":")[2] or 0), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if first + processes > (gpus := torch.cuda.device_count()):
        raise ValueError(
            f"{processes} processes of this host, the first on GPU {first}, do not have a GPU each: "
            f"torch sees {gpus}; use fewer --nproc-per-node, or device=cpu"
        )
    return f"cuda:{first + int(os.environ['LOCAL_RANK'])}"


def join(device: str) -> Peers:
    """Make the process group and the heartbeats of its members; return when all processes have joined."""
    if device != "cpu":
        torch.cuda.set_device(device)
    store, rank, size = _rendezvous()
    name = f"pyserini_ance/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_joins)}"
    heartbeats = _connect(name)
    init_heartbeats(heartbeats, rank)
    processes = _exchange_process_ids(heartbeats, rank, size)
    backend, timeout = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timedelta(seconds=BACKEND_SECONDS)
    dist.init_process_group(
        backend, store=PrefixStore(name, store), rank=rank, world_size=size, timeout=timeout
    )
    return Peers(rank, processes, heartbeats, (lambda: None) if device == "cpu" else abort_gpu_collectives)


def abort_gpu_collectives() -> None:
    """End this process's unfinished collectives on GPUs, which another process will never join.

    Whatever waits on the GPU behind them goes on, with wrong numbers: the weights can be saved then, which no
    step changes before `World.wait` has seen its collectives end with all processes alive.
    """
    try:
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda")).abort()
    except Exception as error:  # on the thread that watches the others, which must go on
        log.warning("cannot abort the collectives on GPUs: %s", error)


def _exchange_process_ids(store: Store, rank: int, size: int) -> list[dict[str, Any]]:
    """The ids of all processes in rank order, once all have started."""
    store.set(f"process/{rank}", json.dumps(this_process()))
    end = time.monotonic() + START_SECONDS
    while missing := [other for other in range(size) if not store.check([f"process/{other}"])]:
        if time.monotonic() > end:
            raise RuntimeError(
                f"of {size} processes {missing} did not start within {START_SECONDS} s; "
                "see their own messages"
            )
        time.sleep(POLL_SECONDS)
    answers = store.multi_get([f"process/{other}" for other in range(size)])
    return [json.loads(answer) for answer in answers]


@functools.cache
def _rendezvous() -> tuple[Store, int, int]:
    """The store that torchrun's agent or process 0 holds, this process's rank, and the number of processes.

    The store stays open while this process lives.
    """
    return next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))


def _connect(name: str) -> Store:
    """A second connection to the same store: torch's own may be busy."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not re-export it explicitly
        address, port, is_master=False, timeout=timedelta(seconds=BACKEND_SECONDS), wait_for_workers=False
    )
    return PrefixStore(name, store)
