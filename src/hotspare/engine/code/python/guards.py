"""What rewritten code calls: work that Python does at once is counted, and what it would make is measured, before it is done."""

from __future__ import annotations

import operator
import re
import sys
from array import array
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import compress
from typing import Any

from hotspare.engine.code.python import rewriting
from hotspare.engine.code.python.iterating import Iterators, named_as
from hotspare.engine.code.python.kept import KeptArray, KeptList
from hotspare.engine.code.python.meter import FREE_ELEMENTS, Meter
from hotspare.engine.code.python.sets import OrderedFrozenSet, OrderedSet

_SEQUENCES = (str, bytes, list, tuple, bytearray, array, KeptList, KeptArray)
_SHOWN = frozenset({int, float, bool, str, type(None), bytes})
_VALUES = (int, float, str, bytes, tuple, bool, OrderedFrozenSet)
PROGRAM_MODULE = "__people__"
"""`__name__` in a program, and `__module__` of its functions and classes."""
_WIDTH = re.compile(r"\d{5,}|\*")
_POWER_MAX = 10_000
_DIGITS_MAX = 4300
"""Of a number that becomes a text, or is read from one."""
_BITS_SHOWN_MAX = 14_000
_ADDRESS = " at 0x"


class Namespace:
    """A module as people's code sees it: what it may use of it. It cannot be changed."""

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        self.__dict__.update(members)
        self.__dict__["__name__"] = name

    def __repr__(self) -> str:
        return f"<module {self.__dict__['__name__']}>"


