"""The machine code of kernels on disk: the folders that have it, and the key by which every process finds it.

A kernel's key hashes its bytecode, the constants that it reads, the fields of the tuples that it takes, and the keys of the kernels
that it calls. So a changed comment, a second clone or a moved checkout compiles nothing, and a changed kernel compiles itself and
its callers. Code is compiled for any processor of the architecture: it may be copied to another host, and computes the same bits.

Two folders are searched: `machine_code` in the package, which only a wheel has, and the user's cache, which this process writes.
This is the only module that uses numba's classes for caches; hotspare pins numba exactly.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from hotspare.base.places import user_folder

MACHINE_CODE = "machine_code"
PACKAGE_FOLDER = Path(__file__).parents[1] / MACHINE_CODE
"""Machine code that came with the package; missing in a checkout."""
_KEY_CHARACTERS = 20
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

KeyOf = Callable[[object], str | None]
"""A function from a global's value to its key if it is a kernel, or to None."""


def cache_folder() -> Path:
    """Returns the folder to which this process writes machine code; the folder may not exist."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "kernels"


def folders() -> tuple[Path, ...]:
    """Returns the folders that are searched for machine code, in this order; any of them may be missing."""
    return PACKAGE_FOLDER, cache_folder()


def kernel_key(function: FunctionType, options: Mapping[str, object], key_of: KeyOf) -> str:
    """Returns the key of a kernel as hexadecimal digits.

    Raises TypeError if the function reads a global other than a number, an array, a named tuple, numpy or a kernel: a change of
    such a global would not change the key.
    """
    facts = [function.__qualname__, repr(sorted(options.items())), *_code_facts(function.__code__, function.__doc__)]
    facts += [f"{name} = {_global_fact(function, name, key_of)}" for name in sorted(_global_names(function))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:_KEY_CHARACTERS]


def _code_facts(code: CodeType, doc: str | None = None) -> Iterator[str]:
    """Yields texts that describe everything the interpreter would execute, without line numbers and without the docstring."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_argcount))
    for place, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _code_facts(constant)
        elif not (place == 0 and doc is not None and constant == doc):
            yield f"{type(constant).__name__} {constant!r}"


def _global_names(function: FunctionType) -> set[str]:
    """Returns the names of the globals that the code reads, and of the named tuples in the annotations."""
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    found = {name for name in names if name in function.__globals__}
    annotated = {name for text in function.__annotations__.values() for name in _IDENTIFIER.findall(str(text))}
    return found | {name for name in annotated if _is_named_tuple(function.__globals__.get(name))}


def _global_fact(function: FunctionType, name: str, key_of: KeyOf) -> str:
    value = function.__globals__[name]
    key = key_of(value)
    if key is not None:
        return key
    if isinstance(value, int | float | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, ModuleType) and value is np:
        return "numpy"
    if _is_named_tuple(value):
        return _fields_fact(value)
    raise TypeError(f"kernel {function.__module__}.{function.__qualname__} reads {name}, a {type(value).__name__}")


def _fields_fact(named_tuple: Any) -> str:
    """Returns a text that names the fields of a named tuple class; fields that are named tuples themselves are expanded."""
    world = vars(sys.modules[named_tuple.__module__])
    fields = []
    for field, annotation in named_tuple.__annotations__.items():
        inner = [world[name] for name in _IDENTIFIER.findall(str(annotation)) if _is_named_tuple(world.get(name))]
        fields.append(f"{field}: {annotation} {[_fields_fact(each) for each in inner]}")
    return f"{named_tuple.__name__} {named_tuple._fields} {fields}"


def _is_named_tuple(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def index_name(function: FunctionType, key: str) -> str:
    """Returns the name of the file that lists the machine code of one kernel."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    return f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-{key}.{python}.nbi"


def dispatcher(function: FunctionType, key: str, options: Mapping[str, object]) -> Any:
    """Returns numba's dispatcher of a kernel: its first call loads the machine code of this key, or compiles and writes it."""
    import numba

    numba.config.CPU_NAME, numba.config.CPU_FEATURES = "generic", ""
    made = numba.njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    made._cache = _cache_class()(function, key)
    return made


@cache
def _cache_class() -> Any:
    """Defines the classes by which numba finds machine code. They need numba, which commands that run no kernel do not load."""
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

    class Locator(_CacheLocator):  # type: ignore[misc]
        def __init__(self, folder: Path, key: str, path: str) -> None:
            self._folder, self._key, self._py_file = folder, key, path

        def get_cache_path(self) -> str:
            return str(self._folder)

        def get_source_stamp(self) -> str:
            return self._key

        def get_disambiguator(self) -> str:
            return self._key

    class KernelCache(FunctionCache):  # type: ignore[misc]
        def __init__(self, function: FunctionType, key: str) -> None:
            name = index_name(function, key)
            folder = next((each for each in folders() if (each / name).is_file()), cache_folder())

            class Impl(CompileResultCacheImpl):  # type: ignore[misc]
                def __init__(self, py_func: FunctionType) -> None:
                    self._lineno = py_func.__code__.co_firstlineno
                    self._locator = Locator(folder, key, py_func.__code__.co_filename)
                    self._filename_base = name.removesuffix(".nbi")

            self._impl_class = Impl
            super().__init__(function)

        def load_overload(self, signature: Any, target: Any) -> Any:
            """Returns the machine code; None if its file is missing, unreadable or damaged, so that numba compiles and writes it
            again."""
            try:
                return super().load_overload(signature, target)
            except Exception:
                return None

        def save_overload(self, signature: Any, data: Any) -> None:
            """Writes machine code. Ignores OSError: an engine without the file only starts more slowly."""
            with suppress(OSError):
                Path(self.cache_path).mkdir(parents=True, exist_ok=True)
                super().save_overload(signature, data)

    return KernelCache
