import numpy as np
import pytest

from benchmarks.speed.report import table_rows
from benchmarks.speed.rounds import Contender, Contest, Entry, Measurement
from benchmarks.speed.searching import recall
from benchmarks.speed.startup import run

pytestmark = pytest.mark.fast


@pytest.fixture
def entries():
    def entry(name, seconds, output, precision="fp32", **settings):
        measured = [Measurement(each, each, 50.0 + 100 * each) for each in seconds]
        contender = Contender(name, run, {"precision": precision}, **settings)
        return Entry(contender, measured, np.array(output))

    return [
        entry("ours", [1.0, 1.0, 2.0], [[1, 2]]),
        entry("half", [0.5, 0.5, 0.5], [[1, 3]], "bf16"),
        entry("peer", [2.0, 3.0, 2.0], [[2, 1]], against=True),
        Entry(Contender("absent", run, against=True), missing="not installed: x"),
    ]


def test_a_row_has_ratios_rates_and_agreement(entries):
    ours, half, peer = table_rows(Contest("mine", "title", [], 40e9, recall), entries)
    assert ours["x peer"] == "2.00 (1.00-3.00)" and peer["x peer"] == "1"
    assert ours["GFLOP/s"] == "40" and ours["MiB"] == "250" and "x absent" not in ours
    assert [row["recall"] for row in (ours, half, peer)] == ["1.000000", "0.500000", "1.000000"]
    rows = table_rows(Contest("mine", "title", [], None, recall, "half"), entries)
    assert [row["recall"] for row in rows] == ["0.500000", "1.000000", "0.500000"]
