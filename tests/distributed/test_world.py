import os
import signal
import time
from unittest.mock import Mock

import pytest
import torch
from accelerate import PartialState

from pyserini_ance.distributed import world as processes
from pyserini_ance.distributed.failures import uninterrupted
from pyserini_ance.distributed.world import World, device_of

F32 = torch.float32
PARTS = [((2, 2, 2), F32), ((3, 0, 1), torch.int64), ((0, 0, 5), torch.bfloat16), ((0, 0, 0), F32)]


def gather_rows(world, rows, dtype):
    part = torch.arange(rows[world.rank] * 2).reshape(-1, 2).add(100 * world.rank).to(dtype)
    return world.gather(part.requires_grad_(dtype.is_floating_point))


@pytest.mark.parametrize("rows, dtype", PARTS)
def test_gather_gives_every_process_all_parts_in_rank_order(run_processes, rows, dtype):
    expected = [torch.arange(n * 2).reshape(-1, 2).add(100 * rank).to(dtype) for rank, n in enumerate(rows)]
    for parts in run_processes(3, gather_rows, rows, dtype):
        assert [part.dtype for part in parts] == [dtype] * 3 and not any(part.requires_grad for part in parts)
        assert [part.shape for part in parts] == [part.shape for part in expected]
        assert all(torch.equal(part, other) for part, other in zip(parts, expected, strict=True))


def on_main_and_barrier():
    """Wait longer than any collective may, on rank 1 and then on rank 0."""
    processes.COLLECTIVE_SECONDS = 0.5
    with World.join("cpu").session() as world:
        began = time.process_time()
        first = world.on_main(lambda: time.sleep(1) or {"rows": (1, 2), "at": world.rank})
        second = world.on_main(lambda: None)
        time.sleep(1 - world.rank)
        came = time.monotonic()
        world.barrier()
        return first, second, came, time.monotonic(), time.process_time() - began


def test_on_main_runs_on_rank_0_and_barrier_waits_for_the_last_process(run_processes):
    ranks = run_processes(2, on_main_and_barrier, join=False)
    assert [rank[:2] for rank in ranks] == [({"rows": [1, 2], "at": 0}, None)] * 2
    assert min(left for *_, left, _ in ranks) >= max(came for *_, came, _, _ in ranks)
    assert max(cpu for *_, cpu in ranks) < 0.5  # of two seconds of waiting


def fail_on_main(world, value):
    def work():
        if value is None:
            raise ValueError("no such recipe")
        return value

    try:
        return world.on_main(work)
    except Exception as error:
        caught = f"{type(error).__name__}: {error}"
    world.barrier()  # a process that catches the error continues
    return caught


def test_an_error_in_on_main_is_raised_everywhere(run_processes):
    mine = "ValueError: no such recipe"
    assert run_processes(3, fail_on_main, None) == [mine, *[f"PeerError: process 0 of 3 failed: {mine}"] * 2]
    mine = "TypeError: Object of type complex is not JSON serializable"
    assert run_processes(2, fail_on_main, 1j) == [mine, f"PeerError: process 0 of 2 failed: {mine}"]


def compared(world):
    world.assert_same(0.1 + 0.2, "the loss")
    world.assert_same(float("nan"), "the loss")
    world.assert_same(world.rank + 0.5, "the norm of the weights")


def test_different_values_of_one_number_end_all_processes(run_processes):
    for end in run_processes.ends(2, compared):
        message = "the norm of the weights must be the same on all processes, but is 0.5 on process 0, 1.5 on"
        assert message in end["error"]


def alone(part):
    with World.join("cpu").session() as world:
        world.assert_same(1.0, "the loss")
        world.barrier()
        facts = world.rank, world.size, world.is_main, world.device
        agreed = world.all_agree(True), world.all_agree(False), world.on_main(lambda: {"rows": (1, 2)})
        return facts, agreed, world.gather(part), torch.distributed.is_initialized()


