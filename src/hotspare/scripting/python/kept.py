"""Containers that user code keeps between events: lists, dicts and arrays that record their changes.

The records limit the work at the end of a call to its changes: only these are checked, or undone if the call fails. Content that a
snapshot shares with the engine is copied before its first change. User code sees lists, dicts and arrays.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, SupportsIndex

from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet

ABSENT: Any = object()
"""The recorded value of a key that did not exist before a change."""


class Journal:
    """The changes of the current call, and the sharing of content with snapshots.

    `changes`: (container, where, value before, value after) in order, for `undo` and `adopt_stored` of the container.
    `snapshot_token`: a new object after each snapshot. A container with an older token has not changed since that snapshot.
    """

    __slots__ = ("changes", "snapshot_token", "taken")

    def __init__(self) -> None:
        self.changes: list[tuple[Any, Any, Any, Any]] = []
        self.snapshot_token: object = None
        self.taken: Callable[[Any], None] = lambda container: None
        """The callback that is called with a container before its first change since a snapshot."""

    def record_change(self, container: Any, where: Any, before: Any, after: Any = None) -> None:
        if container.snapshot_token is not self.snapshot_token:
            self.preserve_for_snapshots(container)
        self.changes.append((container, where, before, after))

    def preserve_for_snapshots(self, container: Any) -> None:
        """Calls `taken` with the container, which is about to change for the first time since a snapshot."""
        container.snapshot_token = self.snapshot_token
        self.taken(container)


_WHOLE, _ADDED, _INSERTED, _REMOVED = object(), object(), object(), object()
"""The values of `where` that are not a key or an index: all content; elements added at the end, with the length before; an inserted
element; a removed element.
"""


class NotPlain(Exception):
    """Raised if a value cannot be kept; the message describes the value."""


class EventDict(dict[str, Any]):
    """An event for code, without its null fields; reading a null field returns None."""

    __slots__ = ()

    def __missing__(self, name: str) -> None:
        return None


def no_value() -> None:
    """Returns None. It is the default factory of the kept form of an `EventDict`, in which null fields read as None too."""


def _less(before: float, after: float) -> float:
    """Returns the decrease of a size from `before` to `after`, at least 0; `before` if `after` is infinite, which means unknown."""
    return max(0, before - after) if math.isfinite(after) else before


_KEYS = frozenset({str, int, bytes, bool, type(None), float})


def is_plain_key(key: Any) -> bool:
    """Whether looking up the key in a dict runs no methods of user code."""
    kind = type(key)
    return kind in _KEYS or ((kind is tuple or kind is OrderedFrozenSet) and all(map(is_plain_key, key)))


_get: Callable[..., Any] = dict.get
_put: Callable[..., None] = dict.__setitem__


class KeptDict(dict[Any, Any]):
    """A kept dict. Iteration raises RuntimeError after a key was removed: where Python's iterator continues then depends on keys
    that the dict held earlier, which a restored dict never had.
    """

    __slots__ = ("factory", "journal", "number", "removals", "snapshot_token")

    def __init__(self, journal: Journal, number: int, factory: Any = None) -> None:
        super().__init__()
        self.journal, self.number, self.factory, self.snapshot_token = journal, number, factory, journal.snapshot_token
        self.removals = 0

    def checked_iterator(self, native: Iterator[Any]) -> Iterator[Any]:
        """Yields the elements of `native`, one of Python's own iterators over this dict. Raises RuntimeError after a key was
        removed.
        """
        removals = self.removals
        for each in native:
            yield each
            if self.removals != removals:
                raise RuntimeError("dictionary keys changed during iteration")

    def __iter__(self) -> Iterator[Any]:
        return self.checked_iterator(dict.__iter__(self))

    def __reversed__(self) -> Iterator[Any]:
        return self.checked_iterator(dict.__reversed__(self))

    def keys(self) -> Any:
        return KeptKeysView(self, dict.keys(self))

    def values(self) -> Any:
        return KeptValuesView(self, dict.values(self))

    def items(self) -> Any:
        return KeptItemsView(self, dict.items(self))

    def undo(self, key: Any, before: Any) -> None:
        if key is not _WHOLE and not is_plain_key(key):
            self._drop_other_keys()
        elif before is ABSENT:
            dict.pop(self, key, None)
        elif key is _WHOLE:
            dict.clear(self)
            dict.update(self, before)
        else:
            dict.__setitem__(self, key, before)

    def adopt_stored(
        self, where: Any, after: Any, before: Any, adopt: Callable[[Any], Any], adopt_key: Callable[[Any], None]
    ) -> None:
        """Replaces the value at the key `where`, if the key still exists, by its kept form, and adopts the key. Called at a commit
        for each change.
        """
        if where is not _WHOLE and not is_plain_key(where):  # a lookup in the dict would run methods of the key
            if any(key is where for key in dict.keys(self)):
                adopt_key(where)
            return
        if where is _WHOLE or (value := dict.get(self, where, ABSENT)) is ABSENT:
            return
        adopt_key(where)
        if (kept := adopt(value)) is not value:
            dict.__setitem__(self, where, kept)

    def freed_bytes_max(self, where: Any, before: Any, after: Any, size: Callable[[Any], float]) -> float:
        """Returns an upper bound of the bytes that this change frees. `size`: returns the bytes of a value without parts, and
        infinity for a container, which another variable may also hold.
        """
        if before is ABSENT or (where is not _WHOLE and not is_plain_key(where)):
            return 0
        if where is _WHOLE:
            return math.inf
        now, of_key = dict.get(self, where, ABSENT), size(where)
        if now is ABSENT:
            return of_key + size(before)
        return _less(size(before), size(now)) + (0 if type(where) is str else of_key - size(0))  # an equal key may be smaller

    def content(self) -> tuple[list[Any], list[Any]]:
        """Returns the keys and the values."""
        return list(dict.keys(self)), list(dict.values(self))

    def _drop_other_keys(self) -> None:
        """Removes all keys that are not plain, which the failed call added, without running their methods. A kept dict has only
        plain keys.
        """
        plain = {key: value for key, value in dict.items(self) if is_plain_key(key)}
        dict.clear(self)
        dict.update(self, plain)

    def __missing__(self, key: Any) -> Any:
        if self.factory is None:
            raise KeyError(key)
        value = self.factory()
        if value is None:
            return None
        self[key] = value
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        journal = self.journal
        if self.snapshot_token is not journal.snapshot_token:
            journal.preserve_for_snapshots(self)
        journal.changes.append((self, key, _get(self, key, ABSENT), None))
        _put(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self.journal.record_change(self, key, dict.get(self, key))
        self.removals += 1
        dict.__delitem__(self, key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return dict.get(self, key)

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            value = dict.get(self, key)
            del self[key]
            return value
        return dict.pop(self, key, *default)

    def popitem(self) -> tuple[Any, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        key = next(dict.__reversed__(self))
        return key, self.pop(key)

    def clear(self) -> None:
        if self:
            self.journal.record_change(self, _WHOLE, self.copy())
            self.removals += 1
            dict.clear(self)

    def update(self, /, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[Any, Any]:
        return dict(dict.items(self))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (self.copy(),)


class _KeptView:
    """A view of a kept dict, around Python's own view. Iterating over it raises RuntimeError after a key was removed."""

    __slots__ = ("_dict", "_native")

    def __init__(self, of: KeptDict, native: Any) -> None:
        self._dict, self._native = of, native

    def __iter__(self) -> Iterator[Any]:
        return self._dict.checked_iterator(iter(self._native))

    def __reversed__(self) -> Iterator[Any]:
        return self._dict.checked_iterator(reversed(self._native))

    def __len__(self) -> int:
        return len(self._native)

    def __contains__(self, value: object) -> bool:
        return value in self._native

    def __repr__(self) -> str:
        return repr(self._native)