class ObjectBase:
    """What classes of people's code inherit, so that no address shows in a text."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"


def length(value: Any) -> int:
    """How many elements a sequence or container has; 0 of everything else."""
    try:
        return len(value)
    except TypeError:
        return 0
    except OverflowError:
        return 1 << 62


class Guards:
    """Of one instance: they count with its meter."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.charge = meter.charge
        self.add = _adding(self.sized)
        self.iterators = Iterators(meter, self.called)
        self._growing: Mapping[str, Callable[..., Any]] = {
            "join": self._join,
            "replace": self._replace,
            "format": self._format,
            "format_map": self._format_map,
            "translate": self._translate,
            "to_bytes": self._to_bytes,
            "expandtabs": self._expandtabs,
            "encode": self._encode,
            **dict.fromkeys(("ljust", "rjust", "center", "zfill"), self._widened),
        }

    def names(self) -> dict[str, Any]:
        """Every guard by the name that rewritten code has for it."""
        found: dict[str, Any] = {
            rewriting.ENTER: self.meter.enter,
            rewriting.LEAVE: self.meter.leave,
            rewriting.CAUGHT: self.caught,
            rewriting.SIZED: self.sized,
            rewriting.SCANNED: self.scanned,
            rewriting.TARGET: target,
            rewriting.SET: self.made_set,
            rewriting.SAME: same,
            rewriting.TEXT: self.text_in_place,
            rewriting.METHOD: self.method,
            rewriting.CALL: self.called,
            rewriting.NEXT: next,
            rewriting.DEEP: self.deep,
            rewriting.GENERATING: self.iterators.generating,
            rewriting.ITERATED: self.iterators.iterated,
        }
        binary = {
            "add": self.add,
            "mult": self.mult,
            "pow": self.pow,
            "lshift": self.lshift,
            "mod": self.mod,
            "sub": _of_sets(operator.sub),
            "and": _of_sets(operator.and_),
            "or": _of_sets(operator.or_),
            "xor": _of_sets(operator.xor),
        }
        in_place = {
            "mult": self.imult,
            "sub": _of_sets(operator.isub),
            "and": _of_sets(operator.iand),
            "or": _of_sets(operator.ior),
            "xor": _of_sets(operator.ixor),
        }
        found |= {f"__hs_{name}__": guard for name, guard in binary.items()}
        found |= {f"__hs_i{name}__": guard for name, guard in (binary | in_place).items()}
        return found | {f"__hs_{name}__": guard for name, guard in self.types().items()}

    def types(self) -> dict[str, Callable[..., Any]]:
        """What stands for types where they are called."""
        return {
            "list": self._consuming(list),
            "tuple": self._consuming(tuple),
            "dict": self._consuming(dict),
            "str": self.text,
            "int": self.whole,
            "range": self.range,
            "bytes": self._byte_string(bytes),
            "bytearray": self._byte_string(bytearray),
        }

    def deep(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, here a lambda, that counts its depth."""
        enter, leave = self.meter.enter, self.meter.leave

        def run(*arguments: Any, **named: Any) -> Any:
            enter()
            try:
                return function(*arguments, **named)
            finally:
                leave()

        return named_as(function, run)

    def caught(self) -> None:
        """People's code caught an error: never one that says how much memory or stack this engine has."""
        error = sys.exc_info()[1]
        if isinstance(error, RecursionError | MemoryError):
            self.meter.stop("more functions, or values, within each other than Python can take")

    def sized(self, value: Any) -> Any:
        """`value`, all of which is about to be worked on."""
        if (count := length(value)) > FREE_ELEMENTS:
            self.meter.charge(count)
        return value

    def scanned(self, value: Any) -> Any:
        """`value`, in which something is about to be looked for."""
        if isinstance(value, _SEQUENCES) and len(value) > FREE_ELEMENTS:
            self.meter.charge(len(value))
        return value

    def walked(self, values: Any) -> Any:
        """`values`, all of which Python is about to walk: counted at once, or one by one where nobody knows how many there are."""
        if hasattr(values, "__len__"):
            return self.sized(values)
        return compress(values, self.meter.steps)

    def made_set(self, elements: list[Any]) -> OrderedSet:
        self.meter.charge(len(elements))
        return OrderedSet(elements)

    def called(self, callee: Any) -> Any:
        """What is called in place of `callee`, which may be one of `GUARDED_CALLS`."""
        for type_, name in _TYPE_NAMES.items():
            if callee is type_:
                return self.types()[name]
        return callee

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
            if (bits := a.bit_length() + b.bit_length()) > 128:
                self.meter.charge_bits(bits)
        elif isinstance(b, int) and isinstance(a, _SEQUENCES):
            self._measure(len(a) * b)
        elif isinstance(a, int) and isinstance(b, _SEQUENCES):
            self._measure(len(b) * a)

    def _measure(self, count: int) -> None:
        """So many elements are about to be made."""
        if count > FREE_ELEMENTS:
            self.meter.charge(count)

    def pow(self, a: Any, b: Any, modulus: Any = None) -> Any:
        if isinstance(b, int) and abs(b) > _POWER_MAX and not isinstance(a, int | float | complex | Decimal):
            self.meter.stop(f"a power of more than {_POWER_MAX}")
        if isinstance(a, int) and isinstance(b, int):
            bits = a.bit_length()
            self.meter.charge_bits(max(bits * b if modulus is None and bits > 1 else 0, bits, b.bit_length()))
        return pow(a, b) if modulus is None else pow(a, b, modulus)

    def lshift(self, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int) and a:
            self.meter.charge_bits(a.bit_length() + b)
        return a << b

    def mod(self, a: Any, b: Any) -> Any:
        if isinstance(a, str | bytes):
            self.sized(a)
            pattern = a if isinstance(a, str) else a.decode("latin-1")
            if _WIDTH.search(pattern):
                self.meter.stop("a format with a width of more than 9999")
            return self._without_address(a % b) if isinstance(a, str) else a % b
        return a % b

    def method(self, owner: Any, name: str, *arguments: Any, **named: Any) -> Any:
        """`owner.name(...)`, of which far more may come than there is."""
        guarded = self._growing.get(name) if isinstance(owner, str | bytes | bytearray | int) else None
        if guarded is None:
            return getattr(self.sized(owner), name)(*arguments, **named)
        return guarded(owner, name, *arguments, **named)

    def _join(self, owner: Any, name: str, parts: Any) -> Any:
        pieces = parts if isinstance(parts, list | tuple) else list(self.sized(parts))
        if isinstance(owner, str | bytes):
            self._measure(sum(length(piece) for piece in pieces) + len(owner) * len(pieces))
        return owner.join(pieces)

    def _replace(self, owner: Any, name: str, old: Any, new: Any, *most: Any) -> Any:
        self.sized(owner)
        if length(new) > length(old):
            self._measure(owner.count(old) * length(new))
        return owner.replace(old, new, *most)

    def _format(self, owner: str, name: str, *arguments: Any, **named: Any) -> str:
        if _WIDTH.search(self.sized(owner)):
            self.meter.stop("a format with a width of more than 9999")
        if "{" in owner.replace("{{", "").replace("{}", "") and re.search(r":[^}]*\{", owner):
            self.meter.stop("a format whose width comes from a value")
        if "__" in owner or re.search(r"\{[^}]*\.", owner.split(":", 1)[0]):
            raise ValueError("a format cannot look into an object; put the value in itself")
        return self._without_address(owner.format(*map(self.sized, arguments), **named))

    def _format_map(self, owner: str, name: str, named: Any) -> str:
        return self._format(owner, name, **dict(named))

    def _translate(self, owner: str, name: str, table: Any) -> Any:
        most = max((length(each) for each in table.values()), default=1) if isinstance(table, dict) else 1
        self._measure(len(owner) * max(most, 1))
        return owner.translate(table)

    def _to_bytes(self, owner: int, name: str, *arguments: Any, **named: Any) -> bytes:
        self._measure(max((each for each in (*arguments, *named.values()) if isinstance(each, int)), default=1))
        return owner.to_bytes(*arguments, **named)

    def _expandtabs(self, owner: Any, name: str, tabsize: int = 8) -> Any:
        self._measure(len(owner) + owner.count("\t" if isinstance(owner, str) else b"\t") * max(tabsize, 0))
        return owner.expandtabs(tabsize)

    def _encode(self, owner: Any, name: str, *arguments: Any, **named: Any) -> Any:
        return self.sized(owner).encode(*arguments, **named)

    def _widened(self, owner: Any, name: str, width: int, *fill: Any) -> Any:
        self._measure(max(len(owner), width))
        return getattr(owner, name)(width, *fill)

    def _consuming(self, type_: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any, **named: Any) -> Any:
            if arguments:
                return type_(self.walked(arguments[0]), *arguments[1:], **named)
            return type_(**named)

        return make

    def _byte_string(self, type_: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            if arguments:
                self._measure(arguments[0] if isinstance(arguments[0], int) else length(arguments[0]))
            return type_(*arguments)

        return make

    def range(self, *arguments: Any) -> range:
        """A range that may be walked by Python itself: its whole length is counted."""
        made = range(*arguments)
        self._measure(length(made))
        return made

    def whole(self, *arguments: Any, **named: Any) -> int:
        if arguments and isinstance(arguments[0], str | bytes) and len(arguments[0]) > _DIGITS_MAX:
            raise ValueError(f"a number of more than {_DIGITS_MAX} digits")
        if arguments and isinstance(arguments[0], Decimal) and arguments[0].is_finite() and arguments[0].adjusted() > _DIGITS_MAX:
            raise ValueError(f"a number of more than {_DIGITS_MAX} digits")
        return int(*arguments, **named)

    def text(self, *arguments: Any, **named: Any) -> str:
        """`str(...)`."""
        if len(arguments) == 1 and not named:
            value = arguments[0]
            if type(value) in _SHOWN:
                return str(self._short(value))
            return self._without_address(str(self.sized(value)))
        return str(*map(self.sized, arguments), **named)

    def shown(self, value: Any) -> str:
        """`repr(...)`."""
        return self._without_address(repr(self._short(self.sized(value))))

    def formatted(self, value: Any, spec: str = "") -> str:
        """`format(...)`."""
        if _WIDTH.search(spec):
            self.meter.stop("a format with a width of more than 9999")
        return self._without_address(format(self._short(self.sized(value)), spec))

    def text_in_place(self, value: Any, conversion: str, spec: str) -> str:
        """What stands in an f-string for a value."""
        if conversion:
            value = self.text(value) if conversion == "s" else self.shown(value)
            value = value.encode("ascii", "backslashreplace").decode() if conversion == "a" else value
        if type(value) is str and not spec:
            return value
        return self.formatted(value, spec)

    @staticmethod
    def _short(value: Any) -> Any:
        if type(value) is int and value.bit_length() > _BITS_SHOWN_MAX:
            raise ValueError(f"a number of more than {_DIGITS_MAX} digits")
        return value

    @staticmethod
    def _without_address(text: str) -> str:
        if _ADDRESS in text:
            raise ValueError("the text of an object would show its address, which differs between engines")
        return text


_TYPE_NAMES = {
    list: "list",
    tuple: "tuple",
    dict: "dict",
    str: "str",
    int: "int",
    range: "range",
    bytes: "bytes",
    bytearray: "bytearray",
}


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.items()))


def _ordered(value: Any) -> Any:
    return OrderedSet(list(value)) if type(value) in _VIEWS else value


def _adding(sized: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """`a + b`. Most are of numbers, so it is no method: that would cost a third more."""

    def add(a: Any, b: Any) -> Any:
        total = a + b
        kind = type(total)
        return total if kind is float or kind is int else sized(total)

    return add


def _of_sets(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation that makes sets of views of dicts: here sets that keep their order."""

    def apply(a: Any, b: Any) -> Any:
        return operation(_ordered(a), _ordered(b))

    return apply


def same(a: Any, b: Any) -> bool:
    """`a is b`, but of plain values, of which two that are equal may be one object or two."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _VALUES):
        return False
    return bool(a == b) or (type(a) is float and a != a and b != b)


def target(owner: Any) -> Any:
    """An object, an attribute of which is about to be bound."""
    if type(owner).__module__ != PROGRAM_MODULE:
        raise AttributeError(
            f"an attribute of {getattr(owner, '__name__', type(owner).__name__)} cannot be bound: it would be kept and never saved"
        )
    return owner
