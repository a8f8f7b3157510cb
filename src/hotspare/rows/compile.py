"""The one way to compile a hot loop: `@kernel` on a free function over arrays, or `@called`.

Kernels are compiled without `parallel` and `fastmath`, so that their results equal those of their Python text bit for bit (law
Twin, over all of `KERNELS`). They run without the GIL and without reference counts (`_nrt`): a kernel allocates nothing. Only files
named `loops.py` and folders named `loops` have kernels. Machine code is stored on disk (`rows.machine_code`).

Numba is imported at the first call of a kernel. So commands that build operators but run none, such as `validate`, do not load it,
and an engine creates dispatchers only for the kernels that its Python code calls.

Inside kernels numbers are int64, uint64 and float64 only; uint64 never meets a plain integer, because that would make a float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from hotspare.rows.machine_code import dispatcher, index_name, kernel_key

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
        """The argument types for which this process compiled or loaded the kernel."""

    @property
    def index_name(self) -> str:
        """The name of the file that lists the kernel's machine code."""

    @property
    def cache_misses(self) -> int:
        """The number of times that this process did not find the kernel's machine code on disk."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


KERNELS: dict[str, Kernel[..., object]] = {}
"""Every imported kernel, by `module.name`; for a file `loops.py` the module's name is its folder's."""
_PACKAGE = Path(__file__).parents[1]
_LOOPS = ("*/loops.py", "*/*/loops.py", "*/loops/*.py", "*/*/loops/*.py")


def loops() -> list[Path]:
    """Returns the files of the package that may hold kernels, in order."""
    return sorted(path for pattern in _LOOPS for path in _PACKAGE.glob(pattern))


def import_all() -> None:
    """Imports every module with kernels, so that `KERNELS` is complete."""
    for path in loops():
        import_module(".".join((_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts)))


class _Deferred:
    """A kernel whose dispatcher is created when it is first needed: by a call, or by the compilation of a kernel that calls it."""

    def __init__(self, function: FunctionType, options: Mapping[str, object]) -> None:
        self.py_func = function
        self._options = options
        self._dispatcher: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._dispatcher is None:
            self._dispatch()
        return self._dispatcher(*args)

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba compiles calls of this kernel from other kernels."""
        return self._dispatch()._numba_type_

    @property
    def signatures(self) -> Sequence[object]:
        return () if self._dispatcher is None else self._dispatcher.signatures

    @cached_property
    def key(self) -> str:
        """The key of the kernel's machine code (`machine_code.kernel_key`)."""
        return kernel_key(self.py_func, self._options, _key_of)

    @property
    def index_name(self) -> str:
        return index_name(self.py_func, self.key)

    @property
    def cache_misses(self) -> int:
        return 0 if self._dispatcher is None else sum(self._dispatcher.stats.cache_misses.values())

    def _dispatch(self) -> Any:
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:  # two threads would make two, which are two types
            if self._dispatcher is None:
                self._dispatcher = dispatcher(self.py_func, self.key, self._options)
        return self._dispatcher


def _key_of(value: object) -> str | None:
    return value.key if isinstance(value, _Deferred) else None


def kernel(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """Returns the function as a kernel, registered in `KERNELS` for the law Twin. The first call compiles it for the argument types
    of that call. It is inlined into each kernel that calls it."""
    return _registered(function, forceinline=True)


def called(function: Callable[P, R_co]) -> Kernel[P, R_co]:
    """Returns the function as a kernel as `kernel` does, but compiled once, not inlined: a long function used in several places
    would otherwise take minutes to compile."""
    return _registered(function, forceinline=False)


def _registered(function: Callable[P, R_co], **options: object) -> Kernel[P, R_co]:
    made = cast(Kernel[P, R_co], _Deferred(cast(FunctionType, function), options))
    module = function.__module__.removesuffix(".loops").rpartition(".")[2]
    KERNELS[f"{module}.{function.__name__}"] = made
    return made


def plain(compiled: Kernel[P, R_co]) -> Callable[P, R_co]:
    """Returns the Python twin of a kernel, which calls the Python twins of all kernels that the kernel calls."""
    function = cast(FunctionType, compiled.py_func)
    world: dict[str, Any] = dict(function.__globals__)
    twin = FunctionType(function.__code__, world, function.__name__, function.__defaults__, function.__closure__)
    by_identity = {id(other): other for other in KERNELS.values()}
    for name in function.__code__.co_names:
        if id(world.get(name)) in by_identity:
            world[name] = plain(world[name])
    return cast(Callable[P, R_co], twin)