class KeptValuesView(_KeptView):
    __slots__ = ()


class KeptKeysView(_KeptView, Set[Any]):
    __slots__ = ()

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return OrderedSet(it)


class KeptItemsView(KeptKeysView):
    __slots__ = ()


class _KeptSequence:
    """The methods that change a kept list or array, and record the change. `_base`: the Python type, list or array."""

    __slots__ = ()
    _base: Any
    journal: Journal

    def undo(self, where: Any, before: Any) -> None:
        base = self._base
        if where is _WHOLE:
            base.__setitem__(self, slice(None), before)
        elif where is _ADDED:
            base.__delitem__(self, slice(before, None))
        elif where is _INSERTED:
            base.__delitem__(self, before)
        elif where is _REMOVED:
            base.insert(self, *before)
        else:
            base.__setitem__(self, where, before)

    def adopt_stored(
        self, where: Any, after: Any, before: Any, adopt: Callable[[Any], Any], adopt_key: Callable[[Any], None]
    ) -> None:
        """Replaces the values that the change stored, if they are still in the sequence, by their kept forms. Called at a commit
        for each change.
        """
        if where is _REMOVED:
            return
        begin = 0 if where is _WHOLE else before if where is _ADDED or where is _INSERTED else where
        for place, value in enumerate(after, begin):
            try:
                kept = adopt(value)
            except NotPlain:
                if any(each is value for each in self.content()):
                    raise
                continue
            if kept is not value:
                self._replace(place, value, kept)

    def freed_bytes_max(self, where: Any, before: Any, after: Any, size: Callable[[Any], float]) -> float:
        """Returns an upper bound of the bytes that this change frees; arguments as for `KeptDict.freed_bytes_max`."""
        if where is _ADDED or where is _INSERTED:
            return 0
        if where is _WHOLE:
            return math.inf
        return size(before[1]) if where is _REMOVED else _less(size(before), size(after[0]))

    def _replace(self, place: int, value: Any, kept: Any) -> None:
        """Replaces `value` by `kept` in the sequence. Tries `place` and the index before first, then searches."""
        base, length = self._base, self._base.__len__(self)
        for guess in (place, place - 1):
            if 0 <= guess < length and base.__getitem__(self, guess) is value:
                base.__setitem__(self, guess, kept)
                return
        for other in range(length):
            if base.__getitem__(self, other) is value:
                base.__setitem__(self, other, kept)

    def content(self) -> Any:
        return self._base.__getitem__(self, slice(None))

    def _record_all(self, after: Iterable[Any] = ()) -> None:
        self.journal.record_change(self, _WHOLE, self.content(), after)

    def _place(self, index: SupportsIndex) -> int:
        """Returns `index` counted from the beginning, also if it is negative. Raises IndexError if it is out of range."""
        place, length = index.__index__(), self._base.__len__(self)
        if not -length <= place < length:
            raise IndexError("list index out of range")
        return place + length if place < 0 else place

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            values = list(value) if self._base is list else value
            self._record_all(values)
            self._base.__setitem__(self, index, values)
            return
        place = self._place(index)
        self.journal.record_change(self, place, self._base.__getitem__(self, place), (value,))
        self._base.__setitem__(self, place, value)

    def __delitem__(self, index: Any) -> None:
        if isinstance(index, slice):
            self._record_all()
        else:
            index = self._place(index)
            self.journal.record_change(self, _REMOVED, (index, self._base.__getitem__(self, index)))
        self._base.__delitem__(self, index)

    def append(self, value: Any) -> None:
        self.journal.record_change(self, _ADDED, self._base.__len__(self), (value,))
        self._base.append(self, value)

    def extend(self, values: Iterable[Any]) -> None:
        added = list(values)
        self.journal.record_change(self, _ADDED, self._base.__len__(self), added)
        self._base.extend(self, added)

    def __iadd__(self, values: Iterable[Any]) -> Any:
        self.extend(values)
        return self

    def insert(self, index: SupportsIndex, value: Any) -> None:
        place, length = index.__index__(), self._base.__len__(self)
        place = max(place + length, 0) if place < 0 else min(place, length)
        self.journal.record_change(self, _INSERTED, place, (value,))
        self._base.insert(self, place, value)

    def pop(self, index: SupportsIndex = -1) -> Any:
        place = self._place(index)
        value = self._base.__getitem__(self, place)
        self.journal.record_change(self, _REMOVED, (place, value))
        self._base.__delitem__(self, place)
        return value

    def remove(self, value: Any) -> None:
        del self[self._base.index(self, value)]

    def reverse(self) -> None:
        self._record_all()
        self._base.reverse(self)

    def clear(self) -> None:
        self._record_all()
        self._base.__delitem__(self, slice(None))

    def __imul__(self, count: SupportsIndex) -> Any:
        self._record_all()
        self._base.__setitem__(self, slice(None), self.content() * count)
        return self


