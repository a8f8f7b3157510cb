"""The one way to compile a hot loop: `@kernel` on a free function over arrays, or `@called`.

Compiled without `parallel` and `fastmath`, so that a kernel equals its Python text bit for bit (law Twin, over all of
`KERNELS`), without the GIL, and without reference counts (`_nrt`): a kernel allocates nothing. Only files named `loops.py` and
folders named `loops` have kernels. Machine code is cached in a folder named after the text of all of these, because a cached caller
would otherwise keep an old callee.

Numba is imported at the first call of a kernel. So commands that build operators but run none, such as `validate`, do not load it,
and an engine makes dispatchers only for the kernels that Python calls in it.

Inside kernels numbers are int64, uint64 and float64 only; uint64 never meets a plain integer, because that would make a float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

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

    @property
    def signatures(self) -> Sequence[object]:
        """The argument types that it was compiled for or loaded for in this process."""

    @property
    def cache_path(self) -> Path:
        """The folder of its machine code."""

    @property
    def cache_misses(self) -> int:
        """How many times this process did not find its machine code on disk."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


KERNELS: dict[str, Kernel[..., object]] = {}
"""Every imported kernel, by `module.name`; for a file `loops.py` the module's name is its folder's."""
_PACKAGE = Path(__file__).parents[1]
_LOOPS = ("*/loops.py", "*/*/loops.py", "*/loops/*.py", "*/*/loops/*.py")


def loops() -> list[Path]:
    """Returns the files of the package that may hold kernels, in order."""
    return sorted(path for pattern in _LOOPS for path in _PACKAGE.glob(pattern))


def text_hash() -> str:
    """Returns the hash of the text of all kernels and of this file."""
    texts = xxhash.xxh3_64()
    for path in (Path(__file__), *loops()):
        texts.update(path.read_bytes())
    return texts.hexdigest()


TEXT_HASH = text_hash()
"""The hash of the text that this process imported: it names the folder, even if a file is replaced before the first kernel call."""


@cache
def cache_folder() -> str:
    """Returns the folder where machine code is kept. "" leaves the choice to numba, which knows folders for read-only
    installations."""
    import numba

    if numba.config.CACHE_DIR:
        return str(numba.config.CACHE_DIR)
    folder = _PACKAGE / "__pycache__" / f"kernels-{TEXT_HASH}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder)


def is_compiled() -> bool:
    """Whether machine code of any of these kernels is on disk; True if the folder is numba's choice."""
    folder = cache_folder()
    return not folder or next(Path(folder).rglob("*.nbc"), None) is not None


class _Deferred:
    """A kernel whose dispatcher is created when it is first needed: by a call, or by the compilation of a kernel that calls it."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, object]) -> None:
        self.py_func = function
        self._options = options
        self._dispatcher: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._dispatcher is None:
            self._dispatch()
        return self._dispatcher(*args)

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba compiles calls of a kernel from others."""
        return self._dispatch()._numba_type_

    @property
    def signatures(self) -> Sequence[object]:
        return () if self._dispatcher is None else self._dispatcher.signatures

    @property
    def cache_path(self) -> Path:
        return Path(self._dispatch().stats.cache_path)

    @property
    def cache_misses(self) -> int:
        return 0 if self._dispatcher is None else sum(self._dispatcher.stats.cache_misses.values())

    def _dispatch(self) -> Any:
        import numba
        from numba.core.compiler_lock import global_compiler_lock

        folder = cache_folder()
        with global_compiler_lock:  # numba's folder is a setting of the whole process
            if self._dispatcher is None:
                before = numba.config.CACHE_DIR
                numba.config.CACHE_DIR = folder
                try:
                    make = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, **self._options)
                    self._dispatcher = make(self.py_func)
                finally:
                    numba.config.CACHE_DIR = before
        return self._dispatcher


def kernel(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """Compiles on first call with the types of that call, into each kernel that calls it; registers for the law Twin."""
    return _registered(function, forceinline=True)


def called(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """Compiles as `kernel`, but once: long functions used in several places would otherwise take minutes to compile."""
    return _registered(function, forceinline=False)


def _registered(function: Callable[P, R_co], **options: object) -> Kernel[P, R_co]:
    made = cast(Kernel[P, R_co], _Deferred(function, options))
    module = function.__module__.removesuffix(".loops").rpartition(".")[2]
    KERNELS[f"{module}.{function.__name__}"] = made
    return made


def plain(compiled: Kernel[P, R_co]) -> Callable[P, R_co]:
    """Returns the Python twin of a kernel, calling the Python twins of the kernels that it uses."""
    function = cast(FunctionType, compiled.py_func)
    world: dict[str, Any] = dict(function.__globals__)
    twin = FunctionType(function.__code__, world, function.__name__, function.__defaults__, function.__closure__)
    by_identity = {id(other): other for other in KERNELS.values()}
    for name in function.__code__.co_names:
        if id(world.get(name)) in by_identity:
            world[name] = plain(world[name])
    return cast(Callable[P, R_co], twin)
