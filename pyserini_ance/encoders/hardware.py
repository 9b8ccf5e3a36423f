"""What a processor or a GPU is fast at, by its name and its instructions.

Nothing is timed: a run chooses the same on the same machine. PYSERINI_ANCE_PROCESSOR=plain (or another of
`PROCESSORS`) in the environment chooses as on that processor.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TENSOR_CORES = (7, 0)  # the compute capability from which a GPU multiplies fp16 faster than fp32 (Volta)
CPUINFO = Path("/proc/cpuinfo")
ZEN_5 = 26  # its processor family
PROCESSOR_SETTING = "PYSERINI_ANCE_PROCESSOR"


class Processor(NamedTuple):
    """AMD's family (25: Zen 3 and 4, 26: Zen 5; None: another vendor), and whether it multiplies in bf16
    (AVX512-BF16 or AMX). On AMD's, oneDNN multiplies in fp32 faster than MKL does."""

    amd_family: int | None
    has_fast_bf16: bool


PROCESSORS = {
    "plain": Processor(None, False),  # Intel up to Ice Lake, and others
    "amx": Processor(None, True),  # Intel from Sapphire Rapids on
    "zen3": Processor(25, False),
    "zen4": Processor(25, True),
    "zen5": Processor(26, True),
}


def usable_cores() -> int:
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def processor() -> Processor:
    """The processor of this machine, or the one that the environment names."""
    if (name := os.environ.get(PROCESSOR_SETTING)) is None:
        # Others emulate bf16, which is slower than fp32; oneDNN's own probe says yes to any AVX-512.
        probe: Any = getattr(torch.cpu, "get_capabilities", dict)  # a torch without this probe stays in fp32
        return Processor(_amd_family(), any(map(probe().get, ("avx512_bf16", "amx_bf16"))))
    if name not in PROCESSORS:
        raise ValueError(f"{PROCESSOR_SETTING} is {name!r}; expected one of {', '.join(PROCESSORS)}")
    return PROCESSORS[name]


@cache
def _amd_family() -> int | None:
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    # The last processor's values stay; all are alike.
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(values.get("cpu family", 0)) if values.get("vendor_id") == "AuthenticAMD" else None


def cpu_prefers_eager_attention() -> bool:
    """Whether transformers' eager attention is faster than torch's fused attention (SDPA).

    On an AMD EPYC of Zen 5 it is, 1.2 (bf16) to 2 times (fp32); not on one of Zen 4, nor on an Intel Xeon.
    """
    return (processor().amd_family or 0) >= ZEN_5


def resolve_precision(setting: str, device: str) -> Precision:
    """Replace `auto` by bf16 if `device` is fast in it, else by fp16 on a GPU with tensor cores (Volta and
    Turing), else by fp32; return other settings unchanged."""
    if setting != "auto":
        return cast(Precision, setting)
    if device == "cpu" or not torch.cuda.is_available():
        return "bf16" if processor().has_fast_bf16 else "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability() >= TENSOR_CORES else "fp32"
