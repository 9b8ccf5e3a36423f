"""World: real gloo processes on one machine."""

import torch


def total(world, part):
    return sum(int(one) for one in world.gather(torch.tensor([part + world.rank])))


def test_gather_over_three_processes(run_processes):
    assert run_processes(3, total, 10) == [33, 33, 33]


def breaks_on_rank_1(world):
    print("said before")
    if world.rank == 1:
        raise ValueError("seven is odd")
    return 0


def test_the_harness_reports_a_failing_rank(run_processes):
    fine, broken = run_processes.ends(2, breaks_on_rank_1)
    assert (fine["code"], fine["value"], broken["code"]) == (0, 0, 1)
    assert "ValueError: seven is odd" in broken["error"] and "said before" in broken["output"]
