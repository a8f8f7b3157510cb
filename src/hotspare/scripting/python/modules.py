"""The modules that user code may import, and their allowed members: functions, classes and values that cannot change.

Most members are Python's own (`AS_THEY_ARE`). Members that would cache values, change kept state, or differ between machines are
the engine's own (`MADE`). Clocks and random numbers are in `virtual_clock`. Any other import is refused, with a hint what to use
instead.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import hashlib
import heapq
import importlib
import ipaddress
import re
import struct
import sys
import typing
import urllib.parse
import zlib
from abc import abstractmethod
from array import array
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType, new_class
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.model.names import nearest_names_hint
from hotspare.scripting.python import virtual_clock
from hotspare.scripting.python.guards import Guards, is_same_value
from hotspare.scripting.python.meter import Meter, PythonLimits
from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.namespaces import COMPARED, PROGRAM_MODULE, Namespace
from hotspare.scripting.python.plain_values import plain_value, with_plain_arguments
from hotspare.scripting.python.safe_texts import safe_str
from hotspare.scripting.python.stand_ins import IP_TYPES, STAND_INS
from hotspare.scripting.python.typing_names import CLASS_VARIABLE, typing_members

AS_THEY_ARE: Mapping[str, list[str]] = {
    module: split_names(names)
    for module, names in {
        "abc": "ABC",
        "base64": """
            a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode b32hexencode b64decode b64encode b85decode
            b85encode decodebytes encodebytes standard_b64decode standard_b64encode urlsafe_b64decode urlsafe_b64encode
            """,
        "binascii": """
            Error Incomplete a2b_base64 a2b_hex a2b_qp a2b_uu b2a_base64 b2a_hex b2a_qp b2a_uu crc32 crc_hqx hexlify unhexlify
            """,
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "cmath": """
            acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan nanj phase pi polar
            rect sin sinh sqrt tan tanh tau
            """,
        "collections": "ChainMap OrderedDict deque",
        "colorsys": "hls_to_rgb hsv_to_rgb rgb_to_hls rgb_to_hsv rgb_to_yiq yiq_to_rgb",
        "copy": "Error copy",
        "dataclasses": "FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple field fields is_dataclass replace",
        "decimal": """
            Clamped Context Decimal DecimalException DecimalTuple DivisionByZero FloatOperation Inexact InvalidOperation Overflow
            ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP Rounded
            Subnormal Underflow
            """,
        "fractions": "Fraction",
        "functools": "partial reduce",
        "graphlib": "CycleError TopologicalSorter",
        "hashlib": """
            blake2b blake2s md5 sha1 sha224 sha256 sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256
            """,
        "heapq": "merge nlargest nsmallest",
        "hmac": "compare_digest digest new",
        "html": "escape unescape",
        "ipaddress": "AddressValueError NetmaskValueError collapse_addresses summarize_address_range",
        "itertools": """
            accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse groupby islice
            pairwise permutations product repeat starmap takewhile tee zip_longest
            """,
        "json": "JSONDecodeError JSONEncoder dumps loads",
        "keyword": "iskeyword issoftkeyword",
        "math": """
            acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1 fabs
            factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p
            log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp
            """,
        "numbers": "Complex Integral Number Rational Real",
        "operator": """
            abs contains countOf delitem eq floordiv ge getitem gt index indexOf inv invert le lt matmul ne neg not_ pos rshift
            setitem truediv truth
            """,
        "statistics": """
            LinearRegression StatisticsError correlation covariance fmean geometric_mean harmonic_mean linear_regression mean
            median median_grouped median_high median_low mode multimode pstdev pvariance quantiles stdev variance
            """,
        "string": """
            ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable punctuation whitespace
            """,
        "struct": "error",
        "textwrap": "dedent fill indent shorten wrap",
        "unicodedata": """
            bidirectional category combining decimal decomposition digit east_asian_width is_normalized lookup mirrored name
            normalize numeric unidata_version
            """,
        "zlib": "adler32 compress crc32 error",
    }.items()
}
"""For each module, the members that user code gets unchanged from Python."""

REFUSED: Mapping[str, str] = {
    "os": "an engine's code must not depend on its machine: write the value into the project, or bring it in as an event",
    "sys": "an engine's code must not depend on its process: leave it out",
    "platform": "an engine's code must not depend on its machine: leave it out",
    "socket": "an engine's code has no network: bring the data in by a connector",
    "http": "an engine's code has no network: bring the data in by a connector",
    "urllib": "an engine's code has no network: bring the data in by a connector; urllib.parse is available",
    "urllib.request": "an engine's code has no network: bring the data in by a connector; urllib.parse is available",
    "requests": "an engine's code has no network: bring the data in by a connector",
    "io": "an engine's code has no files: use texts and lists",
    "pathlib": "an engine's code has no files: bring the data in as events",
    "tempfile": "an engine's code has no files: keep the data in a module variable",
    "sqlite3": "an engine's code has no files: keep the data in a module variable",
    "pickle": "what it makes differs between versions: use json",
    "logging": "an engine's code writes no log: return what you want to see, in a field",
    "warnings": "an engine's code writes no log: return what you want to see, in a field",
    "threading": "an engine's code runs in one order: write plain functions",
    "multiprocessing": "an engine's code runs in one order: write plain functions",
    "concurrent": "an engine's code runs in one order: write plain functions",
    "asyncio": "an engine's code runs in one order: write plain functions",
    "contextvars": "an engine's code runs in one order: use a module variable, and write global in the function",
    "subprocess": "an engine's code starts no processes: bring the data in by a connector",
    "secrets": "two engines must draw the same: use random, whose numbers come from the position of the event",
    "gc": "garbage collection depends on the engine: leave it out",
    "weakref": "when objects end depends on the engine: use a dict",
    "ctypes": "an engine's code must not depend on its machine: leave it out",
    "inspect": "an engine's code does not look at itself: leave it out",
    "types": "an engine's code does not look at itself: leave it out",
    "builtins": "an engine's code does not look at itself: leave it out",
    "importlib": "modules are known by name: use import",
    "locale": "the locale differs between engines: write the format out",
    "calendar": "it keeps a setting of its own: use datetime",
    "zoneinfo": "the time zones of machines differ: use datetime.timezone with a fixed difference",
    "numpy": "values of numpy are not plain values: use lists and math, or let the function work over columns",
    "pandas": "values of pandas are not plain values: use lists and math, or let the function work over columns",
}
REFUSED_MEMBERS: Mapping[str, str] = {
    "abc.ABCMeta": "let the class inherit from abc.ABC",
    "collections.UserDict": "let the class inherit from dict",
    "collections.UserList": "let the class inherit from list",
    "collections.UserString": "let the class inherit from str",
    "copy.replace": "use dataclasses.replace",
    "dataclasses.make_dataclass": "write the class, with @dataclass",
    "decimal.getcontext": "it is kept and never saved: give the functions of Decimal a Context",
    "decimal.localcontext": "it is kept and never saved: give the functions of Decimal a Context",
    "decimal.setcontext": "it is kept and never saved: give the functions of Decimal a Context",
    "enum.EnumMeta": "let the class inherit from enum.Enum",
    "functools.cache": "its cache is never saved: use a dict in a module variable",
    "functools.cached_property": "its cache is never saved: use property",
    "functools.lru_cache": "its cache is never saved: use a dict in a module variable",
    "functools.singledispatch": "what is registered is never saved: use match, or a dict of functions",
    "functools.update_wrapper": "it changes a function: use functools.wraps",
    "hashlib.algorithms_available": "it differs between machines: write the name of the function out",
    "hashlib.algorithms_guaranteed": "its order differs between processes: write the name of the function out",
    "keyword.kwlist": "other windows could change it: use keyword.iskeyword",
    "keyword.softkwlist": "other windows could change it: use keyword.issoftkeyword",
    "operator.call": "call the function",
    "pyarrow.nulls": "return None for the field",
    "pyarrow.repeat": "return the single value for the field",
    "statistics.NormalDist": "it draws random numbers of its own: use random.gauss, or math.erf",
    "string.Formatter": "use str.format",
    "string.Template": "it would show addresses of objects: use str.format or an f-string",
    "struct.Struct": "use struct.pack and struct.unpack",
    "struct.pack_into": "it changes a buffer unseen: use struct.pack",
    "textwrap.TextWrapper": "use textwrap.wrap or textwrap.fill",
    "typing.get_type_hints": "code that is generated at run time cannot be checked: write it out",
    "typing.runtime_checkable": "use hasattr",
    "zlib.decompress": "a few bytes may become a gigabyte: bring the data in as it is",
}
"""The members of importable modules that user code may expect but cannot import, each with a hint what to use instead."""

Maker = Callable[[Guards, virtual_clock.VirtualClock], Mapping[str, Any]]


def _abc(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    return {"abstractmethod": _refuse_permanent(guards, abstractmethod)}


def _array(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    return {"array": STAND_INS[array][0]}


def _collections(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def named(typename: str, field_names: Any, *, rename: Any = None, defaults: Any = None) -> Any:
        return namedtuple(typename, field_names, rename=bool(rename), defaults=defaults, module=PROGRAM_MODULE)

    named.__name__ = "namedtuple"
    return {"Counter": STAND_INS[Counter][0], "defaultdict": STAND_INS[defaultdict][0], "namedtuple": named}


def _copy(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def deepcopy(value: Any, /) -> Any:
        return copy.deepcopy(value)

    return {"deepcopy": deepcopy}


_SEEN_BY_DATACLASS = ModuleType("annotations")
_SEEN_BY_DATACLASS.__dict__.update({name: getattr(dataclasses, name) for name in ("InitVar", "KW_ONLY")})
_SEEN_BY_DATACLASS.__dict__.update(ClassVar=typing.ClassVar, dataclasses=dataclasses, typing=typing)
sys.modules[PROGRAM_MODULE] = _SEEN_BY_DATACLASS
"""The module in which `dataclass` resolves annotations that are texts, as all are after `from __future__ import annotations`."""


def _dataclasses(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def dataclass(cls: Any = None, /, **given: Any) -> Any:
        settings = {name: bool(value) for name, value in given.items()}

        def make(kind: Any) -> Any:
            if issubclass(kind, COMPARED) and not issubclass(kind, enum.Enum):
                named = ", ".join(each.__name__ for each in COMPARED)
                raise TypeError(f"dataclass {kind.__name__}: must not inherit from {named}; hold the value in a field")
            hints = vars(kind).get("__annotations__", {})
            hints.update({name: typing.ClassVar for name, hint in hints.items() if hint is CLASS_VARIABLE})
            return dataclasses.dataclass(**settings)(kind)

        decorate = _refuse_permanent(guards, make)
        return decorate if cls is None else decorate(cls)

    return {"dataclass": dataclass}


class _EnumMeta(enum.EnumMeta):
    """The metaclass of user code's enums. Refuses members without a plain name: in `Enum("Name", {...})` Python accepts any name,
    even that of a method that Python itself calls.
    """

    def __call__(cls, value: Any, names: Any = None, /) -> Any:  # type: ignore[override]
        if names is None:
            return super().__call__(_flag_number(value) if issubclass(cls, enum.Flag) else value)
        listed = plain_value(names).replace(",", " ").split() if isinstance(names, str) else plain_value(list(names))
        if not all(isinstance(name, str) and name.isidentifier() and not name.startswith("_") for name in listed):
            raise TypeError("the members of an enum are named by texts; write a class for other ones")
        return super().__call__(value, listed, module=PROGRAM_MODULE)

    def __contains__(cls, value: Any) -> bool:
        members: dict[str, Any] = dict(cls.__members__)
        return isinstance(value, cls) or value in [member.value for member in members.values()]


def _flag_number(value: Any) -> Any:
    """Returns `value` if it is a flag, else its number. Raises TypeError for other types. Flags cache their combinations, so only
    numbers may be looked up.
    """
    if isinstance(value, enum.Flag):
        return value
    if not isinstance(value, int):
        raise TypeError(f"a flag needs an int or a flag, not {type(value).__name__}")
    return int.__int__(value)


def _enum_kind(name: str) -> Any:
    def fill(members: Any) -> None:
        members["__module__"] = "enum"

    return new_class(name, (getattr(enum, name),), {"metaclass": _EnumMeta}, fill)


_ENUMS = {name: _enum_kind(name) for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")}


def _enum(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    return dict(_ENUMS) | {name: getattr(enum, name) for name in ("auto", "member", "nonmember", "unique")}


def _functools(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def cmp_to_key(compare: Any) -> Any:
        return functools.partial(_Compared, compare)

    return {"cmp_to_key": cmp_to_key, "total_ordering": _refuse_permanent(guards, functools.total_ordering), "wraps": _wraps}


def _refuse_permanent(guards: Guards, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a decorator that applies `change` to its argument. It raises TypeError for an object made when the code was
    loaded.
    """

    def decorate(decorated: Any, /) -> Any:
        if guards.attributes.is_permanent(decorated):
            raise TypeError(f"{decorated.__name__} cannot be changed: the change would be kept and never saved")
        return change(decorated)

    return decorate


