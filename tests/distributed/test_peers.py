"""What the others hear, and how soon, when one process of a world fails, is killed, stopped or interrupted."""

import os
import signal
import threading
import time

import pytest
import torch

from pyserini_ance.distributed import interruption, peers
from pyserini_ance.distributed.interruption import interrupt_on_termination
from pyserini_ance.distributed.loss import PeerError
from pyserini_ance.distributed.peers import Silence
from pyserini_ance.distributed.world import World
from pyserini_ance.storage.owner import process_lives

SOON = 20  # seconds in which the others must have heard, on a machine of any load; a quiet one needs one


def meet(world):
    world.meet()


def gather(world):
    world.gather(torch.ones(1))


def once(world):
    world.once(lambda: threading.Event().wait(SOON))


def loop(world):
    while True:
        world.check()
        time.sleep(0.01)


def ends_on(world, ending, rank, wait):
    """On `rank` what `ending` says; the others wait meanwhile."""
    world.meet()
    if world.rank == rank:
        if isinstance(ending, BaseException):
            raise ending
        os.kill(os.getpid(), ending)
    wait(world)


def heard(ends, rank):
    """The messages of all others; they must have come soon after the end of `rank`."""
    others = [end for other, end in enumerate(ends) if other != rank]
    assert [end["code"] for end in others] == [1] * len(others), others
    assert max(end["seconds"] for end in others) - ends[rank]["seconds"] < SOON
    return [end["error"].splitlines()[-1].partition("PeerError: ")[2] for end in others]


@pytest.mark.parametrize("wait", [meet, gather, loop])
def test_a_killed_process_is_noticed_at_once(run_processes, wait):
    [message] = heard(run_processes.ends(2, ends_on, signal.SIGKILL, 1, wait), 1)
    assert message.startswith("process 1 of 2 (pid ") and message.endswith(") has died; all stop. Start again, training with --resume")


@pytest.mark.parametrize("wait", [meet, gather, once])
def test_the_first_process_is_missed_like_any_other(run_processes, wait):
    """It also holds the store, so that nothing can be asked any more."""
    messages = heard(run_processes.ends(3, ends_on, signal.SIGKILL, 0, wait), 0)
    assert all(message.startswith("process 0 of 3 (pid ") for message in messages), messages


@pytest.mark.parametrize("wait", [meet, gather])
@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_is_told_to_all(run_processes, rank, wait):
    ends = run_processes.ends(3, ends_on, ValueError("seven is odd"), rank, wait)
    assert "ValueError: seven is odd" in ends[rank]["error"]
    assert heard(ends, rank) == [f"process {rank} of 3 failed: ValueError: seven is odd"] * 2


def stops(rank, wait):
    peers.SILENT_SECONDS, peers.BEAT_SECONDS, peers.LOOK_SECONDS = 1.5, 0.2, 0.1
    with World.join("cpu").guarding() as world:
        ends_on(world, signal.SIGSTOP, rank, wait)


@pytest.mark.parametrize("wait", [meet, gather])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_process_is_missed_after_a_while(run_processes, rank, wait):
    other = run_processes.ends(2, stops, rank, wait, join=False)[1 - rank]
    who = "process 1 of 2 (pid " if rank else "the store that torchrun or process 0 holds"
    assert f"PeerError: {who}" in other["error"] and "has not answered for 1.5 s; all stop" in other["error"]
    assert other["seconds"] < SOON


def interrupted(world):
    """Process 1 is interrupted; what process 0 sees of it."""
    if world.rank == 1:
        raise KeyboardInterrupt
    with pytest.raises(PeerError) as caught:
        world.meet()
    lost = world.lost()
    world.close = lambda: None  # the other has gone
    return str(caught.value), lost


def test_who_is_interrupted_is_not_lost(run_processes):
    assert run_processes.ends(2, interrupted)[0]["value"] == ("process 1 of 2 was interrupted", None)


def interrupted_at_work(world):
    def work():
        raise KeyboardInterrupt

    world.once(work)


def test_who_is_interrupted_while_the_others_wait_ends_as_interrupted(run_processes):
    first, second = run_processes.ends(2, interrupted_at_work)
    assert first["error"].splitlines()[-1] == "KeyboardInterrupt"
    assert "PeerError: process 0 of 2 was interrupted" in second["error"] and second["error"].endswith("KeyboardInterrupt\n")


def out_of_sight():
    """Processes whose numbers mean nothing to one another: as in containers that share a host's name."""
    peers.SILENT_SECONDS, peers.BEAT_SECONDS, peers.LOOK_SECONDS = 1.5, 0.2, 0.1
    peers.lives = lambda owner: False
    with World.join("cpu").guarding() as world:
        time.sleep(0.5)
        ends_on(world, signal.SIGKILL, 1, meet)


def test_a_process_whose_number_says_nothing_is_missed_by_its_silence(run_processes):
    [message] = heard(run_processes.ends(2, out_of_sight, join=False), 1)
    assert message.startswith("process 1 of 2 (pid ") and " has not answered for 1.5 s; all stop" in message


def told_to_end():
    """As under torchrun: process 1 is killed, and process 0 told to end before it has looked for itself."""
    peers.LOOK_SECONDS = 3600
    with World.join("cpu").guarding() as world:
        world.meet()
        other = world.gather(torch.tensor([os.getpid()]))[1].item()
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while process_lives(other):
            time.sleep(0.01)
        raise KeyboardInterrupt


def test_who_is_told_to_end_says_who_was_lost(run_processes):
    end = run_processes.ends(2, told_to_end, join=False)[0]
    assert "PeerError: process 1 of 2 (pid " in end["error"].splitlines()[-1] and end["seconds"] < SOON


def told_while_it_ends(ending):
    """As under torchrun: process 1 ends, and process 0, which has heard of it, is told to end while it records that."""
    interrupt_on_termination()
    with World.join("cpu").guarding() as world:
        try:
            with world.saying_why():
                ends_on(world, ending, 1, meet)
        except BaseException as error:
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
            print(f"recorded {type(error).__name__}: {error}")
            raise


@pytest.mark.parametrize("ending", [ValueError("seven is odd"), signal.SIGKILL])
def test_who_is_told_to_end_while_it_ends_is_not_disturbed(run_processes, ending):
    end = run_processes.ends(2, told_while_it_ends, ending, join=False)[0]
    assert "recorded PeerError: process 1 of 2 " in end["output"] and "PeerError: process 1 of 2 " in end["error"].splitlines()[-1]


def interrupted_twice():
    """As by Ctrl-C under torchrun: from the terminal, and from torchrun."""
    interrupt_on_termination()
    ends = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        try:
            os.kill(os.getpid(), number)
            ends.append("went on")
        except KeyboardInterrupt:
            ends.append("interrupted")
    interruption.ENDING_SECONDS = -1
    interruption.begin_the_end()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    return ends


def test_one_wish_to_end_that_comes_twice_interrupts_once(run_processes):
    assert run_processes(1, interrupted_twice, join=False) == [["interrupted", "went on", "went on"]]


def test_silence_counts_only_what_was_watched(monkeypatch):
    now = iter([0.0, 1.0, 4.0, 3600.0, 3601.0, 3602.0, 3603.0])
    monkeypatch.setattr(peers.time, "monotonic", lambda: next(now))
    silence = Silence()
    assert [silence.of(beat) for beat in (1, 1, 1, 1, 2, 2)] == [0, 3, 13, 14, 0, 1]
