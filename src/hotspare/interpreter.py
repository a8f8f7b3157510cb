"""Settings of a Python process: those that keep whoever must answer in time from waiting for the interpreter itself, and how much
memory it keeps for what it does next.
"""

from __future__ import annotations

import ctypes
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


KEPT_BYTES_MAX = 256 << 20
"""Free memory that stays with the process. The tables of a large step are made and freed again at each step. Where they go back to
the system in between, every page of them is asked for anew: that takes a third of the time of a short chain of windows."""
_FROM_HEAP_BYTES = 32 << 20
"""Up to so many bytes a table comes from the memory that is kept; larger ones some versions of the C library refuse."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of `mallopt`."""


def keep_freed_memory() -> bool:
    """From now on up to KEPT_BYTES_MAX of freed memory at the end of a heap stay with the process. False: this C library does not
    take such a setting, and all is as it was."""
    if sys.platform != "linux":
        return False
    told = getattr(ctypes.CDLL(None), "mallopt", None)
    if told is None or not told(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES):
        return False  # KEPT_BYTES_MAX alone would do harm: the library no longer adapts by itself which tables it keeps
    return bool(told(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
