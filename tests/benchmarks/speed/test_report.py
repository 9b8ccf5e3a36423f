import numpy as np
import pytest

from benchmarks.speed.report import as_text, table_rows
from benchmarks.speed.rounds import Contender, Contest, Entry, Measurement
from benchmarks.speed.searching import recall
from benchmarks.speed.startup import run

pytestmark = pytest.mark.fast
PEAKS = {"fp32 torch.mm": 40.0, "fp32 oneDNN": 80.0, "bf16 oneDNN": 400.0, "copy": 10.0}


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
    contest = Contest("mine", "title", [], 40e9, recall)
    ours, half, peer = table_rows(contest, entries, PEAKS)
    assert ours["x peer"] == "2.00 (1.00-3.00)" and peer["x peer"] == "1"
    assert (ours["GFLOP/s"], ours["peak"]) == ("40", "50 %") and half["peak"] == "20 %"
    assert [row["recall"] for row in (ours, half, peer)] == ["1.000000", "0.500000", "1.000000"]
    assert ours["MiB"] == "250" and "x absent" not in ours


def test_what_did_not_take_part_and_what_columns_mean_is_below_the_table(entries):
    text = as_text(Contest("startup", "title", []), entries, {"peaks": PEAKS})
    assert text.startswith("startup: title\n\n| contender") and text.endswith("absent: not installed: x")
    assert "- x NAME: " in text and "GFLOP/s" not in text


def test_the_reference_of_agreement_may_be_named(entries):
    rows = table_rows(Contest("mine", "title", [], None, recall, "half"), entries, PEAKS)
    assert [row["recall"] for row in rows] == ["0.500000", "1.000000", "0.500000"]
