"""Which modules people's Python code may import, and what they find there.

Modules that compute are as Python has them, without what keeps something between calls or asks the machine. Clocks and random
numbers are the engine's own (`moments`). Of everything else an import is refused, with what to do instead.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import operator
import re
import struct
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hotspare.engine.code.python import arrow_functions, moments, patterns
from hotspare.engine.code.python.guards import Guards, Namespace
from hotspare.engine.code.python.heaps import heap_members
from hotspare.engine.code.python.meter import Meter, PythonLimits
from hotspare.engine.code.python.words import words
from hotspare.model.names import nearest

_WHOLE = words(
    """
    abc base64 binascii bisect cmath colorsys dataclasses enum fractions graphlib hashlib heapq hmac html ipaddress json
    keyword numbers statistics string textwrap typing unicodedata urllib.parse zlib copy array decimal collections
    """
)
_WITHOUT: Mapping[str, frozenset[str]] = {
    "zlib": frozenset({"decompress", "decompressobj", "compressobj"}),
    "decimal": frozenset({"setcontext", "getcontext", "localcontext", "DefaultContext", "BasicContext", "ExtendedContext"}),
    "typing": frozenset({"IO", "TextIO", "BinaryIO"}),
    "json": frozenset({"load", "dump"}),
    "hashlib": frozenset({"file_digest", "scrypt", "pbkdf2_hmac"}),
    "base64": frozenset({"main", "test", "encode", "decode"}),
    "string": frozenset({"Formatter"}),
    "statistics": frozenset({"NormalDist"}),
    "collections": frozenset({"UserDict", "UserList", "UserString"}),
}
"""What of a module people's code does not find: what reads files, keeps something, or makes much of little."""

REFUSED: Mapping[str, str] = {
    "os": "an engine's code asks nothing of its machine: write the value into the project, or bring it in as an event",
    "sys": "an engine's code asks nothing of its process: leave it out",
    "platform": "an engine's code asks nothing of its machine: leave it out",
    "socket": "an engine's code has no network: bring the data in by a connector",
    "http": "an engine's code has no network: bring the data in by a connector",
    "urllib": "an engine's code has no network: bring the data in by a connector; urllib.parse is there",
    "urllib.request": "an engine's code has no network: bring the data in by a connector; urllib.parse is there",
    "requests": "an engine's code has no network: bring the data in by a connector",
    "io": "an engine's code has no files: use texts and lists",
    "pathlib": "an engine's code has no files: bring the data in as events",
    "tempfile": "an engine's code has no files: keep the data in a module variable",
    "sqlite3": "an engine's code has no files: keep the data in a module variable",
    "pickle": "what it makes differs between versions: use json",
    "logging": "an engine's code writes no log: return what you want to see, in a field",
    "threading": "an engine's code runs in one order: write plain functions",
    "multiprocessing": "an engine's code runs in one order: write plain functions",
    "concurrent": "an engine's code runs in one order: write plain functions",
    "asyncio": "an engine's code runs in one order: write plain functions",
    "subprocess": "an engine's code starts no processes: bring the data in by a connector",
    "secrets": "two engines must draw the same: use random, whose numbers come from the position of the event",
    "gc": "when memory is given back depends on the engine: leave it out",
    "weakref": "when objects end depends on the engine: use a dict",
    "ctypes": "an engine's code asks nothing of its machine: leave it out",
    "inspect": "an engine's code does not look at itself: leave it out",
    "importlib": "modules are known by name: use import",
    "locale": "the locale differs between engines: write the format out",
    "zoneinfo": "the time zones of machines differ: use datetime.timezone with a fixed difference",
    "numpy": "values of numpy are no plain values: use lists and math, or let the function work over columns",
    "pandas": "values of pandas are no plain values: use lists and math, or let the function work over columns",
}

Maker = Callable[[Guards, moments.CallClock], Mapping[str, Any]]


