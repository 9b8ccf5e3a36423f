"""Contests with real processes of their own; no test compares times."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.speed.report import table_rows
from benchmarks.speed.rounds import Contender, Contest, Entry, Measurement, contest
from benchmarks.speed.searching import plain, recall, vectors


def run(rounds, folder, program: str) -> None:
    """Work by a program of a process's own."""
    for _ in rounds:
        subprocess.run([sys.executable, "-c", program], check=True)


def entry(*cpu_seconds: float) -> Entry:
    of_rounds = [Measurement(seconds, 2 * seconds, 100.0) for seconds in cpu_seconds]
    return Entry(Contender("name", run), of_rounds)


@pytest.mark.fast
def test_a_speed_up_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians():
    own, other = entry(1.0, 2.0, 4.0), entry(3.0, 4.0, 20.0)
    assert own.speed_up(other) == (3.0, 2.0, 5.0)
    assert (own.cpu_seconds(), own.seconds()) == (2.0, 4.0)


@pytest.mark.long
def test_contenders_that_fail_are_killed_or_not_installed_are_left_out_and_the_others_go_on(tmp_path):
    killer = "import os, time; parent = os.getppid(); os.fork() or (time.sleep(0.5), os.kill(parent, 9))"
    programs = {"works": "import time; time.sleep(1)", "fails": "raise SystemExit(3)", "killed": killer}
    contenders = [Contender(name, run, {"program": text}) for name, text in programs.items()]
    contenders.append(Contender("absent", run, {"program": ""}, needs=("numpy", "no_such_package")))
    worked, failed, killed, missing = contest(Contest("test", "", contenders), tmp_path, rounds=2)
    assert len(worked.measurements) == 2 and worked.missing is None
    # The work was done in a process that the contender started: its time counts too.
    assert all(each.cpu_seconds > 0 for each in worked.measurements)
    assert failed.missing.startswith("failed: CalledProcessError: ") and "exit status 3" in failed.missing
    assert killed.missing == "failed: killed by signal 9 (out of memory?)" and not killed.measurements
    assert not failed.measurements and missing.missing == "not installed: no_such_package"


def test_outputs_of_the_last_round_come_back(tmp_path):
    for seed, (name, count) in enumerate({"documents": 50, "queries": 3}.items()):
        np.save(tmp_path / f"{name}.npy", vectors(count, 8, "cpu", seed).numpy())
    [measured] = contest(Contest("test", "", [Contender("plain", plain, {"k": 5})]), tmp_path, 1)
    assert measured.measurements[0].peak_mib > 10
    documents, queries = (np.load(tmp_path / f"{name}.npy") for name in ("documents", "queries"))
    expected = np.argsort(-(queries.astype(float) @ documents.T.astype(float)), axis=1)[:, :5]
    assert measured.output.tolist() == expected.tolist()
    assert recall(measured.output, expected) == {"recall": 1.0}
    expected[0] = 49 - np.arange(5)
    found = len(set(measured.output[0]) & set(expected[0]))
    assert recall(measured.output, expected) == {"recall": pytest.approx((10 + found) / 15)}


@pytest.mark.fast
def test_a_row_has_ratios_rates_and_agreement():
    def made(name, seconds, output, **settings):
        measured = [Measurement(each, each, 50.0 + 100 * each) for each in seconds]
        return Entry(Contender(name, run, **settings), measured, np.array(output))

    entries = [made("ours", [1.0, 1.0, 2.0], [[1, 2]]), made("half", [0.5, 0.5, 0.5], [[1, 3]])]
    entries.append(made("peer", [2.0, 3.0, 2.0], [[2, 1]], against=True))
    entries.append(Entry(Contender("absent", run, against=True), missing="not installed: x"))
    ours, half, peer = table_rows(Contest("mine", "title", [], 40e9, recall), entries)
    assert ours["x peer"] == "2.00 (1.00-3.00)" and peer["x peer"] == "1"
    assert ours["GFLOP/s"] == "40" and ours["MiB"] == "250" and "x absent" not in ours
    assert [row["recall"] for row in (ours, half, peer)] == ["1.000000", "0.500000", "1.000000"]
    rows = table_rows(Contest("mine", "title", [], None, recall, "half"), entries)
    assert [row["recall"] for row in rows] == ["0.500000", "1.000000", "0.500000"]
