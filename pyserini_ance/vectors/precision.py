"""Which precision pays: bf16 only where the processor multiplies in it."""

import torch


def cpu_has_fast_bf16() -> bool:
    """Whether this processor has bf16 products (AVX512-BF16 or AMX).

    Without them bf16 is emulated and slower than fp32; oneDNN's own probe says yes to any AVX-512.
    """
    probe = getattr(torch.cpu, "get_capabilities", None)  # a torch without this probe stays in fp32
    capabilities = probe() if probe else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def resolve_precision(setting: str, device: str) -> str:
    """`auto` becomes bf16 where `device` is fast at it, else fp32; anything else stays."""
    if setting != "auto":
        return setting
    on_gpu = torch.cuda.is_available() and device != "cpu"
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_has_fast_bf16()
    return "bf16" if fast else "fp32"
