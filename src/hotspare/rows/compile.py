"""The one way to compile a hot loop: `@kernel` on a free function over arrays, or `@called`.

Compiled without `parallel` and `fastmath`, so that a kernel equals its Python text bit for bit (law Twin, over all of
`KERNELS`), without the GIL, and without reference counts (`_nrt`): a kernel allocates nothing. Only files named `loops.py` and
folders named `loops` have kernels. Machine code is cached in a folder named after the text of all of these, because a cached caller
would otherwise keep an old callee.

Inside kernels numbers are int64, uint64 and float64 only; uint64 never meets a plain integer, because that would make a float.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import numba
import numpy as np
import xxhash

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Whole: TypeAlias = int | np.int64
"""A whole number, as kernels take and return it."""


class Kernel(Protocol, Generic[P, R_co]):
    """A compiled function and its plain-Python twin."""

    @property
    def py_func(self) -> Callable[P, R_co]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


KERNELS: dict[str, Kernel[..., object]] = {}
"""Every kernel that was imported, by `module.name`; of a file `loops.py` the module's name is its folder's."""
_PACKAGE = Path(__file__).parents[1]
_LOOPS = ("*/loops.py", "*/*/loops.py", "*/loops/*.py", "*/*/loops/*.py")


def loops() -> list[Path]:
    """The files of the package that may hold kernels, in order."""
    return sorted(path for pattern in _LOOPS for path in _PACKAGE.glob(pattern))


def text_hash() -> str:
    """Hash of the text of all kernels and of this file."""
    texts = xxhash.xxh3_64()
    for path in (Path(__file__), *loops()):
        texts.update(path.read_bytes())
    return texts.hexdigest()


def _cache_folder() -> str:
    """Where machine code is kept; "" leaves the choice to numba, which knows folders for read-only installations."""
    if numba.config.CACHE_DIR:
        return str(numba.config.CACHE_DIR)
    folder = _PACKAGE / "__pycache__" / f"kernels-{text_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder)


_CACHE_FOLDER = _cache_folder()


def is_compiled() -> bool:
    """Whether machine code of these kernels is on disk, of all or of some; True where the folder is numba's choice."""
    return not _CACHE_FOLDER or next(Path(_CACHE_FOLDER).rglob("*.nbc"), None) is not None


def kernel(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """Compile on first call with the types of that call, into each kernel that calls it; register for the law Twin."""
    return _compiled(function, forceinline=True)


def called(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """As `kernel`, but compiled once and called: what is long and used in several places would take minutes to compile else."""
    return _compiled(function, forceinline=False)


def _compiled(function: Callable[P, R_co], **options: object) -> Kernel[P, R_co]:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_FOLDER
    try:
        compiled = cast(Kernel[P, R_co], numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, **options)(function))
    finally:
        numba.config.CACHE_DIR = before
    module = function.__module__.removesuffix(".loops").rpartition(".")[2]
    KERNELS[f"{module}.{function.__name__}"] = compiled
    return compiled


def plain(compiled: Kernel[P, R_co]) -> Callable[P, R_co]:
    """The Python twin of a kernel, calling the Python twins of the kernels that it uses."""
    function = cast(FunctionType, compiled.py_func)
    world: dict[str, Any] = dict(function.__globals__)
    twin = FunctionType(function.__code__, world, function.__name__, function.__defaults__, function.__closure__)
    by_identity = {id(other): other for other in KERNELS.values()}
    for name in function.__code__.co_names:
        if id(world.get(name)) in by_identity:
            world[name] = plain(world[name])
    return cast(Callable[P, R_co], twin)
