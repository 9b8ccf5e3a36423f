"""Hardware and libraries: which precision is fast on this device, and faiss set to matrix products."""

from types import ModuleType

import torch

# The default of faiss 1.15.1: with fewer numbers (queries times dimension) it compares vector by vector. That
# default was measured with many threads. With one thread, matrix products are faster from some 800 numbers on
# (facebookresearch/faiss, pull request 5109): k-means is 18 times as fast.
DEFAULT_BLAS_THRESHOLD = 128_000
BLAS_THRESHOLD_PER_THREAD = 800


def import_faiss() -> ModuleType:
    """Import faiss, and set it to compare many vectors by matrix products.

    Raises ImportError when it is not installed.
    """
    import faiss

    if faiss.cvar.distance_compute_blas_threshold == DEFAULT_BLAS_THRESHOLD:
        faiss.cvar.distance_compute_blas_threshold = BLAS_THRESHOLD_PER_THREAD * faiss.omp_get_max_threads()
    return faiss


def cpu_has_fast_bf16() -> bool:
    """Whether this processor multiplies in bf16 (AVX512-BF16 or AMX).

    Other processors emulate bf16, which is slower than fp32; oneDNN's own probe says yes to any AVX-512.
    """
    probe = getattr(torch.cpu, "get_capabilities", None)  # a torch without this probe stays in fp32
    capabilities = probe() if probe else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def resolve_precision(setting: str, device: str) -> str:
    """Replace `auto` by bf16 if `device` is fast in it, else by fp32; return other settings unchanged."""
    if setting != "auto":
        return setting
    on_gpu = torch.cuda.is_available() and device != "cpu"
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_has_fast_bf16()
    return "bf16" if fast else "fp32"
