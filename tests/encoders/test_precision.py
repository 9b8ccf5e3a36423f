"""bf16 is chosen only where the hardware multiplies in it."""

import pytest
import torch

from pyserini_ance.encoders.encoder import cpu_has_fast_bf16, resolve_precision


@pytest.mark.parametrize(
    ("capabilities", "fast"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({}, False),
    ],
)
def test_bf16_needs_bf16_products(monkeypatch, capabilities, fast):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert cpu_has_fast_bf16() is fast


def test_torch_without_the_probe_stays_in_fp32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert cpu_has_fast_bf16() is False


@pytest.mark.parametrize(("fast", "chosen"), [(True, "bf16"), (False, "fp32")])
def test_auto_follows_the_processor_and_other_settings_stay(monkeypatch, fast, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": fast})
    assert resolve_precision("auto", "cpu") == chosen
    assert [resolve_precision(setting, "cpu") for setting in ("fp32", "bf16")] == ["fp32", "bf16"]
