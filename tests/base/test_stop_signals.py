"""A signal requests a stop, wherever the main thread is."""

from __future__ import annotations

import os
import signal
import threading

from hotspare.base.stop_signals import stop_on_signals


def test_a_signal_that_comes_while_the_event_is_locked_is_not_lost_and_blocks_nobody() -> None:
    stop = threading.Event()
    with stop_on_signals(stop.set):
        with stop._cond:  # type: ignore[attr-defined] # where the main thread is when it begins or ends a wait
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop.is_set()
        assert stop.wait(60)


def test_the_handlers_from_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_on_signals(lambda: None):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
