"""Sets that iterate in the order of insertion.

Python's own iterate by hashes, which differ between processes for texts. User code gets these under the names `set` and
`frozenset`, and for set displays and comprehensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any


class _OrderedElements(Set[Any]):
    """The operations that ordered sets and ordered frozen sets share. Elements are the keys of the dict `_items`."""

    __slots__ = ("_items",)

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self._items: dict[Any, None] = dict.fromkeys(elements)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return cls(it)

    @classmethod
    def from_shared_dict(cls, items: dict[Any, None]) -> Any:
        """Returns a set whose elements are the keys of `items`. The set uses that dict itself, without a copy."""
        made = cls()
        made._items = items
        return made

    def __contains__(self, element: object) -> bool:
        return element in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def copy(self) -> Any:
        return type(self)(self._items)

    def __copy__(self) -> Any:
        return self.copy()

    def union(self, *others: Iterable[Any]) -> Any:
        return type(self)([*self._items, *(element for other in others for element in other)])

    def intersection(self, *others: Iterable[Any]) -> Any:
        within = [dict.fromkeys(other) for other in others]
        return type(self)(element for element in self._items if all(element in each for each in within))

    def difference(self, *others: Iterable[Any]) -> Any:
        without = dict.fromkeys(element for other in others for element in other)
        return type(self)(element for element in self._items if element not in without)

    def symmetric_difference(self, other: Iterable[Any]) -> Any:
        given = dict.fromkeys(other)
        return type(self)([*(e for e in self._items if e not in given), *(e for e in given if e not in self._items)])

    def issubset(self, other: Iterable[Any]) -> bool:
        return all(element in within for within in (dict.fromkeys(other),) for element in self._items)

    def issuperset(self, other: Iterable[Any]) -> bool:
        return all(element in self._items for element in other)


class OrderedFrozenSet(_OrderedElements):
    """The `frozenset` of user code. It iterates in the order of insertion."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, self._items))}}})" if self._items else "frozenset()"

    def __hash__(self) -> int:
        return self._hash()


class OrderedSet(_OrderedElements):
    """The `set` of user code. It iterates in the order of insertion. All changes are made in the dict `_items`, which is never
    replaced.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._items))}}}" if self._items else "set()"

    def add(self, element: Any) -> None:
        if element not in self._items:
            self._items[element] = None

    def discard(self, element: Any) -> None:
        if element in self._items:
            del self._items[element]

    def remove(self, element: Any) -> None:
        del self._items[element]

    def pop(self) -> Any:
        """Removes the oldest element and returns it. Raises KeyError if the set is empty."""
        if not self._items:
            raise KeyError("pop from an empty set")
        element = next(iter(self._items))
        del self._items[element]
        return element

    def clear(self) -> None:
        self._items.clear()

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            for element in list(other):
                self.add(element)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        self._retain_only(self.intersection(*others))

    def difference_update(self, *others: Iterable[Any]) -> None:
        self._retain_only(self.difference(*others))

    def symmetric_difference_update(self, other: Iterable[Any]) -> None:
        given = list(dict.fromkeys(other))
        for element in given:
            (self.discard if element in self._items else self.add)(element)

    def _retain_only(self, kept: _OrderedElements) -> None:
        for element in list(self._items):
            if element not in kept:
                del self._items[element]

    def __ior__(self, other: Iterable[Any]) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def __iand__(self, other: Iterable[Any]) -> Any:
        self.intersection_update(other)
        return self

    def __isub__(self, other: Iterable[Any]) -> Any:
        self.difference_update(other)
        return self

    def __ixor__(self, other: Iterable[Any]) -> Any:  # type: ignore[misc]
        self.symmetric_difference_update(other)
        return self


OrderedSet.__name__ = OrderedSet.__qualname__ = "set"
OrderedFrozenSet.__name__ = OrderedFrozenSet.__qualname__ = "frozenset"
OrderedSet.__module__ = OrderedFrozenSet.__module__ = "builtins"
