import os
import signal

import pytest

from pyserini_ance.distributed.failures import uninterrupted


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