def _wraps(wrapped: Any, /) -> Callable[[Any], Any]:
    """Returns a decorator like `functools.wraps(wrapped)` that makes another function instead of changing its argument."""

    def decorate(wrapper: Any, /) -> Any:
        if not isinstance(wrapper, FunctionType) or not isinstance(wrapped, FunctionType):
            return wrapper
        made = FunctionType(wrapper.__code__, wrapper.__globals__, wrapped.__name__, wrapper.__defaults__, wrapper.__closure__)
        made.__kwdefaults__, made.__qualname__, made.__module__ = wrapper.__kwdefaults__, wrapped.__qualname__, wrapped.__module__
        if "__wrapped__" in wrapper.__dict__:
            made.__dict__["__wrapped__"] = wrapper.__dict__["__wrapped__"]
        return made

    return decorate


@functools.total_ordering
class _Compared:
    """A key of `functools.cmp_to_key`: compares values with the function `compare`."""

    __slots__ = ("_compare", "_value")

    def __init__(self, compare: Callable[[Any, Any], Any], value: Any) -> None:
        self._compare, self._value = compare, value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and bool(self._compare(self._value, other._value) == 0)

    def __lt__(self, other: _Compared) -> bool:
        return bool(self._compare(self._value, other._value) < 0)

    __hash__ = None  # type: ignore[assignment]


