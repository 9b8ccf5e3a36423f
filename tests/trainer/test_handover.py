"""When what is made of a checkpoint is adopted: every policy, played through with a refresher that takes its time."""

import math
import random
from math import inf

import pytest

from pyserini_ance.recipe.products import Evaluate, Refresh
from pyserini_ance.trainer.handover import Handover, Script


class SlowDesk:
    """A refresher that needs `takes` steps for an order: the oldest awaited one, else the newest; one at a time."""

    def __init__(self, takes):
        self.takes, self.orders, self.made, self.work, self.waited = takes, [], set(), None, 0

    def place(self, order):
        self.orders.append(order)

    def drop(self, orders):
        self.orders = [order for order in self.orders if order not in orders]

    def is_made(self, order):
        return order in self.made

    def wait(self, orders):
        while not any(order in self.made for order in orders):
            self.waited += 1
            self.tick()
        return [order for order in orders if order in self.made][-1]

    def tick(self):
        open_orders = [order for order in self.orders if order not in self.made]
        if self.work is None and open_orders:
            oldest_first = open_orders[0].kind == "dev" or any(order.awaited for order in open_orders)
            self.work = [min(open_orders, key=lambda o: not o.awaited) if oldest_first else open_orders[-1], self.takes()]
        if self.work:
            self.work[1] -= 1
            if self.work[1] <= 0:
                self.made.add(self.work[0])
                self.work = None


def play(product, steps, takes, kind="tables", script=None, first=0, taken=(), seen=None):
    """Every adoption as (step, step of the checkpoint), and the age in each step of what it trains on."""
    desk = SlowDesk(takes)
    handover = Handover(kind, product, steps, desk, script or Script())
    adopted, ages, current = [], [], 0
    if first:
        handover.reopen("a", [(step, "w") for step in range(1, first) if step % product.every_steps == 0], set(taken))
        current = handover.taken_step
    for step in range(first, steps + 1):
        due = (step % product.every_steps == 0 and step < steps) or (kind == "dev" and step == steps)
        taken = handover.take(step)
        if due and (kind == "tables" or step):
            handover.order("a", step, "w")
            taken += handover.take(step)
        for order in taken:
            adopted.append((step, order.step))
            current = order.step
        if step < steps:
            ages.append(step - current)
        if seen is not None:
            seen.append(len(handover.open))
        desk.tick()
    return adopted, ages, desk


def test_inline_is_adopted_at_once():
    adopted, ages, desk = play(Refresh(every_steps=4), 13, takes=lambda: 1)
    assert adopted == [(0, 0), (4, 4), (8, 8), (12, 12)] and max(ages) == 3


@pytest.mark.parametrize("takes", [1, 3, 50])
def test_after_steps_is_adopted_exactly_then_however_long_it_took(takes):
    product = Refresh(every_steps=4, run="background", adopt={"after_steps": 6})
    adopted, ages, desk = play(product, 20, takes=lambda: takes)
    assert adopted == [(0, 0), (10, 4), (14, 8), (18, 12)]
    assert max(ages) == product.staleness_steps == 9
    assert (desk.waited > 20) == (takes == 50)


def test_ready_takes_the_newest_as_soon_as_it_is_there():
    product = Refresh(every_steps=4, run="background", adopt="ready", max_staleness_steps=100)
    adopted, _, desk = play(product, 30, takes=lambda: 6)
    assert adopted == [(0, 0), (10, 4), (16, 8), (22, 16), (28, 20)]
    assert desk.waited == 6, "only for the first, without which there is nothing to train on"


