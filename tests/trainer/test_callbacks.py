"""The callbacks of users."""

import pytest

from pyserini_ance.trainer.callbacks import TrainerCallback, check_callbacks


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
