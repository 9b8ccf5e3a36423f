import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.refresh_settings import Evaluate, Refresh
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.refresh import AdoptionLog, RefreshQueue

FREE = AdoptionLog()


class Tables(RefreshQueue):
    """A queue of products whose adoption does nothing."""

    kind, event, is_score = "tables", "adopt", False

    def is_due(self, step):
        return True

    def adopt(self, request, step, waited_seconds):
        return request.step


class Scores(Tables):
    kind, event, is_score = "dev", "evaluate", True


class SlowExecutor:
    """A refresher that takes `takes` steps a request: the oldest awaited one, else the newest."""

    def __init__(self, takes):
        self.takes, self.requests, self.made, self.work, self.waited = takes, [], set(), None, 0

    def submit(self, request):
        self.requests.append(request)

    def cancel(self, requests):
        self.requests = [request for request in self.requests if request not in requests]

    def done(self, request):
        return request in self.made

    def wait(self, requests):
        while not any(request in self.made for request in requests):
            self.waited += 1
            self.tick()
        return [request for request in requests if request in self.made][-1]

    def tick(self):
        waiting = [request for request in self.requests if request not in self.made]
        if self.work is None and waiting:
            oldest_first = waiting[0].kind == "dev" or any(request.is_awaited for request in waiting)
            next_one = min(waiting, key=lambda o: not o.is_awaited) if oldest_first else waiting[-1]
            self.work = [next_one, self.takes()]
        if self.work:
            self.work[1] -= 1
            if self.work[1] <= 0:
                self.made.add(self.work[0])
                self.work = None


def queue_of(settings, steps, executor, kind="tables", log=FREE) -> RefreshQueue:
    made = Tables if kind == "tables" else Scores
    stage = SimpleNamespace(steps=steps)
    return made(RunDir(Path("unused")), "a", stage, World(), settings, executor, log)


def play(settings, steps, takes, kind="tables", log=FREE, first=0, taken=(), seen=None):
    """Every adoption as (step, step of the checkpoint), and the age in each step of what it trains on."""
    executor = SlowExecutor(takes)
    queue = queue_of(settings, steps, executor, kind, log)
    adopted, ages, current = [], [], 0
    if first:
        before = [(step, "w") for step in range(1, first) if step % settings.every_steps == 0]
        queue.resubmit(before, set(taken))
        current = queue.adopted
    for step in range(first, steps + 1):
        due = (step % settings.every_steps == 0 and step < steps) or (kind == "dev" and step == steps)
        is_requested = due and (kind == "tables" or step)
        for checkpoint, _ in queue.advance(step, "w" if is_requested else None):
            adopted.append((step, checkpoint))
            current = checkpoint
        if step < steps:
            ages.append(step - current)
        if seen is not None:
            seen.append(len(queue.pending))
        executor.tick()
    return adopted, ages, executor


@pytest.mark.parametrize("takes", [1, 3, 50])
def test_after_steps_is_adopted_exactly_then_however_long_it_took(takes):
    product = Refresh(every_steps=4, mode="async", adopt=6)
    adopted, ages, executor = play(product, 20, takes=lambda: takes)
    assert adopted == [(0, 0), (10, 4), (14, 8), (18, 12)]
    assert max(ages) == product.staleness_steps == 9
    assert (executor.waited > 20) == (takes == 50)


class Bounded(Refresh):
    """Negatives of any age up to `bound` steps, not up to two intervals."""

    bound: int

    @property
    def staleness_steps(self) -> int:
        return self.bound


def test_when_ready_adopts_the_newest_as_soon_as_it_is_done():
    product = Bounded(every_steps=4, mode="async", adopt="when_ready", bound=100)
    adopted, _, executor = play(product, 30, takes=lambda: 6)
    assert adopted == [(0, 0), (10, 4), (16, 8), (22, 16), (28, 20)]
    assert executor.waited == 6, "only for the first, without which there is nothing to train on"


