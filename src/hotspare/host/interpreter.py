"""Settings of the Python interpreter that keep a step from waiting for what other threads of the engine do."""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.0005
"""After so long a thread that computes lets another one have the interpreter. Kernels give it up and want it back many times in a
step; beside a thread that writes a snapshot each time may cost so much. By default it is 5 ms."""


def settle() -> None:
    """Call it when what the process needs is loaded, before it must answer in time: takes a fraction of a second, once.

    Afterwards the garbage collector passes over all that is there now. Looking through the million objects of the libraries takes
    it 60 ms, in which no thread goes on.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()


def settle_more() -> None:
    """The same for what was loaded since, at once: garbage among it stays."""
    gc.freeze()
