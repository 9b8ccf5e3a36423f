"""bf16, or fp16, is chosen only where the hardware multiplies in it."""

import pytest
import torch

from pyserini_ance.encoders import hardware

AMD, INTEL = "AuthenticAMD", "GenuineIntel"
CPUS = [{"avx512_bf16": True}, {"amx_bf16": True}, {"avx512_f": True, "avx512_bf16": False}, {}]
GPUS = [(True, (8, 0), "bf16"), (False, (7, 5), "fp16"), (False, (7, 0), "fp16"), (False, (6, 1), "fp32")]
FAMILIES = [(AMD, 25, 1, 0), (AMD, 26, 1, 1), (INTEL, 6, 0, 0), (None, None, 0, 0)]
# AMD, eager attention, bf16
STATES = {"plain": (0, 0, 0), "amx": (0, 0, 1), "zen3": (1, 0, 0), "zen4": (1, 0, 1), "zen5": (1, 1, 1)}


@pytest.fixture(autouse=True)
def own_processor(monkeypatch):
    """No setting, so that each test chooses what the machine says of itself."""
    monkeypatch.delenv(hardware.PROCESSOR_SETTING, raising=False)


@pytest.mark.parametrize("capabilities", CPUS)
def test_bf16_needs_bf16_products(monkeypatch, capabilities):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert hardware.processor().has_fast_bf16 is any(
        capabilities.get(name) for name in ("avx512_bf16", "amx_bf16")
    )


@pytest.mark.parametrize("has_bf16, capability, chosen", GPUS, ids=["Ampere", "Turing", "Volta", "Pascal"])
def test_a_gpu_without_bf16_has_fp16_if_it_is_fast_at_it(monkeypatch, has_bf16, capability, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert [hardware.resolve_precision("auto", device) for device in ("auto", "cuda")] == [chosen] * 2
    assert hardware.resolve_precision("fp16", "cuda") == "fp16"


@pytest.mark.parametrize("vendor, family, is_amd, is_eager", FAMILIES)
def test_amds_processors_are_known_by_family(tmp_path, monkeypatch, vendor, family, is_amd, is_eager):
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "cpuinfo")
    if vendor is not None:
        one = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: any\n\n"
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{one}processor\t: 1\n{one}")
    monkeypatch.setattr(hardware, "_amd_family", hardware._amd_family.__wrapped__)
    assert bool(hardware.processor().amd_family) == is_amd
    assert hardware.cpu_prefers_eager_attention() == is_eager


@pytest.mark.parametrize("name, states", STATES.items())
def test_the_environment_chooses_the_processor(monkeypatch, name, states):
    monkeypatch.setenv(hardware.PROCESSOR_SETTING, name)
    is_amd, bf16 = bool(hardware.processor().amd_family), hardware.processor().has_fast_bf16
    assert (is_amd, hardware.cpu_prefers_eager_attention(), bf16) == states
    assert hardware.resolve_precision("auto", "cpu") == ("bf16" if states[2] else "fp32")
    assert len(hardware.PROCESSORS) == 5
    monkeypatch.setenv(hardware.PROCESSOR_SETTING, "zen")
    with pytest.raises(ValueError, match="PYSERINI_ANCE_PROCESSOR is 'zen'; expected one of plain, amx, "):
        hardware.processor()
