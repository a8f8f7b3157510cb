"""The state that a program keeps between events: plain values of its module variables, checked only if a call has changed them.

    a call ends   ─► commit    checks that its values are plain, and journals them from now on; else NotPlain, with the variable
    a call fails  ─► roll_back restores all; keys of dicts that it removed are then the last of their dicts
    a snapshot    ─► freeze    shares everything; what changes later is copied before

Plain are None, bool, int, float, str, bytes, and lists, tuples, dicts, defaultdicts, sets and arrays of these. The cost of a call
does not depend on the amount of kept state.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from weakref import ref

from hotspare.scripting.python.kept import ABSENT, EventDict, Journal, KeptArray, KeptDict, KeptList, NotPlain, no_value
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet
from hotspare.scripting.python.stand_ins import REAL

NESTING_MAX = 64
FACTORIES: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "set": OrderedSet,
    "null": no_value,
}
"""The default factories that a kept defaultdict may have, by the name under which they are saved."""


def _none(value: Any) -> Any:
    return None


_FACTORY_OF: Mapping[type, Callable[[Any], Any]] = {
    KeptDict: lambda value: value.factory,
    defaultdict: lambda value: value.default_factory,
    EventDict: lambda value: no_value,
}
_PLAIN_KEYS = (str, int, bytes, bool, type(None))
_VALUE_BYTES, _CONTAINER_BYTES = 16, 64
_get: Callable[..., Any] = dict.get


@dataclass(slots=True)
class ModuleScope:
    """The state of one module. `names`: the kept variables. `rebound`: those that a call may rebind. `committed`: their values at
    the last commit.
    """

    module: str
    variables: dict[str, Any]
    names: tuple[str, ...]
    rebound: tuple[str, ...]
    committed: dict[str, Any]


class Keeper:
    """The kept state of one instance of a program. `bytes_used`: the counted bytes of the state. It adds up changes since the last
    full count, so it may be too high.
    """

    def __init__(self, bytes_max: int) -> None:
        self.journal = Journal()
        self.journal.taken = self._preserve_content
        self.bytes_used = 0
        self._bytes_committed = 0
        self._bytes_max = bytes_max
        self._bytes_least: float = 0
        """A lower bound of the kept bytes at the last commit, known if a recent count exceeded the limit; else 0."""
        self._is_too_much = False
        self._may_bind = False
        self._met: dict[int, Any] = {}
        """The values adopted since the last commit, by identity: the original, which thereby stays alive, and its kept form."""
        self._scopes: list[ModuleScope] = []
        self._rebound: list[tuple[ModuleScope, tuple[str, ...]]] = []
        """The scopes of modules that were loaded since the last commit, each with the names that calls may rebind after that
        commit.
        """
        self._fixed: list[tuple[dict[str, Any], str, Any]] = []
        """The variables that must not change: module variables, name, and the value when the code was loaded."""
        self._next_number = 0
        self._frozen: list[ref[FrozenVariables]] = []

    @property
    def variables(self) -> Iterator[tuple[str, str, Any]]:
        """Yields (module, name, value) of all kept variables, in order of module and name."""
        for scope in sorted(self._scopes, key=lambda each: each.module):
            for name in sorted(scope.committed):
                yield scope.module, name, scope.committed[name]

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(scope.module for scope in self._scopes)

    def kept_names(self, module: str) -> tuple[str, ...]:
        """Returns the names of the kept variables of a module."""
        return next(scope.names for scope in self._scopes if scope.module == module)

    def track_module(
        self, module: str, variables: dict[str, Any], names: Sequence[str], rebound: Set[str], fixed: Mapping[str, Any]
    ) -> None:
        """Keeps the variables `names` of a module from now on. Until the first commit the code may rebind all of them, later only
        those in `rebound`. `fixed`: variables with the values that they must retain.
        """
        self._fixed += [(variables, name, value) for name, value in fixed.items()]
        self._scopes.append(ModuleScope(module, variables, tuple(names), tuple(names), {}))
        self._rebound.append((self._scopes[-1], tuple(name for name in names if name in rebound)))
        self._may_bind = True

    def bind_module(self, module: str, values: Mapping[str, Any]) -> None:
        """Binds the kept variables of a module to restored values, which must already be in kept form. Kept variables without a
        value are unbound.
        """
        (scope,) = (each for each in self._scopes if each.module == module)
        scope.committed = dict(values)
        for name in scope.names:
            if name in values:
                scope.variables[name] = values[name]
            else:
                scope.variables.pop(name, None)

    @property
    def has_kept_changes(self) -> bool:
        """Whether, since the last commit, a kept container was changed or a variable was rebound, fixed ones included."""
        return bool(self.journal.changes or self._bound()) or any(
            variables.get(name, ABSENT) is not value for variables, name, value in self._fixed
        )

    def commit(self) -> None:
        """Makes all changes of a call permanent. Raises NotPlain if a value is not plain or the state exceeds the limit; the caller
        then rolls back.
        """
        changes, bound = self.journal.changes, self._bound() if self._may_bind else ()
        for variables, name, value in self._fixed:
            if variables.get(name, ABSENT) is not value:
                raise NotPlain(f"another value in the module variable {name}, which is transient")
        if not changes and not bound:
            return
        self._met = {}
        for container, where, before, after in changes:
            if type(container) is KeptDict and ((kind := type(where)) is int or kind is str):
                value = _get(container, where, ABSENT)
                if type(value) is float and value == value:  # the common case: adopted as it is, which saves three calls
                    self.bytes_used += 2 * _VALUE_BYTES + (len(where) if kind is str else 0)
                    continue
            try:
                container.adopt_stored(where, after, before, self.adopt, self._adopt_key)
            except NotPlain as error:
                raise NotPlain(f"{error} in the module variable {self._variable_of(container)}") from None
        for scope, name in bound:
            self._adopt_variable(scope, name, scope.variables.get(name, ABSENT))
        least = self._least(changes, bound) if self._bytes_least else 0
        if self.bytes_used > self._bytes_max + self._bytes_max // 4:
            self._measure(least)
            least = 0
        self._bytes_least = least
        changes.clear()
        while self._rebound:
            scope, names = self._rebound.pop()
            scope.rebound = names
            self._may_bind = any(each.rebound for each in self._scopes)
        for scope, name in bound:
            if name in scope.variables:
                scope.committed[name] = scope.variables[name]
            else:
                del scope.committed[name]
        self._bytes_committed = self.bytes_used

    def _measure(self, least: float) -> None:
        """Counts the kept bytes again. Raises NotPlain if they exceed the limit. If the lower bound `least` already exceeds it,
        counting is skipped, so that many failing events stay cheap.
        """
        if least <= self._bytes_max:
            self.bytes_used = self._reachable_bytes()
            if self.bytes_used <= self._bytes_max:
                return
            self._is_too_much = True
        raise NotPlain(f"more than {self._bytes_max} bytes in module variables")

    def _least(self, changes: Sequence[tuple[Any, Any, Any, Any]], bound: Sequence[tuple[ModuleScope, str]]) -> float:
        """Returns a lower bound of the kept bytes after these changes: the last bound without the bytes that the changes
        may free.
        """
        lost: float = sum(container.freed_bytes_max(where, before, after, _size) for container, where, before, after in changes)
        lost += sum(_size(scope.committed[name]) for scope, name in bound if name in scope.committed)
        return max(0, self._bytes_least - lost)

    def _bound(self) -> list[tuple[ModuleScope, str]]:
        """Returns the variables that were rebound since the last commit. Variables that no function may rebind are checked only at
        their first commit.
        """
        bound = []
        for scope in self._scopes:
            variables, committed = scope.variables, scope.committed
            for name in scope.rebound:
                if variables.get(name, ABSENT) is not committed.get(name, ABSENT):
                    bound.append((scope, name))  # noqa: PERF401 the fastest form without results
        return bound

    def roll_back(self) -> None:
        for container, where, before, _ in reversed(self.journal.changes):
            container.undo(where, before)
        self.journal.changes.clear()
        self.bytes_used = self._bytes_committed
        for scope in self._scopes:
            self.bind_module(scope.module, scope.committed)
        for variables, name, value in self._fixed:
            if value is ABSENT:
                variables.pop(name, None)
            else:
                variables[name] = value
        if self._is_too_much:
            self._is_too_much, self._bytes_least = False, self._reachable_bytes()

    def _adopt_variable(self, scope: ModuleScope, name: str, value: Any) -> None:
        """Replaces the value of a variable by its kept form, or records that it is unbound. The bytes are subtracted and added even
        for the same object, because a restored engine has another object there.
        """
        if name in scope.committed:
            self.bytes_used -= _own_bytes(scope.committed[name])
        if value is ABSENT:
            return
        try:
            scope.variables[name] = self.adopt(value)
        except NotPlain as error:
            raise NotPlain(f"{error} in the module variable {name}") from None

    def adopt(self, value: Any, depth: int = 0) -> Any:
        """Returns the kept form of a value: the value itself, or containers that record their changes. Adds its bytes to
        `bytes_used`. Raises NotPlain.
        """
        kind = type(value)
        if kind is str or kind is bytes:
            self.bytes_used += _VALUE_BYTES + len(value)
            return value
        if kind is float:
            self.bytes_used += _VALUE_BYTES
            return value if value == value else math.nan
        if kind is int:
            self.bytes_used += _VALUE_BYTES + value.bit_length() // 8
            return value
        if value is None or kind is bool:
            self.bytes_used += _VALUE_BYTES
            return value
        return self._adopt_container(value, kind, depth)

    def _adopt_container(self, value: Any, kind: type, depth: int) -> Any:
        if kind in (KeptDict, KeptList, KeptArray) and value.journal is self.journal:
            return value
        if depth >= NESTING_MAX:
            raise NotPlain(f"containers within each other, more than {NESTING_MAX} deep,")
        if kind is tuple:
            self.bytes_used += _CONTAINER_BYTES
            parts = tuple(self.adopt(each, depth + 1) for each in value)
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
        if kind is OrderedFrozenSet:
            self._adopt_key(value)
            return value
        met = self._met
        if id(value) in met:
            return met[id(value)][1]
        self.bytes_used += _CONTAINER_BYTES
        number = self.next_number()
        if kind is array or kind is KeptArray:
            self.bytes_used += len(value) * value.itemsize
            made: Any = KeptArray.from_array(value, self.journal, number)
            met[id(value)] = value, made
            return made
        if kind is list or kind is KeptList:
            made = KeptList(self.journal, number)
            met[id(value)] = value, made
            list.extend(made, [self.adopt(each, depth + 1) for each in value])
            return made
        if kind is OrderedSet:
            met[id(value)] = value, value
            if type(value._items) is not KeptDict or value._items.journal is not self.journal:
                value._items = self._adopt_dict(value._items, None, number, depth)
            return value
        if kind in (dict, KeptDict, defaultdict, EventDict):
            factory = _FACTORY_OF.get(kind, _none)(value)
            factory = REAL.get(factory, factory) if isinstance(factory, type) else factory
            if factory is not None and factory not in FACTORIES.values():
                raise NotPlain("a defaultdict that makes something else than plain values")
            return self._adopt_dict(value, factory, number, depth)
        raise NotPlain(describe_object(value))

    def _adopt_dict(self, value: dict[Any, Any], factory: Any, number: int, depth: int) -> KeptDict:
        made = KeptDict(self.journal, number, factory)
        self._met[id(value)] = value, made
        for key, each in dict.items(value):
            self._adopt_key(key)
            dict.__setitem__(made, key, self.adopt(each, depth + 1))
        return made

    def _adopt_key(self, key: Any, depth: int = 0) -> None:
        kind = type(key)
        self.bytes_used += _VALUE_BYTES + (len(key) if kind is str or kind is bytes else 0)
        if kind in _PLAIN_KEYS:
            return
        if kind is float:
            if key != key:
                raise NotPlain("a key that is not a number (NaN)")
        elif kind in (tuple, OrderedFrozenSet) and depth < NESTING_MAX:
            for part in key:
                self._adopt_key(part, depth + 1)
        else:
            raise NotPlain(f"{describe_object(key)} as a key")

    def _variable_of(self, container: Any) -> str:
        """Returns the name of the first variable from which `container` can be reached, "?" if none is found."""
        for module, name, value in self.variables:
            for each in _reached([value]):
                if each is container:
                    return f"{module}.{name}" if module else name
        return "?"

    def _reachable_bytes(self) -> int:
        """Returns the bytes of all values that can be reached from the kept variables; `bytes_used` does not change."""
        before = self.bytes_used
        self.bytes_used = 0
        for value in _reached(scope.variables[name] for scope in self._scopes for name in scope.names if name in scope.variables):
            if isinstance(value, KeptDict | KeptList | tuple | KeptArray):
                self.bytes_used += _CONTAINER_BYTES + (len(value) * value.itemsize if isinstance(value, KeptArray) else 0)
            else:
                self.adopt(value)
        counted, self.bytes_used = self.bytes_used, before
        return counted

    def next_number(self) -> int:
        """Returns the next unused number for a container."""
        self._next_number += 1
        return self._next_number

    def set_restored_bytes(self, bytes_used: int) -> None:
        """Sets the count of kept bytes to that of a restored snapshot."""
        self.bytes_used = self._bytes_committed = bytes_used

    def freeze(self) -> FrozenVariables:
        """Returns the kept state as of now, which another thread can read later. Must be called between calls of user code."""
        frozen = FrozenVariables(tuple(self.variables), self.bytes_used)
        self.journal.snapshot_token = object()
        self._frozen = [each for each in self._frozen if each() is not None]
        self._frozen.append(ref(frozen))
        return frozen

    def _preserve_content(self, container: Any) -> None:
        content = None
        for each in self._frozen:
            frozen = each()
            if frozen is not None and container.number not in frozen.before:
                content = container.content() if content is None else content
                frozen.before[container.number] = content


class FrozenVariables:
    """The kept state at the moment of a snapshot. Another thread may read it while the engine continues: a container that changes
    is copied first.
    """

    def __init__(self, variables: tuple[tuple[str, str, Any], ...], bytes_used: int) -> None:
        self.variables = variables
        self.bytes_used = bytes_used
        self.before: dict[int, Any] = {}
        """The contents, at that moment, of the containers that have changed since, by the container's number."""

    def content(self, container: Any) -> Any:
        """Returns the content that a kept container had at the moment of the snapshot."""
        while True:
            try:
                now = container.content()
            except RuntimeError:  # it is changing, so its earlier content is recorded
                now = None
            before = self.before.get(container.number, ABSENT)
            if before is not ABSENT:
                return before
            if now is not None:
                return now


