"""The guards that rewritten code calls: operators and methods whose result may be large, texts, errors, attributes.

If the size of a result follows from the operands, a guard compares it with the limits before computing. The time of Python's own
functions is not counted.
"""

from __future__ import annotations

import operator
import re
import string
import sys
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from array import array
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from hotspare.scripting.python import rewriting
from hotspare.scripting.python.attributes import Attributes
from hotspare.scripting.python.column_guards import ColumnGuards
from hotspare.scripting.python.generators import CountedGenerator, count_generators, named_as
from hotspare.scripting.python.kept import KeptArray, KeptItemsView, KeptKeysView, KeptList
from hotspare.scripting.python.meter import Meter
from hotspare.scripting.python.safe_texts import check_no_address, safe_ascii, safe_repr, safe_str, without_addresses
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet

_SEQUENCES = (str, bytes, list, tuple, bytearray, array, KeptList, KeptArray)
_VALUES = (int, float, str, bytes, tuple, bool, OrderedFrozenSet)
_WIDTH = re.compile(r"\d{5,}|\*")
_WIDTH_MAX = 9999
_POWER_MAX = 10_000
_SHORT_BITS = 128
_SIMPLE_FORMAT = re.compile(r"(?:[^{}]|\{\w*(?:![rsa])?(?::[^{}]*)?\})*")
"""Matches the formats of `str.format` that read no attributes or elements, and take no widths from values."""
_SIMPLE_VALUES = frozenset({str, int, float, bool})


