"""The others notice within seconds when a process of their world fails, or is killed or stopped."""

import os
import signal
import threading
import time

import pytest
import torch

from pyserini_ance.distributed import failures, peers
from pyserini_ance.distributed.failures import PeerError, interrupt_on_termination
from pyserini_ance.distributed.peers import StallTimer
from pyserini_ance.distributed.world import World
from pyserini_ance.storage.liveness import process_is_alive

SOON = 20  # seconds within which the others must know, on a machine of any load; an idle one needs one


def barrier(world):
    world.barrier()


def gather(world):
    world.gather(torch.ones(1))


def on_main(world):
    world.on_main(lambda: threading.Event().wait(SOON))


def loop(world):
    while True:
        world.check()
        time.sleep(0.01)


def ends_on(world, ending, rank, wait):
    """End process `rank` by `ending`, a signal or an error; the others wait."""
    world.barrier()
    if world.rank == rank:
        if isinstance(ending, BaseException):
            raise ending
        os.kill(os.getpid(), ending)
    wait(world)


def messages_of_others(ends, rank):
    """The messages of all others, which must have ended soon after `rank`."""
    others = [end for other, end in enumerate(ends) if other != rank]
    assert [end["code"] for end in others] == [1] * len(others), others
    assert max(end["seconds"] for end in others) - ends[rank]["seconds"] < SOON
    return [end["error"].splitlines()[-1].partition("PeerError: ")[2] for end in others]


@pytest.mark.parametrize("wait", [barrier, gather, loop])
def test_a_killed_process_is_noticed_at_once(run_processes, wait):
    [message] = messages_of_others(run_processes.ends(2, ends_on, signal.SIGKILL, 1, wait), 1)
    assert message.startswith("process 1 of 2 (pid ") and message.endswith(
        ") has died; all stop. Start again, training with --resume"
    )


@pytest.mark.parametrize("wait", [barrier, gather, on_main])
def test_a_killed_main_process_is_noticed(run_processes, wait):
    """It also holds the store, which then answers no more."""
    messages = messages_of_others(run_processes.ends(3, ends_on, signal.SIGKILL, 0, wait), 0)
    assert all(message.startswith("process 0 of 3 (pid ") for message in messages), messages


@pytest.mark.parametrize("wait", [barrier, gather])
@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_is_reported_to_all(run_processes, rank, wait):
    ends = run_processes.ends(3, ends_on, ValueError("seven is odd"), rank, wait)
    assert "ValueError: seven is odd" in ends[rank]["error"]
    assert messages_of_others(ends, rank) == [f"process {rank} of 3 failed: ValueError: seven is odd"] * 2


def count_losses(world):
    """Process 1 is killed; how often process 0 is told while it computes."""
    losses = []
    world._peers._on_loss = lambda: losses.append(world._peers._loss.rank)
    world.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    end = time.monotonic() + SOON
    while not losses and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(PeerError):
        world.check()
    world.close = lambda: None  # the other has ended
    return losses


def test_the_thread_that_watches_the_others_tells_of_a_loss(run_processes):
    """A process that waits for a GPU cannot ask."""
    assert run_processes.ends(2, count_losses)[0]["value"] == [1]


def stop_process(rank, wait):
    peers.SILENT_SECONDS, peers.BEAT_SECONDS, peers.CHECK_SECONDS = 1.5, 0.2, 0.1
    with World.join("cpu").session() as world:
        ends_on(world, signal.SIGSTOP, rank, wait)


@pytest.mark.parametrize("wait", [barrier, gather])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_process_is_noticed_after_a_while(run_processes, rank, wait):
    other = run_processes.ends(2, stop_process, rank, wait, join=False)[1 - rank]
    lost = "process 1 of 2 (pid " if rank else "the store that torchrun or process 0 holds"
    assert f"PeerError: {lost}" in other["error"] and "has not answered for 1.5 s; all stop" in other["error"]
    assert other["seconds"] < SOON