def test_one_process_needs_no_process_group(run_processes):
    part = torch.ones(2, 3)
    [(facts, agreed, [gathered], has_group)] = run_processes(1, alone, part, join=False)
    assert facts == (0, 1, True, "cpu") and agreed == (True, False, {"rows": [1, 2]})
    assert torch.equal(gathered, part) and not has_group


def with_accelerate(world):
    state = PartialState(cpu=True)
    return state.process_index, state.num_processes, os.environ["RANK"]


def test_accelerate_takes_the_group_that_world_made(run_processes):
    assert run_processes(2, with_accelerate) == [(0, 2, "0"), (1, 2, "1")]


def joined_twice():
    counts = []
    for _ in range(2):
        with World.join("cpu").session() as world:
            counts.append(len(world.gather(torch.ones(1))))
    return counts


def test_a_process_can_join_again(run_processes):
    assert run_processes(2, joined_twice, join=False) == [[2, 2]] * 2


def late():
    processes.COLLECTIVE_SECONDS = 1
    with World.join("cpu").session() as world:
        if world.rank == 1:
            time.sleep(4)
            return
        world.gather(torch.ones(1))


def test_a_collective_does_not_wait_for_ever(run_processes):
    assert "process 0 of 2 lost the others (" in run_processes.ends(2, late, join=False)[0]["error"]


def end_while_others_wait(world, how, ending):
    if world.rank == 1 - (how == "on_main"):
        time.sleep(0.2)
        if isinstance(ending, BaseException):
            raise ending
        os.kill(os.getpid(), ending)
    {"on_main": lambda: world.on_main(lambda: None), "barrier": world.barrier}[how]()


@pytest.mark.parametrize("ending", [signal.SIGKILL, ValueError("seven is odd")])
@pytest.mark.parametrize("how", ["on_main", "barrier"])
def test_who_waits_without_a_time_limit_notices_the_end_of_another(run_processes, how, ending):
    ends = run_processes.ends(2, end_while_others_wait, how, ending)
    rank = int(how == "on_main")
    assert f"PeerError: process {rank} of 2 lost the others (" in ends[rank]["error"].splitlines()[-1]


def interrupt_while_others_wait(world):
    world.on_main(Mock(side_effect=KeyboardInterrupt))


def test_an_interruption_of_the_main_process_is_one_of_all(run_processes):
    for end in run_processes.ends(2, interrupt_while_others_wait):
        assert end["error"].splitlines()[-1] == "KeyboardInterrupt"


def test_device_of(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_of("cpu") == device_of("auto") == "cpu"
    with pytest.raises(ValueError, match="device is cuda:1, but torch finds no GPU; run"):
        device_of("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of("cpu") == "cpu" and device_of("auto") == device_of("cuda") == "cuda:1"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    expected = "3 processes of this host, the first on GPU 0, do not have a GPU each: torch sees 2; use"
    with pytest.raises(ValueError, match=expected):  # on all processes, so that all end together
        device_of("auto")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert device_of("cuda:1") == "cuda:1" and device_of("cuda:0") == "cuda:0"
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(ValueError, match="1 processes .* on GPU 2, do not have a GPU each: torch sees 2"):
        device_of("cuda:2")
    assert device_of("auto") == device_of("cuda") == "cuda" and device_of("cuda:1") == "cuda:1"
    monkeypatch.setattr(torch.cuda, "set_device", chosen := Mock())
    assert World.join("cuda").device == "cuda" and World.join("cuda:1").device == "cuda:1"
    chosen.assert_called_once_with("cuda:1")  # what is seeded or waited for without a device is its


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_at_the_end_of_the_block(number):
    done = []
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            os.kill(os.getpid(), number)
            done.append("whole")
        assert done == ["whole"] and signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_an_error_in_the_block_is_not_hidden_by_a_signal():
    with pytest.raises(ValueError, match="half"), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("half")


def test_a_signal_that_python_does_not_handle_stays_as_it_is():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with uninterrupted():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
