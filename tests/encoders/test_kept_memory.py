"""Memory that the C library keeps, and oneDNN; both hold for a whole process."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from pyserini_ance.encoders.kept_memory import limit_primitive_caches

LIMITS = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
FAULTS = """
import resource
import torch
from pyserini_ance.encoders.kept_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [torch.ones(12 << 20, dtype=torch.uint8) for _ in range(3)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
faults()
print(faults())
"""
# Of layers as small as these, memory is that of the primitives, not their results.
SHAPES = """
import sys
import torch
from pyserini_ance.encoders.kept_memory import limit_primitive_caches

def resident_bytes():
    lines = open("/proc/self/status").readlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))

limit_primitive_caches(int(sys.argv[1]))
weight, bias, inputs = torch.ones(64, 64), torch.ones(64), torch.ones(512, 64)
product = torch.ops.mkldnn._linear_pointwise
product(inputs[:1], weight, bias, "none", [], "")
before = resident_bytes()
for rows in range(1, 301):
    product(inputs[:rows], weight, bias, "none", [], "")
print(resident_bytes() - before)
"""


def printed(script: str, *arguments: str) -> int:
    inherited = {name: value for name, value in os.environ.items() if name not in LIMITS}
    command = [sys.executable, "-c", script, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=inherited).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept():
    """Otherwise each of the 9,216 pages of a round comes from the system anew."""
    assert printed(FAULTS) < 9216


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a torch without oneDNN")
@pytest.mark.skipif(platform.system() != "Linux", reason="memory is read from /proc")
def test_primitives_for_few_shapes_are_kept():
    few, all_of_them = (printed(SHAPES, limit) for limit in ("8", "400"))
    assert few < all_of_them / 3


def test_the_first_capacity_stays_and_so_does_the_users(monkeypatch):
    for name in LIMITS:
        monkeypatch.setenv(name, "")  # what is set afterwards is undone
        monkeypatch.delenv(name)
    limit_primitive_caches(16)
    limit_primitive_caches(400)
    assert [os.environ[name] for name in LIMITS] == ["16", "32"]
    monkeypatch.setenv(LIMITS[0], "7")
    limit_primitive_caches(400)
    assert [os.environ[name] for name in LIMITS] == ["7", "32"]
