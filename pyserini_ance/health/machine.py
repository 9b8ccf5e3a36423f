"""Checks of the machine: processor, memory, GPUs, and where bf16 is fast."""

import os

import torch

from pyserini_ance.health.finding import Finding
from pyserini_ance.vectors.precision import cpu_has_fast_bf16

GIB = 1 << 30


def processor() -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bf16 = "bf16" if cpu_has_fast_bf16() else "no fast bf16: encodes in fp32"
    return [Finding("cpu", f"{cores} cores, {memory_bytes / GIB:.0f} GiB memory, {bf16}")]


def gpus() -> list[Finding]:
    if torch.cuda.is_available():
        return [_gpu(number) for number in range(torch.cuda.device_count())]
    if os.path.exists("/dev/nvidiactl"):
        cure = f"this torch wants a driver for CUDA {torch.version.cuda}; see nvidia-smi"
        return [Finding("gpu", "there is one, but torch cannot use it", "warn", cure)]
    return [Finding("gpu", "none, the processor is used")]


def _gpu(number: int) -> Finding:
    about = torch.cuda.get_device_properties(number)
    with torch.cuda.device(number):
        bf16 = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no bf16 (before Ampere)"
    return Finding(f"gpu {number}", f"{about.name}, {about.total_memory / GIB:.0f} GiB, {bf16}")