class Guards:
    """The guards of one instance of a program. They count steps with its meter, and end a call that exceeds a limit."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.rows = ColumnGuards()
        self.add, self.iadd = _adding(self._sized)
        self._formatter = _Formatter(self)
        measured = {name: self._measured(name, size) for name, size in _SIZES.items()}
        self.attributes = Attributes(measured | {"join": self._join, "format": self._format, "format_map": self._format_map})

    def __deepcopy__(self, known: Any) -> Guards:
        return self

    def names(self) -> dict[str, Any]:
        """Returns every guard, by the name that rewritten code uses for it."""
        found: dict[str, Any] = {
            rewriting.ENTER: self.meter.enter_call,
            rewriting.LEAVE: self.meter.exit_call,
            rewriting.CAUGHT: self.check_caught_error,
            rewriting.ATTRIBUTE: self.attributes.read_attribute,
            rewriting.TARGET: self.attributes.bindable_owner,
            rewriting.SET: OrderedSet,
            rewriting.SAME: is_same_value,
            rewriting.TEXT: self.format_in_fstring,
            rewriting.NEXT: next,
            rewriting.DEEP: self.count_depth,
            rewriting.GENERATING: lambda function: count_generators(function, self.meter),
            rewriting.ITERATED: lambda inner: CountedGenerator(inner, self.meter),
            rewriting.HELD: PatternValue,
            rewriting.EVERYTHING: BaseException,
        }
        found |= {rewriting.real_name(kind.__name__): kind for kind in (list, dict, str)}
        found[rewriting.call_name("str")] = safe_str
        found |= {rewriting.call_name(kind.__name__): kind for kind in (list, dict)}
        found |= {f"__hs_{name}__": guard for name, guard in self.operators.items()}
        in_place = {
            "add": self.iadd,
            "mult": self.imult,
            "sub": _set_operation(operator.isub),
            "and": _set_operation(operator.iand),
            "or": _set_operation(operator.ior),
            "xor": _set_operation(operator.ixor),
        }
        return found | {f"__hs_i{name}__": guard for name, guard in (self.operators | in_place).items()}

    @property
    def operators(self) -> dict[str, Callable[[Any, Any], Any]]:
        return {
            "add": self.add,
            "mult": self.mult,
            "pow": self.pow,
            "lshift": self.lshift,
            "mod": self.mod,
            "sub": _set_operation(operator.sub),
            "and": _set_operation(operator.and_),
            "or": _set_operation(operator.or_),
            "xor": _set_operation(operator.xor),
        }

    def count_depth(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function like the lambda `function` whose calls count as steps and in depth."""
        enter, leave = self.meter.enter_call, self.meter.exit_call

        def run(*arguments: Any, **named: Any) -> Any:
            enter()
            try:
                return function(*arguments, **named)
            finally:
                leave()

        return named_as(function, run)

    def check_caught_error(self) -> None:
        """Checks the current error before user code can catch it. An error that depends on this engine's memory or stack ends the
        call. Addresses are removed from the message of any other error.
        """
        error = sys.exc_info()[1]
        if isinstance(error, MemoryError):
            self.meter.stop_out_of_memory()
        if isinstance(error, RecursionError):
            self.meter.stop("more functions, or values, within each other than Python can take")
        if error is not None and any(type(each) is str and " 0x" in each for each in error.args):
            error.args = tuple(without_addresses(each) if type(each) is str else each for each in error.args)

    def mult(self, a: Any, b: Any) -> Any:
        self._measure_product(a, b)
        return a * b

    def imult(self, a: Any, b: Any) -> Any:
        self._measure_product(a, b)
        return operator.imul(a, b)  # type: ignore[no-untyped-call]

    def _measure_product(self, a: Any, b: Any) -> None:
        if type(a) is float or type(b) is float:
            return
        if isinstance(a, int) and isinstance(b, int):
            if (bits := int.bit_length(a) + int.bit_length(b)) > _SHORT_BITS:
                self._measure_bits(bits)
        elif isinstance(b, int) and isinstance(a, _SEQUENCES):
            self._measure(_length(a) * int(b))
        elif isinstance(a, int) and isinstance(b, _SEQUENCES):
            self._measure(_length(b) * int(a))

    def pow(self, a: Any, b: Any, modulus: Any = None) -> Any:
        if isinstance(b, int) and abs(b) > _POWER_MAX and not isinstance(a, int | float | complex | Decimal):
            self.meter.stop(f"a power of more than {_POWER_MAX}")
        if isinstance(a, int) and isinstance(b, int) and modulus is None and int.bit_length(a) > 1:
            self._measure_bits(int.bit_length(a) * b)
        return pow(a, b) if modulus is None else pow(a, b, modulus)

    def lshift(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int) and a:
            self._measure_bits(int.bit_length(a) + b)
        return a << b

    def mod(self, a: Any, b: Any) -> Any:
        if isinstance(a, str | bytes | bytearray):
            pattern = a if isinstance(a, str) else bytes.decode(bytes(a), "latin-1")
            self._check_width(pattern)
            made = a % b
            check_no_address(made if isinstance(made, str) else bytes(made).decode("latin-1"), b)
            return made
        return a % b

    def _measure(self, count: int) -> None:
        """Ends the call with LimitExceeded if `count`, the elements of a value to be made, exceeds the limit."""
        if count > self.meter.limits.elements:
            self.meter.stop(f"a value of more than {self.meter.limits.elements} elements")

    def _measure_bits(self, bits: int) -> None:
        if bits > self.meter.limits.bits:
            self.meter.stop(f"a number of more than {self.meter.limits.bits} bits")

    def _sized(self, value: Any) -> Any:
        if isinstance(value, _SEQUENCES):
            self._measure(_length(value))
        return value

    def _check_width(self, spec: str) -> None:
        if _WIDTH.search(spec):
            self.meter.stop(f"a format with a width of more than {_WIDTH_MAX}")

    def _measured(self, name: str, size: Callable[..., int]) -> Callable[..., Any]:
        """Returns a guard for the method `name` of texts, bytes or numbers. It ends the call if `size`, called with the arguments,
        exceeds the limit.
        """

        def make(owner: Any, /, *arguments: Any, **named: Any) -> Any:
            self._measure(size(owner, *arguments, **named))
            return _usual(owner, name)(owner, *arguments, **named)

        return make

    def _join(self, owner: Any, parts: Any, /) -> Any:
        pieces = parts if isinstance(parts, list | tuple) else list(parts)
        if len(pieces) > _JOINED_FREE or len(owner) > _JOINED_FREE:
            self._measure(sum(map(_length, pieces)) + _length(owner) * len(pieces))
        return _usual(owner, "join")(owner, pieces)

    def _format(self, owner: str, /, *arguments: Any, **named: Any) -> str:
        if _SIMPLE_FORMAT.fullmatch(owner) and _SIMPLE_VALUES.issuperset(map(type, (*arguments, *named.values()))):
            self._check_width(owner)
            return str.format(owner, *arguments, **named)
        return self._formatter.vformat(owner, arguments, named)

    def _format_map(self, owner: str, named: Any, /) -> str:
        return self._formatter.vformat(owner, (), named)

    def safe_format(self, value: Any, spec: str = "", /) -> str:
        """Returns `format(value, spec)`. Ends the call if a width exceeds the limit. Raises ValueError for a text with an address
        in memory, which differs between engines.
        """
        self._check_width(spec)
        return check_no_address(format(value, spec), value)

    def format_in_fstring(self, value: Any, conversion: str, spec: str) -> str:
        """Returns the text of `{value!conversion:spec}` in an f-string. Ends the call or raises as `safe_format`."""
        if conversion:
            value = apply_conversion(value, conversion)
        if type(value) is str and not spec:
            return value
        return self.safe_format(value, spec)