def _math(guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    def factorial(n: int) -> int:
        guards.meter.charge_bits(int(n).bit_length() * max(int(n), 0))
        return math.factorial(n)

    def comb(n: int, k: int) -> int:
        guards.meter.charge_bits(int(n).bit_length() * max(min(int(k), int(n) - int(k)), 0))
        return math.comb(n, k)

    def perm(n: int, k: int | None = None) -> int:
        guards.meter.charge_bits(int(n).bit_length() * max(int(n if k is None else k), 0))
        return math.perm(n, k)

    def prod(values: Iterable[Any], *, start: Any = 1) -> Any:
        return functools.reduce(guards.mult, guards.sized(values), start)

    return _public(math) | {"factorial": factorial, "comb": comb, "perm": perm, "prod": prod}


def _itertools(guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    iterators, by_function = guards.iterators, {"starmap": 0, "takewhile": 0, "dropwhile": 0, "filterfalse": 0, "accumulate": 1}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **named: Any) -> Iterable[Any]:
            given = list(arguments)
            for place in range(len(given)):
                if by_function.get(name) == place:
                    given[place] = guards.called(given[place])
            return iterators.metered(function(*given, **named), *arguments, *named.values())

        return made

    found = {name: counted(name, value) for name, value in _public(itertools).items() if isinstance(value, type)}
    found |= {"chain": _Chain(found["chain"], iterators.chained), "groupby": iterators.grouped}
    return found | {"tee": iterators.tees}


class _Chain:
    """`itertools.chain`, which has a second way to be made."""

    def __init__(self, chain: Callable[..., Any], from_iterable: Callable[..., Any]) -> None:
        self._chain = chain
        self.from_iterable = from_iterable

    def __call__(self, *values: Iterable[Any]) -> Iterable[Any]:
        made: Iterable[Any] = self._chain(*values)
        return made


def _functools(guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    def reduce(function: Callable[[Any, Any], Any], values: Iterable[Any], *initial: Any) -> Any:
        return functools.reduce(function, guards.sized(values), *initial)

    kept = ("partial", "wraps", "cmp_to_key", "total_ordering")
    return {name: getattr(functools, name) for name in kept} | {"reduce": reduce}


def _struct(guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(form: Any, *arguments: Any) -> Any:
            if re.search(r"\d{5,}", form if isinstance(form, str) else ""):
                guards.meter.stop("a format with a count of more than 9,999")
            return function(form, *arguments)

        return apply

    names = ("pack", "unpack", "unpack_from", "calcsize", "iter_unpack")
    return {name: bounded(getattr(struct, name)) for name in names} | {"error": struct.error}


def _operator(guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    guarded = {
        "add": guards.add,
        "concat": guards.add,
        "mul": guards.mult,
        "imul": guards.imult,
        "pow": guards.pow,
        "lshift": guards.lshift,
        "mod": guards.mod,
    }
    return {name: value for name, value in _public(operator).items() if not name.startswith("i")} | guarded


_MADE: Mapping[str, Maker] = {
    "math": _math,
    "itertools": _itertools,
    "functools": _functools,
    "struct": _struct,
    "operator": _operator,
    "re": lambda guards, clock: patterns.members(guards),
    "datetime": lambda guards, clock: moments.datetime_members(clock),
    "time": lambda guards, clock: moments.time_members(clock),
    "random": lambda guards, clock: moments.random_members(clock),
    "uuid": lambda guards, clock: moments.uuid_members(clock),
    "pyarrow": lambda guards, clock: arrow_functions.arrow_types(guards),
    "pyarrow.compute": lambda guards, clock: arrow_functions.arrow_members(),
    "__future__": lambda guards, clock: {"annotations": None},
}
IMPORTABLE: frozenset[str] = frozenset({*_WHOLE, *_MADE})


def importable(module: str, name: str) -> str | None:
    """Why `name` of `module`, or the module itself where it is "", cannot be imported, as a hint; None: it can."""
    if module not in IMPORTABLE:
        first = module.split(".")[0]
        return REFUSED.get(module) or REFUSED.get(first) or nearest(module, IMPORTABLE)
    if name and name not in _names(module):
        if f"{module}.{name}" in IMPORTABLE:
            return None
        return nearest(name, _names(module))
    return None


@functools.cache
def _names(module: str) -> frozenset[str]:
    """What a module has; the same for all instances."""
    guards = Guards(Meter(PythonLimits(steps=1)))
    return frozenset(_members(module, guards, moments.CallClock(guards.meter)))


def _members(module: str, guards: Guards, clock: moments.CallClock) -> Mapping[str, Any]:
    make = _MADE.get(module)
    if make is not None:
        return make(guards, clock)
    found = _public(importlib.import_module(module))
    own = dict(heap_members()) if module == "heapq" else {}
    return {name: value for name, value in found.items() if name not in _WITHOUT.get(module, ())} | own


def _public(module: types.ModuleType) -> dict[str, Any]:
    """Names that a module offers, but for modules that it uses itself."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


def namespace(module: str, guards: Guards, clock: moments.CallClock) -> Namespace:
    """What `import module` finds."""
    return Namespace(module, _members(module, guards, clock))