@pytest.mark.parametrize("seed", range(30))
def test_no_step_is_staler_than_the_bound_and_pending_requests_stay_few(seed):
    draw = random.Random(seed)
    every = draw.randint(1, 6)
    most = draw.randint(every, 4 * every)
    product = Bounded(every_steps=every, mode="async", adopt="when_ready", bound=most)
    seen = []
    adopted, ages, executor = play(product, 80, takes=lambda: draw.randint(1, 20), seen=seen)
    assert max(ages) <= product.staleness_steps
    assert [of for _, of in adopted] == sorted({of for _, of in adopted}) and len(adopted) > 1
    assert max(seen) <= math.ceil(product.staleness_steps / every) + 1
    made = sorted(request.step for request in executor.made)
    unused = [step for step in made if step not in [of for _, of in adopted]]
    passed_over = [any(of > step for _, of in adopted) or step > adopted[-1][1] for step in unused]
    assert all(passed_over), "only what came after something newer"


@pytest.mark.parametrize("seed", range(10))
def test_a_replay_repeats_all_adoptions(seed):
    draw = random.Random(seed)
    product = Refresh(every_steps=3, mode="async", adopt="when_ready")
    adopted, *_ = play(product, 60, takes=lambda: draw.randint(1, 12))
    recorded = AdoptionLog({step: [of] for step, of in adopted}, {of: "w" for _, of in adopted}, "replay")
    for takes in (1, 40):
        assert play(product, 60, takes=lambda takes=takes: takes, log=recorded)[0] == adopted


@pytest.mark.parametrize("first", range(4, 20))
def test_after_an_interruption_requests_are_submitted_again(first):
    product = Refresh(every_steps=4, mode="async", adopt=6)
    whole, *_ = play(product, 20, takes=lambda: 3)
    before = [of for step, of in whole if step < first]
    adopted, *_ = play(product, 20, takes=lambda: 3, first=first, taken=before)
    assert adopted == [(step, of) for step, of in whole if step >= first]


def test_a_removed_checkpoint_that_is_needed_is_an_error():
    queue = queue_of(Refresh(every_steps=4, mode="async"), 20, SlowExecutor(lambda: 1))
    gone = "its checkpoint of step 4 was removed, and the generation of negatives made from it is missing"
    with pytest.raises(RuntimeError, match=f"stage a cannot continue: {gone}"):
        queue.resubmit([(4, None)], {0})


@pytest.mark.parametrize("adopt, first", [(None, [(6, 3), (9, 6), (12, 9)]), (2, [(5, 3), (8, 6), (11, 9)])])
def test_all_dev_scores_are_adopted_by_the_end(adopt, first):
    product = Evaluate(every_steps=3, mode="async", adopt=adopt)
    assert play(product, 13, takes=lambda: 9, kind="dev")[0] == [*first, (13, 12), (13, 13)]


def test_dev_scores_that_are_done_at_once_are_all_adopted():
    """As while training waits for tables."""
    executor = SlowExecutor(lambda: 1)
    queue = queue_of(Evaluate(every_steps=3, mode="async", adopt="when_ready"), 20, executor, "dev")
    for step in (3, 6):
        queue.advance(step, "w")
    for _ in range(2):
        executor.tick()
    assert [checkpoint for checkpoint, _ in queue.advance(8, None)] == [3, 6]


def test_a_resumed_run_records_what_it_adopts_beside_the_log(monkeypatch):
    """It had stopped at its last step, while it waited for the second score."""
    log, recorded = AdoptionLog({6: [3]}, {3: "w"}, "resumed"), []
    queue = queue_of(Evaluate(every_steps=3, mode="async"), 6, SlowExecutor(lambda: 1), "dev", log)
    monkeypatch.setattr(queue.log, "decide", lambda event, **of: recorded.append(of["checkpoint_step"]))
    for step in (3, 6):
        queue._record(6, SimpleNamespace(step=step, weights="w"))
    assert recorded == [6]
