"""Contests with real processes of their own; no test compares times."""

import numpy as np
import pytest

from benchmarks.speed.rounds import Contender, Entry, Measurement, contest
from benchmarks.speed.startup import run


def entry(*cpu_seconds: float) -> Entry:
    of_rounds = [Measurement(seconds, 2 * seconds, 100.0) for seconds in cpu_seconds]
    return Entry(Contender("name", run), of_rounds)


@pytest.mark.fast
def test_a_speed_up_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians():
    own, other = entry(1.0, 2.0, 4.0), entry(3.0, 4.0, 20.0)
    assert own.speed_up(other) == (3.0, 2.0, 5.0)
    assert (own.cpu_seconds(), own.seconds()) == (2.0, 4.0)


def test_contenders_that_fail_are_killed_or_not_installed_are_left_out_and_the_others_go_on(tmp_path):
    killer = "import os, time; parent = os.getppid(); os.fork() or (time.sleep(0.5), os.kill(parent, 9))"
    programs = {"works": "import time; time.sleep(1)", "fails": "raise SystemExit(3)", "killed": killer}
    contenders = [Contender(name, run, {"arguments": ["-c", text]}) for name, text in programs.items()]
    contenders.append(Contender("absent", run, {"arguments": []}, needs=("numpy", "no_such_package")))
    worked, failed, killed, missing = contest(contenders, tmp_path, rounds=2, threads=1, label="test")
    assert len(worked.measurements) == 2 and worked.missing is None
    # The work was done in a process that the contender started: its time counts too.
    assert all(each.cpu_seconds > 0 and each.peak_mib is None for each in worked.measurements)
    assert failed.missing.startswith("failed: CalledProcessError: ") and "exit status 3" in failed.missing
    assert killed.missing == "failed: killed by signal 9 (out of memory?)" and not killed.measurements
    assert not failed.measurements and missing.missing == "not installed: no_such_package"


def test_outputs_of_the_last_round_come_back(tmp_path):
    from benchmarks.speed.searching import plain, recall, write_vectors

    write_vectors(tmp_path, documents=50, queries=3, dimension=8)
    [measured] = contest([Contender("plain", plain, {"k": 5})], tmp_path, 1, 1, "test")
    assert measured.measurements[0].peak_mib > 10
    documents, queries = (np.load(tmp_path / f"{name}.npy") for name in ("documents", "queries"))
    expected = np.argsort(-(queries.astype(float) @ documents.T.astype(float)), axis=1)[:, :5]
    assert measured.output.tolist() == expected.tolist()
    assert recall(measured.output, expected) == {"recall": 1.0}
    expected[0] = 49 - np.arange(5)
    found = len(set(measured.output[0]) & set(expected[0]))
    assert recall(measured.output, expected) == {"recall": pytest.approx((10 + found) / 15)}
