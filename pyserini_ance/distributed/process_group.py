"""Join the processes that torchrun started: devices, the rendezvous and the process groups."""

import functools
import itertools
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

# All processes are ready when a collective begins; in the patient group one may work while the others wait.
COLLECTIVE_SECONDS = 60
PATIENT_SECONDS = 365 * 24 * 3600
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


def join(device: str) -> dist.ProcessGroup:
    """Make the default process group, and return the patient one, when all processes have joined."""
    if device != "cpu":
        torch.cuda.set_device(device)
    store, rank, size = _rendezvous()
    name = f"pyserini_ance/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_joins)}"
    timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    start = PrefixStore(name, store)
    start.set_timeout(timedelta(seconds=START_SECONDS))
    dist.init_process_group(backend, store=start, rank=rank, world_size=size, timeout=timeout)
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=PATIENT_SECONDS))


@functools.cache
def _rendezvous() -> tuple[Store, int, int]:
    """The store that torchrun's agent or process 0 holds, this process's rank, and the number of processes.

    The store stays open while this process lives.
    """
    return next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))