@pytest.mark.parametrize("seed", range(30))
def test_no_step_is_staler_than_the_bound_and_open_orders_stay_few(seed):
    draw = random.Random(seed)
    every = draw.randint(1, 6)
    product = Refresh(every_steps=every, run="background", adopt="ready", max_staleness_steps=draw.randint(every, 4 * every))
    seen = []
    adopted, ages, desk = play(product, 80, takes=lambda: draw.randint(1, 20), seen=seen)
    assert max(ages) <= product.max_staleness_steps
    assert [of for _, of in adopted] == sorted({of for _, of in adopted}) and len(adopted) > 1
    assert max(seen) <= math.ceil(product.max_staleness_steps / every) + 1
    made = sorted(order.step for order in desk.made)
    unused = [step for step in made if step not in [of for _, of in adopted]]
    assert all(any(of > step for _, of in adopted) or step > adopted[-1][1] for step in unused), "only what came after something newer"


def test_by_default_ready_waits_after_two_refreshes():
    product = Refresh(every_steps=5, run="background", adopt="ready")
    _, ages, desk = play(product, 40, takes=lambda: 30)
    assert max(ages) == 10 and desk.waited > 0


@pytest.mark.parametrize("seed", range(10))
def test_a_script_repeats_what_was_adopted_when(seed):
    draw = random.Random(seed)
    product = Refresh(every_steps=3, run="background", adopt="ready")
    adopted, *_ = play(product, 60, takes=lambda: draw.randint(1, 12))
    recorded = Script({step: [of] for step, of in adopted}, until=inf, weights={of: "w" for _, of in adopted})
    for takes in (1, 40):
        assert play(product, 60, takes=lambda takes=takes: takes, script=recorded)[0] == adopted


def test_what_a_script_does_not_use_is_not_ordered():
    product = Refresh(every_steps=3, run="background", adopt="ready")
    recorded = Script({0: [0], 11: [6]}, until=inf, weights={0: "w", 6: "w"})
    _, _, desk = play(product, 20, takes=lambda: 1, script=recorded)
    assert {order.step for order in desk.made} == {0, 6}


def test_a_script_of_other_weights_is_followed_with_a_warning(caplog):
    recorded = Script({0: [0]}, until=inf, weights={0: "others"})
    assert play(Refresh(every_steps=3, run="background"), 3, lambda: 1, script=recorded)[0] == [(0, 0)]
    assert "stage a, step 0: the weights differ from the recorded run's" in caplog.text


@pytest.mark.parametrize("first", range(4, 20))
def test_after_an_interruption_orders_are_open_again(first):
    product = Refresh(every_steps=4, run="background", adopt={"after_steps": 6})
    whole, *_ = play(product, 20, takes=lambda: 3)
    before = [of for step, of in whole if step < first]
    adopted, *_ = play(product, 20, takes=lambda: 3, first=first, taken=before)
    assert adopted == [(step, of) for step, of in whole if step >= first]


def test_a_lost_checkpoint_that_was_to_be_used_is_an_error():
    handover = Handover("tables", Refresh(every_steps=4, run="background"), 20, SlowDesk(lambda: 1), Script())
    with pytest.raises(RuntimeError, match="stage a cannot go on: its checkpoint of step 4 is gone, and with it the tables made of it"):
        handover.reopen("a", [(4, None)], {0})


@pytest.mark.parametrize(
    ("adopt", "expected"),
    [(None, [(6, 3), (9, 6), (12, 9), (13, 12), (13, 13)]), ({"after_steps": 2}, [(5, 3), (8, 6), (11, 9), (13, 12), (13, 13)])],
)
def test_evaluations_are_all_taken_by_the_end(adopt, expected):
    product = Evaluate(every_steps=3, run="background", adopt=adopt)
    assert play(product, 13, takes=lambda: 9, kind="dev")[0] == expected


def test_evaluations_that_are_slow_to_come_are_passed_over_when_ready_is_enough():
    adopted, _, desk = play(Evaluate(every_steps=3, run="background", adopt="ready"), 30, takes=lambda: 8, kind="dev")
    assert adopted[-1] == (30, 30) and len(adopted) < 10
    assert all(step > of for step, of in adopted[:-2])