def _hashlib(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def new(name: str, /, data: bytes = b"") -> Any:
        if name not in AS_THEY_ARE["hashlib"]:
            raise ValueError(f"unsupported hash type {name}")
        return getattr(hashlib, name)(data)

    return {"new": new}


def _heapq(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    """Returns the module's functions, which also work on kept lists. Python's own would change a kept list without calling its
    methods, so the change would not be recorded.
    """
    found: dict[str, Callable[..., Any]] = {"heappush": _push, "heappop": _pop, "heapify": _heapify}
    found |= {"heapreplace": _replace, "heappushpop": _push_pop}
    return {name: _for_kept_lists(getattr(heapq, name), kept) for name, kept in found.items()}


def _for_kept_lists(usual: Callable[..., Any], kept: Callable[..., Any]) -> Callable[..., Any]:
    def change(heap: Any, *item: Any) -> Any:
        return (kept if isinstance(heap, list) and type(heap) is not list else usual)(heap, *item)

    return change


def _push(heap: Any, item: Any) -> None:
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


def _pop(heap: Any) -> Any:
    last = heap.pop()
    return _replace(heap, last) if heap else last


def _replace(heap: Any, item: Any) -> Any:
    least = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return least


def _push_pop(heap: Any, item: Any) -> Any:
    return _replace(heap, item) if heap and heap[0] < item else item


def _heapify(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _sink(heap, place)


def _rise(heap: Any, top: int, place: int) -> None:
    """Moves the item at `place` up in a heap until its parent is not greater. The item stops at index `top` at the latest."""
    item = heap[place]
    while place > top and item < heap[(place - 1) >> 1]:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = item


def _sink(heap: Any, top: int) -> None:
    """Moves an item down: the lesser child rises down to the bottom, then the item rises from there. Python does the same."""
    item, place, end = heap[top], top, len(heap)
    while (below := 2 * place + 1) < end:
        if below + 1 < end and not heap[below] < heap[below + 1]:
            below += 1
        heap[place] = heap[below]
        place = below
    heap[place] = item
    _rise(heap, top, place)


def _operator(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    read, by_name = guards.attributes.read_public, guards.operators

    def attribute(path: str, owner: Any, /) -> Any:
        return functools.reduce(read, plain_value(path).split("."), owner)

    def attributes(paths: tuple[str, ...], owner: Any, /) -> Any:
        return tuple(attribute(path, owner) for path in paths)

    def attrgetter(path: str, /, *more: str) -> Any:
        return functools.partial(attributes, (path, *more)) if more else functools.partial(attribute, path)

    def call_method(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any], owner: Any, /) -> Any:
        return read(owner, name)(*arguments, **named)

    def methodcaller(name: str, /, *arguments: Any, **named: Any) -> Any:
        return functools.partial(call_method, name, arguments, named)

    def item(keys: tuple[Any, ...], owner: Any, /) -> Any:
        return owner[keys[0]] if len(keys) == 1 else tuple(owner[key] for key in keys)

    def itemgetter(key: Any, /, *more: Any) -> Any:
        return functools.partial(item, (key, *more))

    found: dict[str, Any] = {"attrgetter": attrgetter, "methodcaller": methodcaller, "itemgetter": itemgetter}
    found |= {"add": by_name["add"], "concat": by_name["add"], "mul": by_name["mult"], "is_": is_same_value}
    found |= {
        "and_": by_name["and"],
        "or_": by_name["or"],
        **{name: by_name[name] for name in ("pow", "lshift", "mod", "sub", "xor")},
    }
    return found | {"is_not": lambda a, b: not is_same_value(a, b)}


def _addresses(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    kinds = {kind.__name__: STAND_INS[kind][0] for kind in IP_TYPES}
    names = ("ip_address", "ip_interface", "ip_network")
    return kinds | {name: with_plain_arguments(getattr(ipaddress, name), (float,)) for name in names}


_OVER_ROWS = tuple(name for name in pc.list_functions() if pc.get_function(name).kind != "scalar" and hasattr(pc, name))
"""The functions of `pyarrow.compute` whose result for a row depends on other rows."""
_MACHINE_DEPENDENT = frozenset({"random", "assume_timezone", "local_timestamp"})
"""The functions of `pyarrow.compute` that draw random numbers, or read the machine's time zones."""


def _pyarrow(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def timestamp(unit: str, tz: str | None = None) -> pa.DataType:
        if tz not in (None, "UTC"):
            raise ValueError(f"the time zone {tz} cannot be used, because those of machines differ: use UTC")
        return pa.timestamp(unit, tz)

    names = split_names(
        """
        scalar bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string binary date32 decimal128 null
        """
    )
    return {name: getattr(pa, name) for name in names} | {"array": guards.rows.array, "timestamp": timestamp}


def _pyarrow_compute(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    """Returns the functions of `pyarrow.compute` that work row by row and do not depend on the machine, with guards for columns."""
    rows = guards.rows
    arities = {name: pc.get_function(name).arity for name in pc.list_functions() if pc.get_function(name).kind == "scalar"}
    called = {each: name for name in arities.keys() - _MACHINE_DEPENDENT for each in (name, f"{name}_") if hasattr(pc, each)}
    found = {each: rows.column_function(getattr(pc, each), arities[called[each]]) for each in sorted(called)}
    return found | {"cast": rows.column_function(pc.cast, 1), "strftime": rows.column_function(_strftime, 1), "scalar": pa.scalar}


def _strftime(timestamps: Any, /, format: str = "%Y-%m-%dT%H:%M:%S", locale: str = "C") -> Any:
    if locale != "C":
        raise ValueError(f"the locale {locale} cannot be used, because those of machines differ: use C")
    return pc.strftime(timestamps, format)


_FLAGS_AT = {**dict.fromkeys(("match", "fullmatch", "search", "findall", "finditer"), 1), "split": 2, "sub": 3, "subn": 3}
"""The functions of `re` that take a pattern, each with the index of `flags` among its arguments after the pattern."""
_PATTERN_FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE


def _re(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    """Returns the members of the module `re`, without flags that depend on the machine or print."""
    flags = {
        name: getattr(re, name) for name in split_names("A ASCII I IGNORECASE M MULTILINE S DOTALL X VERBOSE U UNICODE NOFLAG")
    }
    functions = {name: _pattern_function(name) for name in _FLAGS_AT}
    kinds = {"Pattern": re.Pattern, "Match": re.Match, "error": re.error}
    return flags | functions | kinds | {"compile": _compiled, "escape": re.escape}


def _pattern_function(name: str) -> Callable[..., Any]:
    at = _FLAGS_AT[name]

    def call_pattern(pattern: Any, /, *arguments: Any, flags: int = 0, **named: Any) -> Any:
        if len(arguments) > at:
            flags, arguments = arguments[at], arguments[:at]
        return getattr(_compiled(pattern, flags), name)(*arguments, **named)

    return call_pattern


def _compiled(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
    if int(flags) & ~int(_PATTERN_FLAGS):
        raise ValueError("the flags of a regular expression are ASCII, IGNORECASE, MULTILINE, DOTALL and VERBOSE")
    if isinstance(pattern, re.Pattern):
        return re.compile(pattern)
    made = re.compile(plain_value(pattern), int(flags))
    if made.flags & re.LOCALE:
        raise ValueError("a regular expression cannot ask for the locale, which differs between engines")
    return made


def _struct(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    return _plain(struct, "calcsize iter_unpack pack unpack unpack_from")


def _urls(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    def urlencode(query: Any, doseq: Any = None, *more: Any, **named: Any) -> str:
        pairs = query.items() if hasattr(query, "items") else query
        written = [(_written(name, None), _written(value, doseq)) for name, value in pairs]
        return str(encode(written, bool(doseq), *more, **named))

    encode = with_plain_arguments(urllib.parse.urlencode)
    names = """
        parse_qs parse_qsl quote quote_from_bytes quote_plus unquote unquote_plus unquote_to_bytes urldefrag urljoin urlparse
        urlsplit urlunparse urlunsplit
        """
    return {"urlencode": urlencode} | _plain(urllib.parse, names)


def _plain(module: Any, names: str) -> dict[str, Any]:
    """Returns functions of `module` by name, restricted to arguments of Python's own types. They cache their arguments for the
    whole process.
    """
    return {name: with_plain_arguments(getattr(module, name)) for name in split_names(names)}


def _written(value: Any, doseq: Any) -> Any:
    """Returns the text of a value in a URL; bytes stay bytes. With `doseq`, a list gives the list of its texts."""
    if doseq and isinstance(value, list | tuple):
        return [_written(each, None) for each in value]
    return value if isinstance(value, bytes) else safe_str(value)


def _zlib(guards: Guards, clock: virtual_clock.VirtualClock) -> Mapping[str, Any]:
    return {name: value for name, value in vars(zlib).items() if name.startswith(("Z_", "MAX_", "DEF")) and isinstance(value, int)}


MADE: Mapping[str, Maker] = {
    "abc": _abc,
    "array": _array,
    "collections": _collections,
    "copy": _copy,
    "dataclasses": _dataclasses,
    "datetime": lambda guards, clock: virtual_clock.datetime_members(clock),
    "enum": _enum,
    "functools": _functools,
    "ipaddress": _addresses,
    "struct": _struct,
    "hashlib": _hashlib,
    "heapq": _heapq,
    "operator": _operator,
    "pyarrow": _pyarrow,
    "pyarrow.compute": _pyarrow_compute,
    "random": lambda guards, clock: virtual_clock.random_members(clock),
    "re": _re,
    "time": lambda guards, clock: virtual_clock.time_members(clock),
    "typing": lambda guards, clock: typing_members(),
    "urllib.parse": _urls,
    "uuid": lambda guards, clock: virtual_clock.uuid_members(clock),
    "zlib": _zlib,
    "__future__": lambda guards, clock: {"annotations": None},
}
"""For each module, a function that makes the members that are the engine's own, for one instance of a program."""
IMPORTABLE: tuple[str, ...] = tuple(sorted({*AS_THEY_ARE, *MADE}))


def import_refusal(module: str, name: str) -> str | None:
    """Returns a hint why user code cannot import the member `name` of `module`, or `module` itself if `name` is ""; None if
    it can.
    """
    if module not in IMPORTABLE:
        first = module.split(".")[0]
        return REFUSED.get(module) or REFUSED.get(first) or nearest_names_hint(module, IMPORTABLE)
    if name and name not in allowed_members(module):
        if module == "pyarrow.compute" and name in _OVER_ROWS:
            return "it reads other rows: use a window of the type python, which takes one event at a time"
        if f"{module}.{name}" in IMPORTABLE:
            return None
        return REFUSED_MEMBERS.get(f"{module}.{name}") or nearest_names_hint(name, allowed_members(module))
    return None


@functools.cache
def allowed_members(module: str) -> tuple[str, ...]:
    """Returns the names in a module that user code may use, in order."""
    guards = Guards(Meter(PythonLimits(steps=1)))
    return tuple(sorted(dict(_members(module, guards, virtual_clock.VirtualClock()))))


def _members(module: str, guards: Guards, clock: virtual_clock.VirtualClock) -> Iterator[tuple[str, Any]]:
    names = AS_THEY_ARE.get(module, ())
    if names:
        real = importlib.import_module(module)
        yield from ((name, getattr(real, name)) for name in names)
    make = MADE.get(module)
    if make is not None:
        yield from make(guards, clock).items()


def namespace(module: str, guards: Guards, clock: virtual_clock.VirtualClock) -> Namespace:
    """Returns the object that user code gets by `import module`."""
    return Namespace(module, dict(_members(module, guards, clock)))