class KeptList(_KeptSequence, list[Any]):
    __slots__ = ("journal", "number", "snapshot_token")
    _base = list

    def __init__(self, journal: Journal, number: int) -> None:
        self.journal, self.number, self.snapshot_token = journal, number, journal.snapshot_token

    def sort(self, **how: Any) -> None:
        ordered = sorted(self, **how)
        self._record_all()
        list.__setitem__(self, slice(None), ordered)

    def copy(self) -> list[Any]:
        return list(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


class KeptArray(_KeptSequence, array):  # type: ignore[type-arg]
    _base = array
    number: int
    snapshot_token: object

    @classmethod
    def from_array(cls, content: Any, journal: Journal, number: int) -> KeptArray:
        made = cls(content.typecode, content)
        made.journal, made.number, made.snapshot_token = journal, number, journal.snapshot_token
        return made

    def content(self) -> Any:
        return array(self.typecode, self)

    def byteswap(self) -> None:
        swapped = self.content()
        swapped.byteswap()
        self[:] = swapped

    def fromlist(self, values: Any) -> None:
        more = array(self.typecode)
        more.fromlist(values)
        self.extend(more)

    def fromunicode(self, text: Any) -> None:
        more = array(self.typecode)
        more.fromunicode(text)
        self.extend(more)

    def frombytes(self, data: Any) -> None:
        more = array(self.typecode)
        more.frombytes(data)
        self.extend(more)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return array, (self.typecode, self.tolist())

    def __repr__(self) -> str:
        return repr(self.content())


def _refuse(self: Any, *_: Any, **__: Any) -> Any:
    raise TypeError(f"this {type(self).__name__} holds what cannot be saved, or is transient, so it cannot change")


class FixedDict(dict[Any, Any]):
    """A dict that lives as long as the program and is not state, so it cannot change."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class FixedList(list[Any]):
    """A list that lives as long as the program and is not state, so it cannot change."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


for _kind, _name in {
    KeptDict: "dict",
    FixedDict: "dict",
    EventDict: "dict",
    KeptList: "list",
    FixedList: "list",
    KeptArray: "array",
    KeptKeysView: "dict_keys",
    KeptValuesView: "dict_values",
    KeptItemsView: "dict_items",
}.items():
    _kind.__name__ = _kind.__qualname__ = _name  # what user code sees in messages