def _own_bytes(value: Any) -> int:
    """Returns the bytes of a value, parts of tuples and frozen sets included. Lists, dicts, sets and arrays count 0, because other
    variables may hold them too.
    """
    kind = type(value)
    if kind is tuple:
        return _CONTAINER_BYTES + sum(map(_own_bytes, value))
    if kind is OrderedFrozenSet:
        counting = Keeper(0)
        counting.adopt(value)
        return counting.bytes_used
    if kind is str or kind is bytes:
        return _VALUE_BYTES + len(value)
    if kind is int:
        return _VALUE_BYTES + int(value.bit_length()) // 8
    return _VALUE_BYTES if value is None or kind is bool or kind is float else 0


def _size(value: Any) -> float:
    """Returns the bytes of a value without parts, and infinity for any other value."""
    kind = type(value)
    return _own_bytes(value) if kind in _PLAIN_KEYS or kind is float else math.inf


def _reached(values: Iterable[Any]) -> Iterator[Any]:
    """Yields every value that can be reached from `values`, each kept container once. For a set the dict of its elements is
    yielded."""
    waiting, met = list(values), set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, OrderedSet | OrderedFrozenSet):
            value = value._items
        if isinstance(value, KeptDict | KeptList | KeptArray):
            if value.number in met:
                continue
            met.add(value.number)
        yield value
        if isinstance(value, dict):
            waiting += dict.keys(value)
            waiting += dict.values(value)
        elif isinstance(value, list | tuple):
            waiting += value


def describe_object(value: object) -> str:
    kind = type(value)
    if kind.__name__ == "function":
        return f"the function {getattr(value, '__name__', '')}"
    return f"an object of type {kind.__name__}"