def interrupted(world):
    """Process 1 is interrupted; return what process 0 sees."""
    if world.rank == 1:
        raise KeyboardInterrupt
    with pytest.raises(PeerError) as caught:
        world.barrier()
    lost = world.lost()
    world.close = lambda: None  # the other has ended
    return str(caught.value), lost


def test_an_interrupted_process_is_not_lost(run_processes):
    assert run_processes.ends(2, interrupted)[0]["value"] == ("process 1 of 2 was interrupted", None)


def interrupted_at_work(world):
    def work():
        raise KeyboardInterrupt

    world.on_main(work)


def test_an_interruption_of_the_main_process_interrupts_those_that_wait(run_processes):
    first, second = run_processes.ends(2, interrupted_at_work)
    assert first["error"].splitlines()[-1] == "KeyboardInterrupt"
    assert "PeerError: process 0 of 2 was interrupted" in second["error"] and second["error"].endswith(
        "KeyboardInterrupt\n"
    )


def out_of_sight():
    """Processes whose pids mean nothing to one another, as in containers that share a host name."""
    peers.SILENT_SECONDS, peers.BEAT_SECONDS, peers.CHECK_SECONDS = 1.5, 0.2, 0.1
    peers.is_alive = lambda process: False
    with World.join("cpu").session() as world:
        time.sleep(0.5)
        ends_on(world, signal.SIGKILL, 1, barrier)


def test_a_process_in_another_container_is_missed_by_its_silence(run_processes):
    [message] = messages_of_others(run_processes.ends(2, out_of_sight, join=False), 1)
    assert message.startswith("process 1 of 2 (pid ") and " has not answered for 1.5 s; all stop" in message


def receive_signal():
    """As under torchrun: process 1 is killed, and process 0 gets a signal before it has noticed that."""
    peers.CHECK_SECONDS = 3600
    with World.join("cpu").session() as world:
        world.barrier()
        other = world.gather(torch.tensor([os.getpid()]))[1].item()
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while process_is_alive(other):
            time.sleep(0.01)
        raise KeyboardInterrupt


def test_an_interrupted_process_names_the_lost_one(run_processes):
    end = run_processes.ends(2, receive_signal, join=False)[0]
    assert "PeerError: process 1 of 2 (pid " in end["error"].splitlines()[-1] and end["seconds"] < SOON


def receive_signals_while_ending(ending):
    """As under torchrun: process 1 ends, and process 0 gets signals while it records that."""
    interrupt_on_termination()
    with World.join("cpu").session() as world:
        try:
            with world.reraise_peer_error():
                ends_on(world, ending, 1, barrier)
        except BaseException as error:
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
            print(f"recorded {type(error).__name__}: {error}")
            raise


@pytest.mark.parametrize("ending", [ValueError("seven is odd"), signal.SIGKILL])
def test_signals_do_not_disturb_a_process_that_is_ending(run_processes, ending):
    end = run_processes.ends(2, receive_signals_while_ending, ending, join=False)[0]
    assert (
        "recorded PeerError: process 1 of 2 " in end["output"]
        and "PeerError: process 1 of 2 " in end["error"].splitlines()[-1]
    )


def interrupted_twice():
    """As by Ctrl-C under torchrun: signals from the terminal and from torchrun."""
    interrupt_on_termination()
    ends = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        try:
            os.kill(os.getpid(), number)
            ends.append("went on")
        except KeyboardInterrupt:
            ends.append("interrupted")
    failures.SHUTDOWN_SECONDS = -1
    failures.begin_shutdown()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    return ends


def test_repeated_signals_interrupt_once(run_processes):
    assert run_processes(1, interrupted_twice, join=False) == [["interrupted", "went on", "went on"]]


def test_a_stall_timer_ignores_time_between_calls_that_are_far_apart(monkeypatch):
    now = iter([0.0, 1.0, 4.0, 3600.0, 3601.0, 3602.0, 3603.0])
    monkeypatch.setattr(peers.time, "monotonic", lambda: next(now))
    timer = StallTimer()
    assert [timer.unchanged_seconds(beat) for beat in (1, 1, 1, 1, 2, 2)] == [0, 3, 13, 14, 0, 1]
