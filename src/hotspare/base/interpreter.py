"""Settings of a Python process: its environment, the garbage collector, thread switching, and the freed memory that it retains.

With frequent thread switches, a thread that must answer in time does not wait for the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import locale
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping

ENVIRONMENT: Mapping[str, str] = {"TZ": "UTC", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables that user code could observe, equal in every engine. With several BLAS threads, numpy would sum
matrix products in another order on a host with more cores. Starting them also costs each command 50 ms of processor time."""
_DIGITS_VARIABLE = "PYTHONINTMAXSTRDIGITS"
_LOCALE = {locale.LC_ALL: "C", locale.LC_CTYPE: "C.UTF-8"}
"""The locale by category. It decides number and time formats, collation, and which bytes are letters: Lua, Arrow and `strftime`
call the C library, which uses the process's locale."""


def fix_environment() -> None:
    """Sets the environment of every engine in this process: time zone UTC, one locale, and Python's default limit on digits. Child
    processes also get the hash seed 0, which Python reads only at its start (`reexec_process`)."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop(_DIGITS_VARIABLE, None)
    time.tzset()
    for category, name in _LOCALE.items():
        locale.setlocale(category, name)
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)


@contextlib.contextmanager
def fixed_environment() -> Iterator[None]:
    """Applies `fix_environment` within the block, then restores the settings. Use it in a process of another application."""
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


def reexec_process() -> None:
    """Replaces this process by the same command with the environment of every engine, unless Python was started with it. Call it
    first: it costs one Python start, about 15 ms, and discards all work done before."""
    fix_environment()
    if sys.flags.hash_randomization and not sys.flags.ignore_environment:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ)  # noqa: S606 - this very command


_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, status: int = 1) -> None:
    """Makes the system kill this process when process `parent`, which started it, ends; also after `reexec_process`. Ends this
    process with `status` if the parent has ended already. Does nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(status)


_SWITCH_INTERVAL_S = 0.0005
"""The time after which a computing thread yields the interpreter. Kernels release and reacquire it many times in a step. If another
thread writes a snapshot, each reacquisition may take this long. Python's default is 5 ms."""


def shorten_switch_interval() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


_COLLECT_AFTER_OBJECTS = 100_000
"""The count of new objects between two garbage collections. A command that loads libraries, prints and ends retains nearly all its
objects. Python's default, a collection per 700 new objects, takes a tenth of the command's time."""


def raise_gc_threshold() -> None:
    """Makes the garbage collector run once per `_COLLECT_AFTER_OBJECTS` new objects."""
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)


def freeze_existing_objects() -> None:
    """Collects garbage once more, then excludes all existing objects from further collections. Scanning the million objects of the
    libraries takes 60 ms each time and blocks all threads."""
    gc.collect()
    gc.freeze()


KEPT_BYTES_MAX = 256 << 20
"""Limit on the free memory that the process retains. Each step allocates and frees the tables of a large batch. If their memory
were returned to the system, every step would request it again: a third of the time of a short chain of windows."""
_FROM_HEAP_BYTES = 32 << 20
"""Tables up to this size are allocated from the retained heap. Some versions of the C library refuse a larger value."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`."""


def keep_freed_memory() -> bool:
    """Makes the process retain up to KEPT_BYTES_MAX of freed memory at the end of a heap. Returns whether the C library accepted
    both settings."""
    if sys.platform != "linux":
        return False
    told = getattr(ctypes.CDLL(None), "mallopt", None)
    if told is None or not told(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES):
        return False  # KEPT_BYTES_MAX alone would do harm: the library no longer adapts by itself which tables it keeps
    return bool(told(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