class _Formatter(string.Formatter):
    """Implements `str.format` with guards for the attributes that a format reads and for the texts of values."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = formatter_field_name_split(field_name)
        found = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            found = self._guards.attributes.read_public(found, name) if is_attribute else found[name]
        return found, first

    def format_field(self, value: Any, format_spec: str) -> Any:
        return self._guards.safe_format(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return apply_conversion(value, conversion) if conversion else value


def apply_conversion(value: Any, conversion: str) -> Any:
    """Returns the text of a value by `conversion`: `r`, `s` or `a`, as in an f-string. Raises ValueError for a text with an
    address.
    """
    return {"r": safe_repr, "s": safe_str, "a": safe_ascii}[conversion](value)


class PatternValue:
    """Holds a value in its attribute `value` for a pattern of `match`, which can name an attribute but contain no calls."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_JOINED_FREE = 64


def _length(value: Any) -> int:
    """Returns the length of a sequence. A `__len__` that user code defines is not called."""
    kinds: tuple[Any, ...] = _SEQUENCES
    for kind in kinds:
        if isinstance(value, kind):
            return int(kind.__len__(value))
    return 0


def _longest(table: Any) -> int:
    if not isinstance(table, dict):
        return 1
    return max((len(each) for each in table.values() if isinstance(each, str)), default=1)


def _width(owner: Any, width: int, *fill: Any) -> int:
    return width


_SIZES: Mapping[str, Callable[..., int]] = {
    **dict.fromkeys(("ljust", "rjust", "center", "zfill"), _width),
    "expandtabs": lambda owner, tabsize=8: len(owner) * max(tabsize, 1),
    "replace": lambda owner, old, new, *most: owner.count(old) * len(new) if len(new) > len(old) else 0,
    "translate": lambda owner, table, *_, **__: len(owner) * _longest(table),
    "to_bytes": lambda owner, length=1, *_, **__: length,
}
"""For each growing method, a function of object and arguments that returns the approximate size of the result."""


def _usual(owner: Any, name: str) -> Callable[..., Any]:
    """Returns the method `name` of the Python type from which the owner's class inherits, even if a class of user code overrides
    it.
    """
    found: Callable[..., Any] = getattr(next(kind for kind in (str, bytes, bytearray, int) if isinstance(owner, kind)), name)
    return found


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()), KeptKeysView, KeptItemsView)


def _ordered(value: Any) -> Any:
    return OrderedSet(list(value)) if type(value) in _VIEWS else value


def _adding(sized: Callable[[Any], Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Returns guards for `a + b` and `a += b`; `sized` checks each result that is not a number. They are closures because methods
    would cost a third more.
    """

    def add(a: Any, b: Any) -> Any:
        total = a + b
        kind = type(total)
        return total if kind is float or kind is int else sized(total)

    def iadd(a: Any, b: Any) -> Any:
        a += b
        kind = type(a)
        return a if kind is float or kind is int else sized(a)

    return add, iadd


def _set_operation(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns the guard of a set operation. Views of dicts become ordered sets first, because Python's result would iterate by
    hashes.
    """

    def ordered_operation(a: Any, b: Any) -> Any:
        return operation(_ordered(a), _ordered(b))

    return ordered_operation


def is_same_value(a: Any, b: Any) -> bool:
    """Returns `a is b` for the code. Plain values are compared by type and value, because two equal ones may be one object
    or two.
    """
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _VALUES):
        return False
    return bool(a == b) or (type(a) is float and a != a and b != b)
