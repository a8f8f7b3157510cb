"""Settings of a Python process: its environment, those that keep a thread that must answer in time from waiting for the interpreter
itself, and how much memory it keeps for what it does next.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import locale
import os
import sys
import time
from collections.abc import Iterator, Mapping

ENVIRONMENT: Mapping[str, str] = {"TZ": "UTC", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
"""What user code could see of its process, the same in every engine. With threads of its own numpy adds up the products of a matrix
in another order on a host with more cores; to start them costs each command 50 ms of processor time, too."""
_DIGITS_VARIABLE = "PYTHONINTMAXSTRDIGITS"
_LOCALE = {locale.LC_ALL: "C", locale.LC_CTYPE: "C.UTF-8"}
"""How numbers and times are written, which text is less, and which bytes are letters: Lua, Arrow and `strftime` ask C, and C the
process."""


def fix_environment() -> None:
    """Gives this process the environment of every engine: the time zone UTC, one locale, and Python's own limit of digits.
    Processes that it starts get the hash seed 0, too, which Python reads when it starts (`start_again`)."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop(_DIGITS_VARIABLE, None)
    time.tzset()
    for category, name in _LOCALE.items():
        locale.setlocale(category, name)
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)


@contextlib.contextmanager
def fixed_environment() -> Iterator[None]:
    """The same for a while, in a process of another application."""
    names = (*ENVIRONMENT, _DIGITS_VARIABLE)
    before, digits = {name: os.environ.get(name) for name in names}, sys.get_int_max_str_digits()
    locales = locale.setlocale(locale.LC_ALL)
    fix_environment()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        time.tzset()
        locale.setlocale(locale.LC_ALL, locales)
        sys.set_int_max_str_digits(digits)


def start_again() -> None:
    """Replaces this process by the same command with the environment of every engine, unless Python started with it. Call it before
    anything else: it costs what Python takes to start, about 15 ms, and what was done before is lost."""
    fix_environment()
    if sys.flags.hash_randomization and not sys.flags.ignore_environment:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ)  # noqa: S606 - this very command


_SWITCH_INTERVAL_S = 0.0005
"""After so long a thread that computes lets another one have the interpreter. Kernels give it up and want it back many times in a
step; beside a thread that writes a snapshot each time may cost so much. By default it is 5 ms."""


def switch_often() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def collect_seldom() -> None:
    """Makes the garbage collector run once per 100,000 new objects. A command that loads libraries, prints and ends keeps nearly
    all that it allocates, and the default of 700 takes a tenth of its time."""
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)


_COLLECT_AFTER_OBJECTS = 100_000


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
