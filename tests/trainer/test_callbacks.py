"""The time left of a stage, and the callbacks of users."""

import pytest

from pyserini_ance.trainer.callbacks import StageClock, TrainerCallback, check_callbacks


class TooFew(TrainerCallback):
    def on_step_end(self, step):
        pass


class Any(TrainerCallback):
    def on_step_end(self, stage, *rest):
        pass

    def on_refresh(self, *_, **__):
        pass


def test_a_callback_that_training_cannot_call_is_refused_with_the_signature():
    check_callbacks([TrainerCallback(), Any()])
    message = (
        r"on_step_end of TooFew cannot be called with the 4 arguments of training \(too many positional "
        r"arguments\); expected: def on_step_end\(self, stage, step, losses, metrics\)"
    )
    with pytest.raises(ValueError, match=message):
        check_callbacks([Any(), TooFew()])


def test_what_is_left_includes_the_refreshes_to_come():
    clock = StageClock(0, 10, {0, 4, 8, 10})
    assert clock.seconds_left() is None
    clock.refreshed(0, 30.0)
    clock.stepped(0, 2.0)
    assert clock.seconds_left() == 9 * 2 + 3 * 30
    clock.refreshed(1, 6.0)  # waiting for a refresher
    clock.stepped(1, 4.0)
    assert clock.seconds_left() == 8 * 3 + 3 * 36
    for step in range(2, 10):
        clock.refreshed(step, 0.0)
        clock.stepped(step, 3.0)
    assert clock.seconds_left() == 36 / 3  # that at step 10


def test_a_resumed_stage_knows_what_it_has_done_itself():
    clock = StageClock(6, 10, {0, 4, 8})
    clock.refreshed(6, 0.0)
    clock.stepped(6, 5.0)
    assert clock.seconds_left() == 3 * 5  # no refresh has been timed yet
