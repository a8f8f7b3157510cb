"""Settings of the Python interpreter that keep whoever must answer in time from waiting for the interpreter itself."""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.0005
"""After so long a thread that computes lets another one have the interpreter. Kernels give it up and want it back many times in a
step; beside a thread that writes a snapshot each time may cost so much. By default it is 5 ms."""


def switch_often() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def pass_over_what_is_there() -> None:
    """The garbage collector looks through all that came since the last call once more, and never again: through the million objects
    of the libraries it takes 60 ms each time, in which no thread goes on."""
    gc.collect()
    gc.freeze()
