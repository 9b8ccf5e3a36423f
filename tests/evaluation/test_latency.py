import pytest

from pyserini_ance.evaluation.metrics import LATENCY, latency


def test_by_hand():
    found = latency([float(i) for i in range(1, 102)])
    assert tuple(found) == LATENCY == ("mean ms", "50% ms", "95% ms", "99% ms")
    assert list(found.values()) == pytest.approx([51, 51, 96, 100])
